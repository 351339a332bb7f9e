#include "checks/lds_notes.hpp"

#include <algorithm>

namespace emu {
namespace {
constexpr int kMany = 0xff, kReader = 0xff, kWriter = 0xff00;

// Up to four dwords' words, at once.
template <u32 kDwords>
__m128i fetch(const u32* p) {
  alignas(16) u32 x[4] = {0, 0, 0, 0};
  if constexpr (kDwords == 4) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  std::memcpy(x, p, 4 * kDwords);
  return _mm_load_si128(reinterpret_cast<const __m128i*>(x));
}
template <u32 kDwords>
void put(u32* p, __m128i x) {
  if constexpr (kDwords == 4) return _mm_storeu_si128(reinterpret_cast<__m128i*>(p), x);
  alignas(16) u32 t[4];
  _mm_store_si128(reinterpret_cast<__m128i*>(t), x);
  std::memcpy(p, t, 4 * kDwords);
}

constexpr int lanes_of(u32 dwords) { return (1 << 4 * dwords) - 1; }
// Whether each dword's word is one of two.
template <u32 kDwords>
bool same(__m128i x, __m128i a, __m128i b) {
  const __m128i is = _mm_or_si128(_mm_cmpeq_epi32(x, a), _mm_cmpeq_epi32(x, b));
  return (_mm_movemask_epi8(is) & lanes_of(kDwords)) == lanes_of(kDwords);
}

// Marks the dwords of all lanes. False if another wave has written one of them, or, before a store, read it.
template <u32 kDwords>
bool mark(u32* who, const Note& note, u32 epoch) {
  const __m128i zero = _mm_setzero_si128(), now = _mm_set1_epi32(static_cast<int>(epoch)),
                tag = _mm_slli_epi32(now, 16), many = _mm_set1_epi32(kMany),
                reader = _mm_set1_epi32(note.wave), writer = _mm_slli_epi32(reader, 8);
  const __m128i read_by_me = _mm_or_si128(tag, reader), read_by_many = _mm_or_si128(tag, many);
  const auto free = [&](__m128i x, __m128i own) {
    return _mm_or_si128(_mm_cmpeq_epi32(x, zero), _mm_cmpeq_epi32(x, own));
  };
  __m128i fine = _mm_cmpeq_epi32(zero, zero);
  for (u64 m = note.exec; m; m &= m - 1) {
    u32* p = who + note.address[__builtin_ctzll(m)] / 4;
    const __m128i x = fetch<kDwords>(p);
    if (note.mode == Mode::read && same<kDwords>(x, read_by_me, read_by_many)) continue;
    const __m128i current = _mm_cmpeq_epi32(_mm_srli_epi32(x, 16), now);
    const __m128i read = _mm_and_si128(_mm_and_si128(x, current), _mm_set1_epi32(kReader));
    const __m128i written = _mm_and_si128(_mm_and_si128(x, current), _mm_set1_epi32(kWriter));
    const __m128i unread = free(read, reader);
    fine = _mm_and_si128(fine, free(written, writer));
    if (note.mode == Mode::read) {
      const __m128i readers = _mm_blendv_epi8(many, reader, unread);
      put<kDwords>(p, _mm_or_si128(tag, _mm_or_si128(written, readers)));
    } else {
      fine = _mm_and_si128(fine, unread);
      put<kDwords>(p, _mm_or_si128(tag, _mm_or_si128(read, writer)));
    }
  }
  return (_mm_movemask_epi8(fine) & lanes_of(kDwords)) == lanes_of(kDwords);
}
}  // namespace

void LdsNotes::forget(size_t dwords) {
  who_.resize(dwords);
  notes_.clear();
  exact_ = false;
  epoch_ = (epoch_ + 1) & 0xffff;
  if (!epoch_) std::fill(who_.begin(), who_.end(), 0u);
}

bool LdsNotes::add(const Note& note) {
  if (exact_) return false;
  bool fine;
  switch ((note.bytes + 3) / 4) {
    case 1: fine = mark<1>(who_.data(), note, epoch_); break;
    case 2: fine = mark<2>(who_.data(), note, epoch_); break;
    case 3: fine = mark<3>(who_.data(), note, epoch_); break;
    default: fine = mark<4>(who_.data(), note, epoch_); break;
  }
  if (fine) notes_.push_back(note);
  return fine;
}
}  // namespace emu
