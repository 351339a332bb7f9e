// O^T of waves with keys of their own (memory/own_codes.hpp).
#pragma once

#include "device/mma/unit.hpp"

namespace fa {

// A lane's elements of O^T: element r * kWidth + s of its steps is row r of step s, element c_row(r) * kWidth
// + s of head_dim.
template <class Unit, int kWidth>
struct OwnRows : Unit {
  static constexpr int held_begin(int lane, int) { return Unit::c_row(lane, 0) * kWidth; }
  static constexpr int held_step(int f) { return Unit::c_row(0, f / kWidth) * kWidth + f % kWidth; }
};

// LDS through which `waves` waves give each other all parts of O^T but their own.
template <class Unit>
constexpr int join_bytes(int head_dim, int waves) {
  constexpr int kGroups = kLone<Unit> ? Unit::kWave / ValuesOf<Unit>::kM : 1;
  return (waves - 1) * Unit::kN * kGroups * head_dim * static_cast<int>(sizeof(float));
}

}  // namespace fa
