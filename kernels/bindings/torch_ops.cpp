// PyTorch operators on top of fa_rocm.h, through the stable ABI of the oldest supported PyTorch.
// Only the files in this folder include PyTorch.
//
//   flash_attn_rocm::fwd          key CUDA, the dispatch key of ROCm's PyTorch
//   flash_attn_rocm::attend       key CUDA: fwd, with memory of its own for the results
//   flash_attn_rocm::bwd          key CUDA: the gradients of q, k and v
//   flash_attn_rocm::gradients    key CUDA: bwd, likewise
//   flash_attn_rocm::append       key CUDA: new keys and values into a cache
//   flash_attn_rocm::widen        key CUDA: a cache of 8 bits as 16 bits, dense
//   flash_attn_rocm::mla          key CUDA: few queries of multi-head latent attention
//   flash_attn_rocm::fwd_fp8      key CUDA: out and the log-sum-exp of q, k and v in fp8
//   flash_attn_rocm::fwd_int8     key CUDA: likewise of q, k and v that it quantises to 8 bits
//   flash_attn_rocm::plan_mla     no tensors: as plan
//   flash_attn_rocm::plan_bwd     no tensors: as plan
//   flash_attn_rocm::bwd_sums     no tensors: the elements of dq_sums
//   flash_attn_rocm::plan         no tensors: path ("" without a kernel), parts of the keys, the reason
//   flash_attn_rocm::instances    no tensors: the registry as JSON
//   flash_attn_rocm::gpus         no tensors: the supported GPUs and the archs of their machine code, as JSON
//   flash_attn_rocm::limits       no tensors: the limits of kernels, as JSON
//   flash_attn_rocm::compute_units  no tensors: number of a device's compute units
//   flash_attn_rocm::device_arch  no tensors: a device's arch as the HIP runtime reports it
//   flash_attn_rocm::replace      code in a tensor on the CPU: a kernel with another row of tiles
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/DeviceType.h>
#include <torch/headeronly/core/ScalarType.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>

#include "bindings/current_stream.hpp"
#include "bindings/memory.hpp"
#include "host/api/fa_rocm.h"

namespace {

using torch::headeronly::DeviceType;
using torch::headeronly::ScalarType;
using torch::stable::Tensor;

fa_dtype dtype_of(const Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case ScalarType::Half: return FA_FP16;
    case ScalarType::BFloat16: return FA_BF16;
    case ScalarType::Float: return FA_FP32;
    case ScalarType::Int: return FA_INT32;
    case ScalarType::Long: return FA_INT64;
    case ScalarType::Bool: return FA_BOOL;
    case ScalarType::Float8_e4m3fn: return FA_E4M3FN;
    case ScalarType::Float8_e4m3fnuz: return FA_E4M3FNUZ;
    case ScalarType::Float8_e5m2: return FA_E5M2;
    case ScalarType::Char: return FA_INT8;
    default: return FA_OTHER_DTYPE;
  }
}

fa_tensor describe(const Tensor& tensor, const char* name) {
  fa_tensor out{};
  if (tensor.dim() > FA_MAX_DIMS) {
    throw std::runtime_error(std::string(name) + ": expected at most " + std::to_string(FA_MAX_DIMS) +
                             " dimensions, got " + std::to_string(tensor.dim()));
  }
  out.data = const_cast<void*>(tensor.const_data_ptr());
  out.dtype = dtype_of(tensor);
  out.device = tensor.get_device_index();
  out.dims = static_cast<std::int32_t>(tensor.dim());
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  std::copy(sizes.begin(), sizes.end(), out.size);
  std::copy(strides.begin(), strides.end(), out.stride);
  return out;
}

// PyTorch's current stream on the tensor's device. Tensors in host memory get the default stream (a fake HIP
// runtime is driven this way). Some builds of PyTorch lack the function.
//
// aoti_torch_check puts the line numbers from here on into the library.
void* stream_of(const Tensor& tensor) {
  if (tensor.device().type() != DeviceType::CUDA) return nullptr;
  const CurrentStream current_stream = find_current_stream();
  if (current_stream == nullptr) {
    throw std::runtime_error(
        "this PyTorch does not tell its current GPU stream (aoti_torch_get_current_cuda_stream is missing)\n"
        "  next: install a ROCm build of PyTorch 2.10 or newer");
  }
  void* stream = nullptr;
  if (current_stream(tensor.get_device_index(), &stream) != AOTI_TORCH_SUCCESS) {
    throw std::runtime_error("PyTorch could not tell the current stream of device " +
                             std::to_string(tensor.get_device_index()));
  }
  return stream;
}

void require_ok(fa_status status, const fa_message& message) {
  if (status != FA_OK) throw std::runtime_error(message.text);
}

// An absent argument has no dimensions.
fa_tensor describe(const std::optional<Tensor>& tensor, const char* name) {
  if (!tensor.has_value()) return fa_tensor{};
  const fa_tensor out = describe(*tensor, name);
  if (out.dims == 0) throw std::runtime_error(std::string(name) + ": expected at least 1 dimension");
  return out;
}

fa_tensor describe_written(const std::optional<Tensor>& tensor, const char* name) {
  fa_tensor described = describe(tensor, name);
  if (tensor.has_value()) described.data = tensor->mutable_data_ptr();
  return described;
}

template <class Call>
void run(fa_status (*function)(const Call*, fa_message*), const Call& call) {
  fa_message message;
  const fa_status status = function(&call, &message);
  require_ok(status, message);
}

// Path, parts and reason of a plan: Python's Plan. The path is "" without a kernel.
using Planned = std::tuple<std::string, std::int64_t, std::string>;

template <class Call>
Planned planned(fa_status (*function)(const Call*, fa_plan_result*, fa_message*), const Call& call) {
  fa_plan_result plan{};
  fa_message message;
  const fa_status status = function(&call, &plan, &message);
  if (status != FA_UNSUPPORTED) require_ok(status, message);
  return {plan.path, plan.splits, message.text};
}

Planned answered(const fa_plan_call& call) { return planned(&fa_plan, call); }
Planned answered(const fa_plan_mla_call& call) { return planned(&fa_plan_mla, call); }
Planned answered(const fa_plan_bwd_call& call) { return planned(&fa_plan_bwd, call); }

#include "generated/host/operators.inc"

std::int64_t bwd_sums(bool ragged, std::int64_t batch, std::int64_t rows_q, std::int64_t nheads,
                      std::int64_t head_dim) {
  return fa_bwd_sums(ragged, batch, rows_q, nheads, head_dim);
}

std::int64_t compute_units(std::int64_t device) {
  fa_message message;
  std::int32_t units = 0;
  require_ok(fa_device_compute_units(static_cast<std::int32_t>(device), &units, &message), message);
  return units;
}

std::string instances() {
  const char* text = fa_instances();
  if (text == nullptr) throw std::bad_alloc();
  return text;
}

std::string gpus() {
  const char* text = fa_gpus();
  if (text == nullptr) throw std::bad_alloc();
  return text;
}

std::string limits() {
  const char* text = fa_limits();
  if (text == nullptr) throw std::bad_alloc();
  return text;
}

std::string device_arch(std::int64_t device) {
  fa_message message;
  const fa_status status = fa_device_arch(static_cast<std::int32_t>(device), &message);
  require_ok(status, message);
  return message.text;
}

// `code` lies in host memory: the HIP runtime copies it.
void replace(std::int64_t device, const std::string& kernel, const std::string& row, const Tensor& code,
             std::int64_t place, std::int64_t rows, std::int64_t threads, const std::string& regime) {
  const bool on_cpu = code.device().type() == DeviceType::CPU;
  if (!on_cpu || code.scalar_type() != ScalarType::Byte || !code.is_contiguous()) {
    throw std::runtime_error(
        "flash_attn_rocm::replace: code: expected a contiguous tensor of uint8 on the CPU");
  }
  fa_candidate candidate{};
  candidate.kernel = kernel.c_str(), candidate.row = row.c_str();
  candidate.code = code.const_data_ptr(), candidate.bytes = code.numel();
  candidate.device = static_cast<std::int32_t>(device);
  candidate.place = place, candidate.rows = rows, candidate.threads = threads;
  candidate.regime = regime.c_str();
  run(&fa_replace, candidate);
}

using Boxed = void (*)(StableIValue*, std::uint64_t, std::uint64_t);

// A plain array: nothing to destroy at thread exit or while an exception passes.
thread_local char failure[sizeof(fa_message::text)];

void keep(const char* text) {
  std::strncpy(failure, text, sizeof failure - 1);
  failure[sizeof failure - 1] = '\0';
}

template <Boxed kernel>
[[gnu::noinline]] bool succeeds(StableIValue* stack, std::uint64_t inputs, std::uint64_t outputs) noexcept {
  try {
    kernel(stack, inputs, outputs);
    return true;
  } catch (const std::exception& error) {
    keep(error.what());
  } catch (...) {
    keep("an exception that is not a std::exception");
  }
  return false;
}

// This library has its own C++ runtime, so its exceptions must not reach PyTorch's. libtorch throws the
// exception for Python. It passes only this frame, which has nothing to destroy.
template <Boxed kernel>
void boxed(StableIValue* stack, std::uint64_t inputs, std::uint64_t outputs) {
  if (!succeeds<kernel>(stack, inputs, outputs)) {
    aoti_torch_check(false, "flash_attn_rocm", __FILE__, __LINE__, failure);
  }
}

}  // namespace

STABLE_TORCH_LIBRARY(flash_attn_rocm, library) {
  library.def(kFwdSchema);
  library.def(kAttendSchema);
  library.def(kBwdSchema);
  library.def(kGradientsSchema);
  library.def(kAppendSchema);
  library.def(kWidenSchema);
  library.def(kMlaSchema);
  library.def(kFwdFp8Schema);
  library.def(kFwdInt8Schema);
  library.def(kPlanSchema);
  library.def(kPlanMlaSchema);
  library.def(kPlanBwdSchema);
  library.def("bwd_sums(bool ragged, int batch, int rows_q, int nheads, int head_dim) -> int");
  library.def("compute_units(int device) -> int");
  library.def("instances() -> str");
  library.def("gpus() -> str");
  library.def("limits() -> str");
  library.def("device_arch(int device) -> str");
  library.def(
      "replace(int device, str kernel, str row, Tensor code, int place, int rows, int threads, str regime) "
      "-> ()");
}

STABLE_TORCH_LIBRARY_IMPL(flash_attn_rocm, CUDA, library) {
  library.impl("fwd", &boxed<TORCH_BOX(&fwd)>);
  library.impl("attend", &boxed<TORCH_BOX(&attend)>);
  library.impl("bwd", &boxed<TORCH_BOX(&bwd)>);
  library.impl("gradients", &boxed<TORCH_BOX(&gradients)>);
  library.impl("append", &boxed<TORCH_BOX(&append)>);
  library.impl("widen", &boxed<TORCH_BOX(&widen)>);
  library.impl("mla", &boxed<TORCH_BOX(&mla)>);
  library.impl("fwd_fp8", &boxed<TORCH_BOX(&fwd_fp8)>);
  library.impl("fwd_int8", &boxed<TORCH_BOX(&fwd_int8)>);
}

STABLE_TORCH_LIBRARY_IMPL(flash_attn_rocm, CompositeExplicitAutograd, library) {
  library.impl("plan_bwd", &boxed<TORCH_BOX(&plan_bwd)>);
  library.impl("bwd_sums", &boxed<TORCH_BOX(&bwd_sums)>);
  library.impl("plan", &boxed<TORCH_BOX(&plan)>);
  library.impl("plan_mla", &boxed<TORCH_BOX(&plan_mla)>);
  library.impl("compute_units", &boxed<TORCH_BOX(&compute_units)>);
  library.impl("instances", &boxed<TORCH_BOX(&instances)>);
  library.impl("gpus", &boxed<TORCH_BOX(&gpus)>);
  library.impl("limits", &boxed<TORCH_BOX(&limits)>);
  library.impl("device_arch", &boxed<TORCH_BOX(&device_arch)>);
  library.impl("replace", &boxed<TORCH_BOX(&replace)>);
}
