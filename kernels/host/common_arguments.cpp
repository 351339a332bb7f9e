#include "common_arguments.hpp"

#include <cmath>
#include <string>

#include "fa/kernel/params.hpp"

namespace fa {

namespace {

std::int32_t dtype_of(Holds holds, const fa_tensor& q) {
  switch (holds) {
    case Holds::rows: return q.dtype;
    case Holds::fp32: return FA_FP32;
    case Holds::int32: return FA_INT32;
    case Holds::int64: return FA_INT64;
    case Holds::mask: return q.dtype;  // or another one, as require_type knows
  }
  return FA_OTHER_DTYPE;
}

}  // namespace

void require_type(Problems& problems, const Described& tensor, const fa_tensor& q) {
  if (tensor.optional && !given(tensor.named.tensor)) return;
  if (&tensor.named.tensor == &q) {
    return problems.add_unless(q.dtype == FA_FP16 || q.dtype == FA_BF16, [&] {
      return std::string("q: expected dtype fp16 or bf16, got ") + dtype_name(q.dtype);
    });
  }
  const std::int32_t dtype = tensor.named.tensor.dtype;
  if (tensor.holds == Holds::mask) {
    problems.add_unless(dtype == FA_BOOL || dtype == FA_FP32 || dtype == q.dtype, [&] {
      return std::string(tensor.named.name) + ": expected dtype bool, fp32 or q's " + dtype_name(q.dtype) +
             ", got " + dtype_name(dtype);
    });
  } else {
    problems.expect_dtype(tensor.named, dtype_of(tensor.holds, q));
  }
  problems.expect_device(tensor.named, q.device);
}

void require_contiguous(Problems& problems, const Described& tensor) {
  const fa_tensor& t = tensor.named.tensor;
  if (tensor.contiguous == Contiguous::any || !given(t)) return;
  if (tensor.contiguous == Contiguous::all) return problems.expect_contiguous(tensor.named);
  const int last = t.dims - 1;
  problems.add_unless(t.stride[last] == 1 || t.size[last] <= 1, [&] {
    return std::string(tensor.named.name) + ": expected a contiguous last dimension";
  });
}

void require_dropout(Problems& problems, const fa_tensor& rng_state, double dropout_p) {
  problems.add_unless(dropout_p >= 0 && dropout_p < 1, [&] {
    return std::string("dropout_p: expected ") + kExpectedDropoutP + ", got " + std::to_string(dropout_p);
  });
  problems.add_unless(given(rng_state) == (dropout_p > 0), [&] {
    return std::string(given(rng_state) ? "rng_state: expected none without dropout_p > 0"
                                        : "rng_state: expected together with dropout_p > 0");
  });
  if (given(rng_state)) problems.expect_dims({"rng_state", rng_state}, 1);
}

void require_scores(Problems& problems, float softmax_scale, float softcap) {
  problems.add_unless(std::isfinite(softmax_scale), [&] {
    return std::string("softmax_scale: expected ") + kExpectedSoftmaxScale + ", got " +
           std::to_string(softmax_scale);
  });
  problems.add_unless(std::isfinite(softcap) && softcap >= 0, [&] {
    return std::string("softcap: expected ") + kExpectedSoftcap + ", got " + std::to_string(softcap);
  });
}

std::int32_t window(std::int64_t keys) {
  return keys < 0 || keys >= kMaxLength ? kNoWindow : static_cast<std::int32_t>(keys);
}

void require_grouped_heads(Problems& problems, std::int64_t nheads, std::int64_t nheads_k) {
  problems.add_unless(nheads_k > 0 ? nheads % nheads_k == 0 : nheads == 0, [&] {
    return std::string("q: expected ") + kExpectedHeads + " k's " + std::to_string(nheads_k) + ", got " +
           std::to_string(nheads);
  });
}

void require_aligned(Problems& problems, const Named& rows) {
  problems.add_unless(aligned(rows.tensor), [&] {
    return std::string(rows.name) +
           ": expected a contiguous last dimension, an address and other strides that are multiples of " +
           std::to_string(kAlignedElements) + " elements, and rows less than 2^24 elements apart";
  });
}

void require_pages(Problems& problems, const char* name, std::int64_t page) {
  problems.add_unless(page > 0 && page % kPageMultiple == 0, [&] {
    return std::string(name) + ": expected " + kExpectedPages + " " + std::to_string(kPageMultiple) +
           " rows, got " + std::to_string(page);
  });
}

std::uint32_t dropout_below(double dropout_p) { return static_cast<std::uint32_t>(dropout_p * 4294967296.0); }

float dropout_scale(double dropout_p) { return static_cast<float>(1 / (1 - dropout_p)); }

Strides strides(const fa_tensor& t) {
  return {t.dims == 4 ? t.stride[0] : 0, t.stride[t.dims - 3], t.stride[t.dims - 2]};
}

}  // namespace fa
