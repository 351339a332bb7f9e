// Philox4x32-10, the counter-based generator of dropout (Salmon, Moraes, Dror, Shaw: "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011). It gives the same words as the package's philox.py. Host-testable.
#pragma once

#include <stdint.h>

namespace fa {

struct PhiloxKey {
  uint32_t low, high;
};

struct PhiloxWords {
  uint32_t word[4];
};

constexpr PhiloxWords philox(PhiloxWords counter, PhiloxKey key) {
  uint32_t c0 = counter.word[0], c1 = counter.word[1], c2 = counter.word[2], c3 = counter.word[3];
  // Unrolled, ten pairs of keys would stay in scalar registers through the kernel's loop.
#pragma clang loop unroll(disable)
  for (int round = 0; round < 10; ++round) {
    const uint64_t even = uint64_t{0xD2511F53} * c0, odd = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(odd >> 32) ^ c1 ^ key.low;
    c1 = static_cast<uint32_t>(odd);
    c2 = static_cast<uint32_t>(even >> 32) ^ c3 ^ key.high;
    c3 = static_cast<uint32_t>(even);
    key.low += 0x9E3779B9;
    key.high += 0xBB67AE85;
  }
  return {{c0, c1, c2, c3}};
}

// The words of the probabilities of (batch, head, row) at columns 4 * group to 4 * group + 3.
constexpr PhiloxWords dropout_words(PhiloxKey key, int batch, int head, int row, unsigned group) {
  return philox(
      {{group, static_cast<uint32_t>(row), static_cast<uint32_t>(head), static_cast<uint32_t>(batch)}}, key);
}

}  // namespace fa
