// Finds the keys shown by a mask, before kernels read it. They skip tiles hidden by it. fa_fwd_masked_* also
// skip the mask of tiles shown by a boolean one. A workgroup examines the rows of one wave.
#pragma once

#include "device/arch/current.hpp"
#include "device/call/config.hpp"
#include "device/call/params.hpp"
#include "device/call/sequence.hpp"
#include "device/masks/shown_range.hpp"
#include "device/memory/view.hpp"

namespace fa {

template <Gfx kGfx>
struct MaskRanges {
  static constexpr ArchTraits kTraits = traits(kGfx);
  static constexpr int kRows = mask_rows(kGfx);
  static constexpr int kWave = kTraits.wave, kWaves = kMaskRangesThreads / kWave;
  static constexpr int kUnit = 16;               // bytes of a load
  static constexpr int kKeys = 16;               // all tiles begin at a multiple of this
  static constexpr uint32_t kOnes = 0x01010101;  // bytes of a mask that show a key

  using View = BufferView<kRows, 0, kTraits.buffer_word3>;
  using Lds = __attribute__((address_space(3))) int*;

  // Two ranges of units: those with a key seen by any row, and those (of a boolean mask) with all keys seen
  // by all rows. Each is stored as its first key and minus its end. Last comes minus the number of the latter
  // units.
  struct Found {
    static constexpr int kCount = 5;
    int numbers[kCount] = {kNoKey, 0, kNoKey, 0, 0};
  };

  FA_DEVICE static void run(const MaskRangesParams& p, Lds lds) {
    const int thread = __builtin_amdgcn_workitem_id_x(), wave = uniform(thread / kWave);
    Found found = look(p, wave, thread % kWave);
#pragma unroll
    for (int i = 0; i < Found::kCount; ++i) lds[wave * Found::kCount + i] = found.numbers[i];
    workgroup_barrier();
    found = {};
#pragma unroll
    for (int other = 0; other < kWaves; ++other) {
#pragma unroll
      for (int i = 0; i < Found::kCount; ++i) {
        const int number = lds[other * Found::kCount + i];
        found.numbers[i] = i == 4 ? found.numbers[i] + number : least(found.numbers[i], number);
      }
    }
    store(p, found, thread);
  }

 private:
  FA_DEVICE static int least(int a, int b) { return a < b ? a : b; }
  FA_DEVICE static int first_row() { return __builtin_amdgcn_workgroup_id_x() * kRows; }

  // Examines a wave's units.
  FA_DEVICE static Found look(const MaskRangesParams& p, int wave, int lane) {
    const int64_t batch = __builtin_amdgcn_workgroup_id_z(), head = __builtin_amdgcn_workgroup_id_y();
    const int64_t at = batch * p.mask_batch + head * p.mask_head;
    const int bytes = mask_keys(p.seqlen_k) << p.shift;
    const View view({static_cast<const char*>(p.mask) + (at << p.shift), p.mask_row << p.shift, p.seqlen_q},
                    first_row(), bytes);
    const int last = p.mask_row == 0 ? 0 : least(p.seqlen_q - first_row(), kRows) - 1;
    Found found;
    for (int first = wave * kWave * kUnit; first < bytes; first += kMaskRangesThreads * kUnit) {
      const int byte = first + lane * kUnit;
      u32x4 words[kRows];
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        words[row] = view.template read_at<u32x4>(least(row, last) * static_cast<int>(view.row_bytes) + byte);
      }
      __builtin_amdgcn_sched_barrier(0);  // all loads are in flight
      uint32_t any = 0, behind = 0, all = kOnes;
#pragma unroll
      for (const u32x4& word : words) {
        any |= (word[0] ^ p.hidden) | (word[1] ^ p.hidden);
        behind |= (word[2] ^ p.hidden) | (word[3] ^ p.hidden);
        all &= word[0] & word[1] & word[2] & word[3];
      }
      // The last unit of a row of bytes may be half a unit, followed by another row.
      const int left = bytes - byte;
      const uint32_t tells = p.shift == 0 ? kOnes : ~0u;
      add(found, first >> p.shift, p.shift, left > 0 && ((left < kUnit ? any : any | behind) & tells) != 0,
          0);
      add(found, first >> p.shift, p.shift, p.shift == 0 && left >= kUnit && all == kOnes, 2);
    }
    return found;
  }

  // Adds the marked lanes' units to the range starting at number `at`. Lane 0 has the unit with key `first`.
  FA_DEVICE static void add(Found& found, int first, int shift, bool is, int at) {
    const uint64_t lanes = lanes_with<kWave>(is);
    if (lanes == 0) return;
    int* const numbers = found.numbers;
    const int begin = first + (__builtin_ctzll(lanes) * kUnit >> shift);
    const int end = first + ((64 - __builtin_clzll(lanes)) * kUnit >> shift);
    numbers[at] = least(numbers[at], begin & -kKeys);
    numbers[at + 1] = -end & -kKeys;  // no key before it: minus the next multiple
    if (at == 2) numbers[4] -= __builtin_popcountll(lanes);
  }

  // For all rows, heads and sequences sharing the rows of the mask.
  FA_DEVICE static void store(const MaskRangesParams& p, const Found& found, int thread) {
    const int* const n = found.numbers;
    const bool one_run = n[4] != 0 && n[3] + n[2] == n[4] * kUnit;
    const ShownKeys shown{n[0], n[1], one_run ? -n[2] : 0, one_run ? -n[3] : 0};
    const u32x4 words = __builtin_bit_cast(u32x4, shown);
    const unsigned blocks = p.mask_row == 0 ? blocks_of_rows(p.seqlen_q, kRows) : 1;
    const unsigned heads = p.mask_head == 0 ? p.nheads : 1;
    const unsigned batches = p.mask_batch == 0 ? p.batch : 1;
    for (unsigned i = thread; i < blocks * heads * batches; i += kMaskRangesThreads) {
      const unsigned group = i / blocks, batch = group / heads;
      const int row = first_row() + static_cast<int>(i - group * blocks) * kRows;
      const int64_t of_batch = __builtin_amdgcn_workgroup_id_z() + batch;
      const int64_t of_head = __builtin_amdgcn_workgroup_id_y() + group - batch * heads;
      *shown_place(p.out, of_batch * p.o_batch + of_head * p.o_head, p.o_row, row) = words;
    }
  }
};

// Defines the kernel `name`.
#define FA_MASK_RANGES(name, dtype)                                                                 \
  extern "C" __attribute__((global))                                                                \
  __attribute__((amdgpu_flat_work_group_size(fa::kMaskRangesThreads, fa::kMaskRangesThreads))) void \
  name(const fa::MaskRangesParams params) {                                                         \
    using Kernel = fa::MaskRanges<fa::kCurrentGfx>;                                                 \
    __attribute__((shared, aligned(16))) static int lds[Kernel::kWaves * Kernel::Found::kCount];    \
    Kernel::run(params, (Kernel::Lds)lds);                                                          \
  }

}  // namespace fa
