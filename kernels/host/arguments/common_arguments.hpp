// Shared by forward and backward calls: checks of their numbers, and conversion for the kernels.
#pragma once

#include <cstdint>

#include "device/call/params.hpp"
#include "host/arguments/call_tensors.hpp"

namespace fa {

inline constexpr std::uintptr_t kElementBytes = 2;  // of q, k, v and tensors of their shape

// How codes of 8 bits are read.
constexpr CodeFormat code_format(std::int32_t dtype) { return static_cast<CodeFormat>(dtype - FA_E4M3FN); }

// Throws unless the sizes, strides and addresses of the call's tensors are safe for arithmetic.
template <class Call>
void require_well_formed(const Call& call, const char* function) {
  Problems problems;
  for (const Described& each : tensors_of(call)) problems.expect_well_formed(each.named);
  problems.raise_if_any(function);
}

// `like`: the tensor whose dtype rows have.
void require_type(Problems& problems, const Described& tensor, const Named& like);

// Of rows, codes and integers of 32 bits.
std::uintptr_t element_bytes(std::int32_t dtype);

// a * b, or `most` + 1 if that is less.
constexpr std::int64_t product(std::int64_t a, std::int64_t b, std::int64_t most) {
  return a > 0 && b > most / a ? most + 1 : a * b;
}

// The blocks of a grid for rows, of which a block does some `together`.
std::int32_t row_blocks(std::int64_t rows, std::int64_t together);

// Whether rows begin at multiples of `width` elements.
bool in_units(const fa_tensor& tensor, std::int64_t width);

void require_contiguous(Problems& problems, const Described& tensor);

// Required tensors are present, and all present tensors have their described dtype and are on q's device.
template <class Call>
void require_types(Problems& problems, const Call& call) {
  for (const Described& each : tensors_of(call)) require_type(problems, each, {"q", call.q});
}

// k_descale and v_descale of a cache: both or none, of heads or of keys, with 2 or 3 dimensions.
void require_descale_dims(Problems& problems, const fa_tensor& k, const fa_tensor& v);

// Their shapes: (batch, nheads_k), or the first dimensions of the cache.
void require_descale_shapes(Problems& problems, const fa_tensor& k, const fa_tensor& v, const Shape& of_heads,
                            const fa_tensor& cache);

// Of a cache of 8 bits, in the fields shared by its kernels.
template <class Params>
void set_codes(Params& p, const fa_tensor& cache, const fa_tensor& k, const fa_tensor& v) {
  p.k_descale = static_cast<decltype(p.k_descale)>(k.data);
  p.v_descale = static_cast<decltype(p.v_descale)>(v.data);
  p.per_key = k.dims == 3;
  const auto row = [&](const fa_tensor& t) { return p.per_key ? t.stride[1] : 0; };
  const auto head = [](const fa_tensor& t) { return given(t) ? t.stride[t.dims - 1] : 0; };
  p.k_descale_batch = k.stride[0], p.k_descale_row = row(k), p.k_descale_head = head(k);
  p.v_descale_batch = v.stride[0], p.v_descale_row = row(v), p.v_descale_head = head(v);
  p.format = static_cast<std::int32_t>(code_format(cache.dtype));
}

template <class Call>
void require_contiguous(Problems& problems, const Call& call) {
  for (const Described& each : tensors_of(call)) require_contiguous(problems, each);
}

// The generator's key is present exactly if dropout needs it.
void require_dropout(Problems& problems, const fa_tensor& rng_state, double dropout_p);

void require_scores(Problems& problems, float softmax_scale, float softcap);
void require_grouped_heads(Problems& problems, std::int64_t nheads, std::int64_t nheads_k);

// Rows readable by the kernels for one head dim.
void require_aligned(Problems& problems, const Named& rows);

// The results of parts of the keys, if any.
void require_parts(Problems& problems, const fa_tensor& partial_lse, const fa_tensor& partial_out);

// For the tensor `name`, in rows.
void require_pages(Problems& problems, const char* name, std::int64_t page);

// The required shape of an attn_mask: its own sizes where these may be 1.
Shape mask_shape(const fa_tensor& mask, std::int64_t batch, std::int64_t nheads, std::int64_t rows_q,
                 std::int64_t seqlen_k);

// Address and strides readable by kernels, and a scale by which they can divide the mask.
void require_readable_mask(Problems& problems, const fa_tensor& mask, float softmax_scale);

MaskKind mask_kind(const fa_tensor& mask);

// As passed to the kernels. Dimensions of 1 get stride 0: the same for all.
template <class Params>
void set_mask(Params& p, const fa_tensor& mask) {
  const auto stride = [&](int i) { return mask.size[i] == 1 ? 0 : mask.stride[i]; };
  p.mask = mask.data, p.mask_batch = stride(0), p.mask_head = stride(1), p.mask_row = stride(2);
  p.mask_kind = static_cast<std::int32_t>(mask_kind(mask));
}

// As passed to the kernels, in 32 bits. A window as wide as the longest possible sequence hides nothing.
// Python has already removed windows that flash_attn's functions treat as unbounded, as wide as the call's
// keys (normal_form.py).
std::int32_t window(std::int64_t keys);

// In double and truncated, as in reference/philox.py: both must drop the same probabilities.
std::uint32_t dropout_below(double dropout_p);
float dropout_scale(double dropout_p);

// The options of a call, in the fields shared by both kinds of kernels.
template <class Params, class Call>
void set_options(Params& params, const Call& call) {
  params.window_left = window(call.window_left);
  params.window_right = window(call.window_right);
  params.scale = call.softmax_scale;
  params.softcap = call.softcap;
  params.dropout_below = dropout_below(call.dropout_p);
  params.dropout_scale = dropout_scale(call.dropout_p);
}

template <class T>
const T* data(const fa_tensor& tensor) {
  return given(tensor) ? static_cast<const T*>(tensor.data) : nullptr;
}

struct Strides {
  std::int64_t batch, row, head;
};

// For (batch, rows, heads, head_dim), or without batch.
Strides strides(const fa_tensor& tensor);

}  // namespace fa
