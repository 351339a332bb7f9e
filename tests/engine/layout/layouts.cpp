// Prints the values of the host-testable kernel headers as JSON. test_layouts.py checks them.
#include <stddef.h>
#include <stdio.h>

#include "device/arch/names.hpp"
#include "device/call/every_tile.hpp"
#include "device/call/params.hpp"
#include "device/call/sequence.hpp"
#include "device/masks/mask.hpp"
#include "device/memory/swizzle.hpp"
#include "device/mma/layout.hpp"
#include "device/scores/narrow_range.hpp"
#include "device/scores/philox.hpp"

namespace {

const char* separator(int i) { return i == 0 ? "" : ","; }

template <class F>
void array(const char* key, int count, F value) {
  printf("\"%s\":[", key);
  for (int i = 0; i < count; ++i) printf("%s%d", separator(i), value(i));
  printf("]");
}

template <class F>
void table(const char* key, int rows, int columns, F value) {
  printf("\"%s\":[", key);
  for (int i = 0; i < rows; ++i) {
    printf("%s[", separator(i));
    for (int j = 0; j < columns; ++j) printf("%s%d", separator(j), value(i, j));
    printf("]");
  }
  printf("]");
}

template <class L>
void tile(int rows) {
  printf("\"%d\":{", rows);
  if (rows % L::kM != 0) {
    printf("}");
    return;
  }
  array("slot_of_row", rows, [=](int row) { return L::slot_of_row(row, rows); });
  printf(",");
  array("row_of_slot", rows, [=](int slot) { return L::row_of_slot(slot, rows); });
  printf(",");
  table("held", L::kWave, rows / L::kM * L::kRows,
        [=](int lane, int f) { return L::held_begin(lane, rows) + L::held_step(f); });
  printf("}");
}

template <class L>
void layout(const char* name) {
  printf("\"%s\":{\"wave\":%d,\"m\":%d,\"n\":%d,\"k\":%d,\"run\":%d,\"columns\":%d,\"rows\":%d,\"peers\":%d,",
         name, L::kWave, L::kM, L::kN, L::kK, L::kRun, L::kColumns, L::kRows, L::kPeers);
  printf("\"chains_in_registers\":%s,", L::kChainsInRegisters ? "true" : "false");
  array("a_row", L::kWave, [](int lane) { return L::a_row(lane); });
  printf(",");
  array("run_begin", L::kWave, [](int lane) { return L::run_begin(lane); });
  printf(",");
  table("column", L::kWave, L::kColumns, [](int lane, int c) { return L::column(lane, c); });
  printf(",");
  table("c_row", L::kWave, L::kRows, [](int lane, int r) { return L::c_row(lane, r); });
  if constexpr (L::kColumns == 1) {
    printf(",");
    array("c_place", L::kM, [](int row) { return L::c_place(row); });
  }
  printf(",\"tiles\":{");
  tile<L>(32);
  printf(",");
  tile<L>(64);
  printf(",");
  tile<L>(96);
  printf(",");
  tile<L>(128);
  printf(",");
  tile<L>(192);
  printf(",");
  tile<L>(256);
  printf("}}");
}

template <int kRows, int kRowBytes, int kPeriod, bool kPadded = false, int kBlock = kPeriod>
void swizzle(const char* comma) {
  using S = fa::Swizzle<kRows, kRowBytes, kPeriod, kPadded, kBlock>;
  printf("%s{\"rows\":%d,\"row_bytes\":%d,\"stride\":%d,\"period\":%d,\"block\":%d,\"bytes\":%d,", comma,
         kRows, kRowBytes, S::kStride, kPeriod, kBlock, S::kBytes);
  table("offset", kRows, S::kUnits, [](int row, int unit) { return S::offset(row, unit); });
  printf(",");
  table("offset_next", kRows, S::kUnits,
        [](int row, int unit) { return S::offset_next(row & ~3, row & 3, unit); });
  printf(",");
  table("offset_second", kRows, S::kUnits,
        [](int row, int unit) { return S::offset_next(row & ~1, row & 1, unit); });
  printf("}");
}

// Rows also read transposed: offsets, and each lane's addresses in the two reads of an operand.
template <int kRows, int kRowBytes>
void fanned(const char* comma) {
  using F = fa::FannedRows<kRows, kRowBytes>;
  static_assert(F::offset_beyond(F::offset(5, 1), 2) == F::offset(5, 3));
  static_assert(F::offset_below(F::offset(3, 1), 16) == F::offset(19, 1));
  printf("%s{\"rows\":%d,\"row_bytes\":%d,\"bytes\":%d,", comma, kRows, kRowBytes, F::kBytes);
  table("offset", kRows, F::kUnits, [](int row, int unit) { return F::offset(row, unit); });
  printf(",");
  table("asked", 64, 2, [](int lane, int half) {
    return F::offset(fa::turned_row(lane), 0) + fa::turned_byte(lane) + F::offset(half * 8, 0);
  });
  printf("}");
}

// Places of the stores of a tile's rows, or of its transpose, by 16 lanes with 8 bytes each.
template <fa::MatrixUnit kUnit, int kRows, int kHeadDim>
void spread(const char* comma) {
  using L = fa::Layout<kUnit>;
  constexpr bool kInOrder = L::slot_of_row(1, kRows) == 1;
  static_assert(kInOrder == (kUnit == fa::MatrixUnit::wmma_split));
  using Rows = fa::RowFragments<kRows, kHeadDim * 2, kInOrder>;
  using Transposed = fa::TransposedFragments<kHeadDim, kRows * 2, kInOrder>;
  static_assert(Rows::offset_beyond(Rows::offset(kRows - 3, 1), 2) == Rows::offset(kRows - 3, 3));
  static_assert(Transposed::offset_beyond(Transposed::offset(21, 0), 1) == Transposed::offset(21, 1));
  constexpr int kBlocks = kRows / 4, kPieces = kBlocks * kHeadDim / 4;
  printf("%s{\"rows\":%d,\"row_bytes\":%d,\"transposed_bytes\":%d,", comma, kRows, Rows::kBytes,
         Transposed::kBytes);
  table("row_stores", kPieces / 4, 16, [](int store, int lane) {
    const int piece = store / 4 * 16 + lane, block = piece % kBlocks,
              column = fa::spread_column(piece / kBlocks, kBlocks, kInOrder);
    return Rows::offset(L::slot_of_row(block * 4 + store % 4, kRows), column / 2) + column % 2 * 8;
  });
  printf(",");
  table("transposed_stores", kPieces / 4, 16, [](int store, int lane) {
    const int piece = store / 4 * 16 + lane, block = piece % kBlocks,
              column = fa::spread_column(piece / kBlocks, kBlocks, kInOrder);
    return Transposed::offset(L::slot_of_row(column * 4 + store % 4, kHeadDim), block / 2) + block % 2 * 8;
  });
  printf("}");
}

void tiles_of_archs() {
  const char* comma = "";
  for (const fa::Gfx arch : fa::kAllGfx) {
    for (int head_dim = 1; head_dim <= fa::kMaxHeadDim; ++head_dim) {
      if (fa::forward_config(fa::Op::fwd, arch, fa::DType::fp16, head_dim).waves == 0) continue;
      const fa::ArchTraits traits = fa::traits(arch);
      for (const bool decode : {false, true}) {
        const fa::Op op = decode ? fa::Op::decode : fa::Op::fwd;
        const fa::FwdTile tile = fa::forward_tile(op, arch, fa::DType::fp16, head_dim);
        printf("%s{\"arch\":\"%s\",\"decode\":%d,\"head_dim\":%d,", comma, fa::name(arch).data(), decode,
               head_dim);
        printf("\"block_m\":%d,\"threads\":%d,\"wave\":%d}", tile.block_m, tile.threads, traits.wave);
        comma = ",";
      }
    }
  }
}

// Tiles [3, 3 + length) cut into parts.
void parts() {
  const char* comma = "";
  for (int length = -1; length < 9; ++length) {
    for (int count = 0; count < 12; ++count) {
      printf("%s{\"length\":%d,\"count\":%d,", comma, length, count);
      table("parts", count > 0 ? count : 1, 2, [&](int part, int end) {
        const fa::Part found = fa::part_of(3, 3 + length, part, count);
        return end ? found.end : found.begin;
      });
      printf("}");
      comma = ",";
    }
  }
}

// For blocks of 4 from 0 on, waves of 2 of them, and tiles of 3.
template <class F>
void tiles(const char* key, int count, F value) {
  printf("\"%s\":[", key);
  for (int i = 0; i < (count + 3) / 4 * 2; ++i) {
    const fa::TileBounds t = value(i / 2 * 4, i % 2 * 2);
    printf("%s[%d,%d,%d,%d,%d,%d]", separator(i), t.begin, t.end, t.wave_begin, t.wave_end, t.unmasked_begin,
           t.unmasked_end);
  }
  printf("]");
}

void visibility() {
  const char* comma = "";
  for (int left = -1; left < 3; ++left) {
    for (int right = -1; right < 3; ++right) {
      for (int q = 0; q < 6; ++q) {
        for (int k = 0; k < 6; ++k) {
          const fa::Visibility visible{q, k, left, right};
          printf("%s{\"q\":%d,\"k\":%d,\"left\":%d,\"right\":%d,", comma, q, k, left, right);
          array("begin", q, [&](int row) { return visible.begin(row); });
          printf(",");
          array("end", q, [&](int row) { return visible.end(row); });
          printf(",");
          table("end_of_rows", 8, 4,
                [&](int first, int rows) { return visible.end_of_rows(first, rows + 1); });
          printf(",");
          tiles("tiles_of_rows", 8,
                [&](int first, int wave) { return visible.tiles_of_rows(first, 4, first + wave, 2, 3); });
          printf(",");
          tiles("tiles_of_rows_by_branches", q, [&](int first, int wave) {
            return visible.tiles_of_rows_by_branches(first, 4, first + wave, 2, 3);
          });
          printf(",");
          tiles("tiles_of_keys", k,
                [&](int first, int wave) { return visible.tiles_of_keys(first, 4, first + wave, 2, 3); });
          printf(",");
          tiles("tiles_of_keys_by_bounds", k, [&](int first, int wave) {
            return visible.tiles_of_keys_by_bounds(first, 4, first + wave, 2, 3);
          });
          printf("}");
          comma = ",";
        }
      }
    }
  }
}

// Sequences of a ragged batch: cu_seqlens as given, lengths clamped to the tensors.
void sequences() {
  const int32_t cu_q[] = {0, 3, 3, 8, 4, 99}, cu_k[] = {2, 5, 5, 1, -7, 50}, used[] = {1, 9, 0, -4, 6},
                pad[] = {0, 1, 2, 3, 4}, table[1] = {};
  const char* comma = "";
  for (int mode = 0; mode < 16; ++mode) {
    fa::FwdParams p{};
    p.seqlen_q = 5, p.seqlen_k = 12, p.rows_q = 10, p.rows_k = 12;
    if (mode & 1) p.cu_seqlens_q = cu_q, p.cu_seqlens_k = cu_k;
    if (mode & 2) p.seqused_k = used;
    if (mode & 4) p.leftpad_k = pad;
    if (mode & 8) p.block_table = table;
    for (int b = 0; b < 5; ++b) {
      const fa::Sequence s = fa::sequence(p, b);
      printf("%s{\"mode\":%d,\"batch\":%d,\"q\":[%d,%d],\"k\":[%d,%d]}", comma, mode, b, s.q_first,
             s.seqlen_q, s.k_first, s.seqlen_k);
      comma = ",";
    }
  }
}

// Places in a cache of three rows.
void places() {
  const int32_t index[] = {0, 2, 1, 3, -1, INT32_MAX, INT32_MIN};
  fa::FwdParams p{};
  p.batch_k = 3;
  array("without", 2, [&](int batch) { return fa::place_in_cache(p, batch); });
  p.cache_batch_idx = index;
  printf(",");
  array("by_index", 7, [&](int batch) { return fa::place_in_cache(p, batch); });
}

// Random123's inputs, and the words for one position among the probabilities.
void philox() {
  const fa::PhiloxWords counters[] = {
      {{0, 0, 0, 0}}, {{~0u, ~0u, ~0u, ~0u}}, {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}};
  const fa::PhiloxKey keys[] = {{0, 0}, {~0u, ~0u}, {0xa4093822, 0x299f31d0}};
  for (int i = 0; i < 3; ++i) {
    const fa::PhiloxWords w = fa::philox(counters[i], keys[i]);
    printf("\"%08x %08x %08x %08x\",", w.word[0], w.word[1], w.word[2], w.word[3]);
  }
  constexpr fa::PhiloxWords placed = fa::dropout_words({5, 6}, 4, 3, 2, 1);
  constexpr fa::PhiloxWords same = fa::philox({{1, 2, 3, 4}}, {5, 6});
  static_assert(placed.word[0] == same.word[0] && placed.word[3] == same.word[3], "group, row, head, batch");
  printf("\"\"");
}

void names() {
  const char* texts[] = {
      "gfx908", "gfx942:sramecc+:xnack-", "gfx1030", "gfx1100:", "gfx90", "gfx9080", "gfx900", ""};
  const char* comma = "";
  for (const char* text : texts) {
    fa::Gfx arch{};
    const bool known = fa::parse_gfx(text, &arch);
    printf("%s[\"%s\",\"%s\"]", comma, text, known ? fa::name(arch).data() : "");
    comma = ",";
  }
}

}  // namespace

int main() {
  printf("{\"layouts\":{");
  layout<fa::Layout<fa::MatrixUnit::mfma>>("mfma");
  printf(",");
  layout<fa::NarrowLayout<fa::MatrixUnit::mfma>>("mfma_narrow");
  printf(",");
  layout<fa::Layout<fa::MatrixUnit::wmma>>("wmma");
  printf(",");
  layout<fa::Layout<fa::MatrixUnit::wmma_split>>("wmma_split");
  printf(",");
  layout<fa::Layout<fa::MatrixUnit::dot2>>("dot2");
  printf(",");
  layout<fa::Layout<fa::MatrixUnit::dot2_64>>("dot2_64");
  printf(",");
  layout<fa::NarrowLayout<fa::MatrixUnit::dot2>>("dot2_narrow");
  printf(",");
  layout<fa::NarrowLayout<fa::MatrixUnit::dot2_64>>("dot2_64_narrow");
  printf(",");
  layout<fa::LoneLayout>("dot2_64_lone");
  printf(",");
  layout<fa::Fp8Layout<fa::MatrixUnit::mfma>>("mfma_fp8");
  printf(",");
  layout<fa::WideFp8Layout>("mfma_wide_fp8");
  printf(",");
  layout<fa::Fp8Layout<fa::MatrixUnit::wmma_split>>("wmma_split_fp8");
  printf("},\"swizzles\":[");
  swizzle<64, 64, 32>("");
  swizzle<64, 192, 32>(",");
  swizzle<32, 384, 32>(",");
  swizzle<16, 192, 16>(",");
  swizzle<16, 384, 16>(",");
  swizzle<16, 384, 8>(",");
  swizzle<32, 512, 32>(",");
  swizzle<16, 64, 16>(",");
  swizzle<16, 128, 16>(",");
  swizzle<16, 256, 16>(",");
  swizzle<16, 512, 16>(",");
  swizzle<64, 128, 32>(",");
  swizzle<64, 256, 32>(",");
  swizzle<64, 64, 16>(",");
  swizzle<64, 128, 16>(",");
  swizzle<64, 256, 16>(",");
  swizzle<64, 64, 8>(",");
  swizzle<64, 128, 8>(",");
  swizzle<64, 256, 8>(",");
  swizzle<8, 64, 8>(",");
  swizzle<8, 192, 8>(",");
  swizzle<8, 256, 8>(",");
  swizzle<64, 128, 16, true>(",");
  swizzle<32, 256, 8, true>(",");
  swizzle<128, 64, 16, true>(",");
  swizzle<32, 192, 16, true>(",");
  swizzle<16, 64, 16, true, 8>(",");
  swizzle<16, 256, 16, true, 8>(",");
  printf("],\"fanned\":[");
  fanned<32, 64>("");
  fanned<32, 128>(",");
  fanned<32, 192>(",");
  fanned<32, 256>(",");
  printf("],\"spreads\":[");
  spread<fa::MatrixUnit::wmma, 32, 32>("");
  spread<fa::MatrixUnit::wmma, 32, 64>(",");
  spread<fa::MatrixUnit::wmma, 32, 96>(",");
  spread<fa::MatrixUnit::wmma, 16, 96>(",");
  spread<fa::MatrixUnit::wmma, 16, 128>(",");
  spread<fa::MatrixUnit::wmma_split, 32, 32>(",");
  spread<fa::MatrixUnit::wmma_split, 32, 64>(",");
  spread<fa::MatrixUnit::wmma_split, 32, 96>(",");
  spread<fa::MatrixUnit::wmma_split, 16, 96>(",");
  spread<fa::MatrixUnit::wmma_split, 16, 128>(",");
  printf("],\"tiles\":[");
  tiles_of_archs();
  printf("],\"visibility\":[");
  visibility();
  printf("],\"sequences\":[");
  sequences();
  printf("],\"parts\":[");
  parts();
  const fa::Part last = fa::part_of(0, 1 << 26, fa::kMaxSplits - 1, fa::kMaxSplits);
  printf("],\"last_of_many\":[%d,%d],\"places\":{", last.begin, last.end);
  places();
  printf("},\"philox\":[");
  philox();
  printf("],\"narrow_scale\":%d,", fa::kNarrowScale);
  array("narrows", 1 << 16, [](int bits) { return fa::narrows(static_cast<uint16_t>(bits)) ? 1 : 0; });
  printf(",\"names\":[");
  names();
  printf("]}\n");
}
