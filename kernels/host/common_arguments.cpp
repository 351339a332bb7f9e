#include "common_arguments.hpp"

#include <cmath>
#include <string>

#include "fa/kernel/params.hpp"

namespace fa {

void require_dropout(Problems& problems, const fa_tensor& rng_state, double dropout_p, int device) {
  const Named state{"rng_state", rng_state};
  problems.add_unless(dropout_p >= 0 && dropout_p < 1, [&] {
    return "dropout_p: expected at least 0 and below 1, got " + std::to_string(dropout_p);
  });
  problems.add_unless(given(rng_state) == (dropout_p > 0), [&] {
    return std::string(given(rng_state) ? "rng_state: expected none without dropout_p > 0"
                                        : "rng_state: expected together with dropout_p > 0");
  });
  if (!given(rng_state)) return;
  problems.expect_dims(state, 1);
  problems.expect_dtype(state, FA_INT64);
  problems.expect_device(state, device);
}

void require_scores(Problems& problems, float softmax_scale, float softcap) {
  problems.add_unless(std::isfinite(softmax_scale), [&] {
    return "softmax_scale: expected a finite number, got " + std::to_string(softmax_scale);
  });
  problems.add_unless(std::isfinite(softcap) && softcap >= 0, [&] {
    return "softcap: expected 0 (none) or a positive number, got " + std::to_string(softcap);
  });
}

std::int32_t window(std::int64_t keys) {
  return keys < 0 || keys >= kMaxLength ? kNoWindow : static_cast<std::int32_t>(keys);
}

std::uint32_t dropout_below(double dropout_p) { return static_cast<std::uint32_t>(dropout_p * 4294967296.0); }

float dropout_scale(double dropout_p) { return static_cast<float>(1 / (1 - dropout_p)); }

Strides strides(const fa_tensor& t) {
  return {t.dims == 4 ? t.stride[0] : 0, t.stride[t.dims - 3], t.stride[t.dims - 2]};
}

}  // namespace fa
