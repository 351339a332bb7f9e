// Which softmax a forward's loop has.
#pragma once

#include "device/call/config.hpp"
#include "device/scores/count_softmax.hpp"
#include "device/scores/folded_softmax.hpp"

namespace fa {

// kFolded: products start from minus the maximum, which saves the VALU a subtraction per score. If matrix
// instructions overlap with VALU work, this gains nothing. kStartsShifted: scores are unchanged before the
// softmax. kMasked: a mask may bring scores far below 0.
// kCounts: scores are numbers of int8 products until they get their scale and the shift.
template <class Unit, int kSteps, bool kStartsShifted, const FwdConfig& kConfig, bool kMasked, bool kFolded,
          bool kCounts = false>
struct SoftmaxOf {
  // This loop has a tile's K in LDS until the tile is done, and the VALU has time for half of the steps.
  static constexpr bool kIsEager = kConfig.schedule == Schedule::direct && !kMasked;
  static constexpr int kPlainSteps = kConfig.plain_exponents ? kSteps : kIsEager ? kSteps / 2 : 0;
  using Of16Bits = Choice<kIsEager, EagerSoftmax<Unit, kSteps, kMasked, kPlainSteps, kConfig.two_sums>,
                          Softmax<Unit, kSteps, kMasked, kPlainSteps, kConfig.two_sums>>;
  using OfCounts = Choice<kIsEager, EagerCounts<Unit, kSteps>, CountSoftmax<Unit, kSteps>>;
  using OfCodes = Choice<kConfig.schedule == Schedule::eager, EagerCodes<Unit, kSteps>, Of16Bits>;
  using Type = Choice<kCounts, OfCounts, OfCodes>;
};
template <class Unit, int kSteps, bool kStartsShifted, const FwdConfig& kConfig, bool kMasked, bool kCounts>
struct SoftmaxOf<Unit, kSteps, kStartsShifted, kConfig, kMasked, true, kCounts> {
  using Type = FoldedSoftmax<Unit, kSteps, kStartsShifted, kConfig.dual_issue, kMasked, false, kCounts>;
};

}  // namespace fa
