#include "host/arguments/common_arguments.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace fa {

namespace {

constexpr std::uintptr_t kPartialAlignment = 16;  // bytes
constexpr const char* kCodes = "float8_e4m3fn, float8_e4m3fnuz, float8_e5m2 or int8";

std::int32_t dtype_of(Holds holds, const fa_tensor& q) {
  switch (holds) {
    case Holds::rows:
    case Holds::codes:
    case Holds::cache: return q.dtype;  // or codes, see require_type
    case Holds::fp32: return FA_FP32;
    case Holds::int32: return FA_INT32;
    case Holds::int64: return FA_INT64;
    case Holds::mask: return q.dtype;  // or another one, see require_type
  }
  return FA_OTHER_DTYPE;
}

// Bytes of an element. 0 for a dtype that masks cannot have.
std::uintptr_t mask_bytes(std::int32_t dtype) {
  switch (dtype) {
    case FA_BOOL: return 1;
    case FA_FP16:
    case FA_BF16: return 2;
    case FA_FP32: return 4;
    default: return 0;
  }
}

}  // namespace

void require_type(Problems& problems, const Described& tensor, const Named& like) {
  if (tensor.optional && !given(tensor.named.tensor)) return;
  const std::int32_t wanted = like.tensor.dtype, dtype = tensor.named.tensor.dtype;
  if (&tensor.named.tensor == &like.tensor) {
    return problems.add_unless(dtype == FA_FP16 || dtype == FA_BF16, [&] {
      return std::string(like.name) + ": expected dtype fp16 or bf16, got " + dtype_name(dtype);
    });
  }
  if (tensor.holds == Holds::mask) {
    problems.add_unless(dtype == FA_BOOL || dtype == FA_FP32 || dtype == wanted, [&] {
      return std::string(tensor.named.name) + ": expected dtype bool, fp32 or " + like.name + "'s " +
             dtype_name(wanted) + ", got " + dtype_name(dtype);
    });
  } else if (tensor.holds == Holds::codes) {
    problems.add_unless(is_coded(dtype), [&] {
      return std::string(tensor.named.name) + ": expected dtype " + kCodes + ", got " + dtype_name(dtype);
    });
  } else if (tensor.holds == Holds::cache) {
    problems.add_unless(dtype == wanted || is_coded(dtype), [&] {
      return std::string(tensor.named.name) + ": expected dtype " + dtype_name(wanted) + " like " +
             like.name + ", " + kCodes + ", got " + dtype_name(dtype);
    });
  } else {
    problems.expect_dtype(tensor.named, dtype_of(tensor.holds, like.tensor));
  }
  problems.expect_device(tensor.named, like);
}

std::uintptr_t element_bytes(std::int32_t dtype) {
  if (is_coded(dtype)) return 1;
  return dtype == FA_INT32 || dtype == FA_FP32 ? sizeof(std::int32_t) : kElementBytes;
}

std::int32_t row_blocks(std::int64_t rows, std::int64_t together) {
  constexpr std::int64_t kMost = 1 << 16;  // fills every GPU; with more rows, a block does several
  return static_cast<std::int32_t>(std::min((rows + together - 1) / together, kMost));
}

bool in_units(const fa_tensor& t, std::int64_t width) {
  bool good = reinterpret_cast<std::uintptr_t>(t.data) % (width * element_bytes(t.dtype)) == 0;
  // The stride of a dimension of one is never used.
  for (int i = 0; i < t.dims - 1; ++i) good = good && (t.size[i] <= 1 || t.stride[i] % width == 0);
  return good;
}

void require_descale_dims(Problems& problems, const fa_tensor& k, const fa_tensor& v) {
  for (const Named& each : {Named{"k_descale", k}, Named{"v_descale", v}}) {
    if (given(each.tensor)) problems.expect_dims(each, each.tensor.dims == 3 ? 3 : 2);
  }
  problems.add_unless(k.dims == v.dims, [] {
    return std::string("k_descale, v_descale: expected both or none, and both of a head or both of a key");
  });
}

void require_descale_shapes(Problems& problems, const fa_tensor& k, const fa_tensor& v, const Shape& of_heads,
                            const fa_tensor& cache) {
  for (const Named& each : {Named{"k_descale", k}, Named{"v_descale", v}}) {
    if (!given(each.tensor)) continue;
    problems.expect_shape(each, each.tensor.dims == 3 ? Shape(cache.size, cache.size + 3) : of_heads);
    problems.expect_address(each, sizeof(float));
  }
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

Shape mask_shape(const fa_tensor& mask, std::int64_t batch, std::int64_t nheads, std::int64_t rows_q,
                 std::int64_t seqlen_k) {
  Shape sizes = shape(mask);
  const std::int64_t whole[] = {batch, nheads, rows_q, mask_keys(seqlen_k)};
  for (int i = 0; i < 4; ++i) {
    if (i == 3 || sizes[i] != 1) sizes[i] = whole[i];
  }
  return sizes;
}

void require_readable_mask(Problems& problems, const fa_tensor& mask, float softmax_scale) {
  if (!given(mask)) return;
  const std::uintptr_t alignment = mask_bytes(mask.dtype) * kAlignedElements;
  bool good = reinterpret_cast<std::uintptr_t>(mask.data) % alignment == 0;
  for (int i = 0; i < 3; ++i) good = good && (mask.size[i] == 1 || mask.stride[i] % kAlignedElements == 0);
  const std::int64_t row = mask.size[2] == 1 ? 0 : mask.stride[2];
  problems.add_unless(good && row >= 0 && row < kMaxRowStride, [] {
    return "attn_mask: expected the address, in elements, and all strides but the last to be multiples of " +
           std::to_string(kAlignedElements) + ", and rows less than 2^24 elements apart";
  });
  const float scale = softmax_scale < 0 ? -softmax_scale : softmax_scale;
  problems.add_unless(mask.dtype == FA_BOOL || !(scale > 0 && scale < kLeastScale), [&] {
    return "softmax_scale: expected 0, or a magnitude of at least " + std::to_string(kLeastScale) +
           " beside an attn_mask that is added, got " + std::to_string(softmax_scale);
  });
}

MaskKind mask_kind(const fa_tensor& mask) {
  return mask.dtype == FA_BOOL   ? MaskKind::bytes
         : mask.dtype == FA_FP32 ? MaskKind::fp32
                                 : MaskKind::elements;
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

void require_parts(Problems& problems, const fa_tensor& partial_lse, const fa_tensor& partial_out) {
  if (!given(partial_lse)) return;
  const std::int64_t splits = partial_lse.size[0];
  problems.add_unless(splits >= 1,
                      [] { return std::string("partial_lse: expected at least 1 split, got 0"); });
  problems.expect_at_most("splits", splits, kMaxSplits);
  problems.add_unless(reinterpret_cast<std::uintptr_t>(partial_out.data) % kPartialAlignment == 0,
                      [] { return std::string("partial_out: expected a 16-byte aligned address"); });
}

void require_aligned(Problems& problems, const Named& rows) {
  problems.add_unless(aligned(rows.tensor), [&] {
    const std::int64_t unit = is_coded(rows.tensor.dtype) ? 2 * kAlignedElements : kAlignedElements;
    return std::string(rows.name) +
           ": expected a contiguous last dimension, an address and other strides that are multiples of " +
           std::to_string(unit) + " elements, and rows less than 2^24 elements apart";
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
