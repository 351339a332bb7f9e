// The memory of results, made by PyTorch's allocator, for the operators of [makers.*] in calls.toml.
//
// Shapes follow from the call's other tensors. Those may be wrong: the library checks the call afterwards, so
// here wrong shapes only have to give some memory.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <tuple>
#include <utility>

#include "host/api/fa_rocm.h"
#include "host/plan/paths.hpp"

namespace {

using torch::stable::Tensor;

// Where tensors of a call are made, and their two dtypes, as PyTorch numbers them.
struct Maker {
  std::int32_t device_type, device, rows, fp32;
};

Maker maker_like(const Tensor& q) {
  Maker maker{0, q.get_device_index(), 0, aoti_torch_dtype_float32()};
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(q.get(), &maker.device_type));
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(q.get(), &maker.rows));
  return maker;
}

// PyTorch's own words are lost on the way through its C functions. Python reads these, and asks again by
// itself.
constexpr const char* kNoMemory = "PyTorch has no memory for the results";

fa_tensor of_sizes(std::initializer_list<std::int64_t> sizes) {
  fa_tensor shape{};
  shape.dims = static_cast<std::int32_t>(sizes.size());
  std::copy(sizes.begin(), sizes.end(), shape.size);
  return shape;
}

// Makes `tensor` contiguous. Returns the number of its elements.
std::int64_t lay_out(const Maker& maker, fa_tensor& tensor, fa_dtype dtype) {
  std::int64_t stride = 1, elements = 1;
  for (std::int32_t i = tensor.dims; i-- > 0;) {
    tensor.stride[i] = stride;
    stride *= std::max<std::int64_t>(tensor.size[i], 1);
    elements *= tensor.size[i];
  }
  tensor.dtype = dtype, tensor.device = maker.device;
  return elements;
}

// Uninitialised memory for a contiguous tensor of the sizes in `tensor`, which then describes it.
Tensor made(const Maker& maker, fa_tensor& tensor, fa_dtype dtype) {
  lay_out(maker, tensor, dtype);
  AtenTensorHandle handle = nullptr;
  if (aoti_torch_empty_strided(tensor.dims, tensor.size, tensor.stride,
                               dtype == FA_FP32 ? maker.fp32 : maker.rows, maker.device_type, maker.device,
                               &handle) != AOTI_TORCH_SUCCESS) {
    throw std::runtime_error(kNoMemory);
  }
  Tensor memory(handle);
  tensor.data = memory.mutable_data_ptr();
  return memory;
}

// Likewise for two tensors of FA_FP32, one behind the other.
Tensor made_together(const Maker& maker, fa_tensor& first, fa_tensor& second) {
  const std::int64_t elements = lay_out(maker, first, FA_FP32);
  fa_tensor both = of_sizes({elements + lay_out(maker, second, FA_FP32)});
  Tensor memory = made(maker, both, FA_FP32);
  first.data = both.data, second.data = static_cast<float*>(both.data) + elements;
  return memory;
}

void zero(const Tensor& tensor) { STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_zero_(tensor.get())); }

// The sizes of `tensor`, the last one that of `last`.
fa_tensor like(const fa_tensor& tensor, const fa_tensor& last) {
  fa_tensor shape = tensor;
  if (tensor.dims > 0 && last.dims > 0) shape.size[tensor.dims - 1] = last.size[last.dims - 1];
  return shape;
}

fa_tensor lse_shape(const fa_tensor& q) {
  if (q.dims == 4) return of_sizes({q.size[0], q.size[2], q.size[1]});
  return of_sizes({q.size[1], q.size[0]});
}

struct AttendMemory {
  std::tuple<Tensor, Tensor> results;
  std::optional<Tensor> parts;
};

// Kernels skip packed rows outside of all sequences, so all rows begin with the results of such a row.
AttendMemory attend_memory(fa_fwd_call& call, const Tensor& q, std::int64_t splits) {
  const Maker maker = maker_like(q);
  call.out = like(call.q, call.v), call.lse = lse_shape(call.q);
  AttendMemory memory{
      {made(maker, call.out, static_cast<fa_dtype>(call.q.dtype)), made(maker, call.lse, FA_FP32)}, {}};
  if (call.cu_seqlens_q.dims != 0) {
    zero(std::get<0>(memory.results));
    torch::stable::fill_(std::get<1>(memory.results), std::numeric_limits<double>::infinity());
  }
  if (splits > 1) {
    call.partial_lse.size[0] = splits, call.partial_lse.dims = call.lse.dims + 1;
    std::copy_n(call.lse.size, call.lse.dims, call.partial_lse.size + 1);
    call.partial_out = call.partial_lse;
    call.partial_out.size[call.partial_out.dims++] = call.q.size[call.q.dims - 1];
    memory.parts = made_together(maker, call.partial_out, call.partial_lse);
  }
  return memory;
}

struct GradientsMemory {
  std::tuple<Tensor, Tensor, Tensor> results;
  Tensor between;
};

// The elements of dq_sums.
std::int64_t sums_of(const fa_bwd_call& call) {
  const bool ragged = call.cu_seqlens_q.dims != 0;
  const std::int64_t* sizes = call.q.size + (ragged ? 0 : 1);
  const std::int64_t batch = ragged ? call.cu_seqlens_q.size[0] - 1 : call.q.size[0];
  return std::max<std::int64_t>(fa_bwd_sums(ragged, batch, sizes[0], sizes[1], sizes[2]), 0);
}

// Likewise. The fused kernels add dq up in memory that begins with 0.
GradientsMemory gradients_memory(fa_bwd_call& call, const Tensor& q) {
  const Maker maker = maker_like(q);
  const auto rows = static_cast<fa_dtype>(call.q.dtype);
  call.dq = call.q, call.dk = call.k, call.dv = call.v, call.delta = lse_shape(call.q);
  std::tuple<Tensor, Tensor, Tensor> results{made(maker, call.dq, rows), made(maker, call.dk, rows),
                                             made(maker, call.dv, rows)};
  if (call.cu_seqlens_q.dims != 0) std::apply([](const auto&... each) { (zero(each), ...); }, results);
  if (std::string_view(call.path) != fa::name(fa::BwdPath::fused)) {
    return {std::move(results), made(maker, call.delta, FA_FP32)};
  }
  call.dq_sums = of_sizes({sums_of(call)});
  Tensor between = made_together(maker, call.dq_sums, call.delta);
  zero(between);
  return {std::move(results), std::move(between)};
}

}  // namespace
