// PyTorch operators on top of fa_rocm.h, through PyTorch's stable ABI (TORCH_TARGET_VERSION 2.10).
// The only file that includes PyTorch.
//
//   flash_attn_rocm::fwd          key CUDA, which is where ROCm's PyTorch dispatches
//   flash_attn_rocm::bwd          key CUDA: the gradients of q, k and v
//   flash_attn_rocm::append       key CUDA: new keys and values into a cache
//   flash_attn_rocm::explain_bwd  no tensors: "" when kernels compute gradients, else why not
//   flash_attn_rocm::plan_bwd     no tensors: "<path> <why>"
//   flash_attn_rocm::bwd_sums     no tensors: the elements of dq_sums
//   flash_attn_rocm::plan         no tensors: "<path> <splits> <why>", or "unsupported 0 <why>"
//   flash_attn_rocm::instances    no tensors: the registry as JSON
//   flash_attn_rocm::gpus         no tensors: which GPUs they serve, and with whose machine code, as JSON
//   flash_attn_rocm::limits       no tensors: what kernels can take, as JSON
//   flash_attn_rocm::compute_units  no tensors: how many a device has
//   flash_attn_rocm::device_arch  no tensors: a device's arch as the HIP runtime reports it
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

#include "fa_rocm.h"

// Not in every build of PyTorch, and its header declares it only under build macros.
extern "C" __attribute__((weak)) AOTITorchError aoti_torch_get_current_cuda_stream(std::int32_t device,
                                                                                   void** stream);

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

// PyTorch's current stream of the tensor's device. Tensors in host memory have none: they get the
// default stream (that is how a fake HIP runtime is driven).
void* stream_of(const Tensor& tensor) {
  if (tensor.device().type() != DeviceType::CUDA) return nullptr;
  if (aoti_torch_get_current_cuda_stream == nullptr) {
    throw std::runtime_error(
        "this PyTorch does not tell its current GPU stream (aoti_torch_get_current_cuda_stream is missing)\n"
        "  next: install a ROCm build of PyTorch 2.10 or newer");
  }
  void* stream = nullptr;
  if (aoti_torch_get_current_cuda_stream(tensor.get_device_index(), &stream) != AOTI_TORCH_SUCCESS) {
    throw std::runtime_error("PyTorch could not tell the current stream of device " +
                             std::to_string(tensor.get_device_index()));
  }
  return stream;
}

void require_ok(fa_status status, const fa_message& message) {
  if (status != FA_OK) throw std::runtime_error(message.text);
}

// An argument that is not there has no dimensions.
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

// What fwd and bwd have in common.
template <class Call>
void describe_options(Call& call, std::int64_t max_seqlen_q, std::int64_t max_seqlen_k, double softmax_scale,
                      std::int64_t window_left, std::int64_t window_right, double softcap, double dropout_p) {
  call.max_seqlen_q = max_seqlen_q;
  call.max_seqlen_k = max_seqlen_k;
  call.softmax_scale = static_cast<float>(softmax_scale);
  call.window_left = window_left;
  call.window_right = window_right;
  call.softcap = static_cast<float>(softcap);
  call.dropout_p = dropout_p;
}

void fwd(Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, std::optional<Tensor> alibi_slopes,
         std::optional<Tensor> cu_seqlens_q, std::optional<Tensor> cu_seqlens_k,
         std::optional<Tensor> seqused_k, std::optional<Tensor> leftpad_k, std::optional<Tensor> block_table,
         std::optional<Tensor> cache_batch_idx, std::optional<Tensor> rng_state,
         std::optional<Tensor> partial_out, std::optional<Tensor> partial_lse, std::int64_t max_seqlen_q,
         std::int64_t max_seqlen_k, double softmax_scale, std::int64_t window_left, std::int64_t window_right,
         double softcap, double dropout_p) {
  fa_fwd_call call{};
  call.q = describe(q, "q");
  call.k = describe(k, "k");
  call.v = describe(v, "v");
  call.out = describe_written(out, "out");
  call.lse = describe_written(lse, "lse");
  call.alibi_slopes = describe(alibi_slopes, "alibi_slopes");
  call.cu_seqlens_q = describe(cu_seqlens_q, "cu_seqlens_q");
  call.cu_seqlens_k = describe(cu_seqlens_k, "cu_seqlens_k");
  call.seqused_k = describe(seqused_k, "seqused_k");
  call.leftpad_k = describe(leftpad_k, "leftpad_k");
  call.block_table = describe(block_table, "block_table");
  call.cache_batch_idx = describe(cache_batch_idx, "cache_batch_idx");
  call.rng_state = describe(rng_state, "rng_state");
  call.partial_out = describe_written(partial_out, "partial_out");
  call.partial_lse = describe_written(partial_lse, "partial_lse");
  describe_options(call, max_seqlen_q, max_seqlen_k, softmax_scale, window_left, window_right, softcap,
                   dropout_p);
  call.stream = stream_of(q);
  fa_message message;
  const fa_status status = fa_fwd(&call, &message);
  require_ok(status, message);
}

void bwd(Tensor q, Tensor k, Tensor v, Tensor out, Tensor dout, Tensor lse, Tensor dq, Tensor dk, Tensor dv,
         Tensor delta, std::optional<Tensor> dq_sums, std::optional<Tensor> alibi_slopes,
         std::optional<Tensor> cu_seqlens_q, std::optional<Tensor> cu_seqlens_k,
         std::optional<Tensor> rng_state, std::int64_t max_seqlen_q, std::int64_t max_seqlen_k,
         double softmax_scale, std::int64_t window_left, std::int64_t window_right, double softcap,
         double dropout_p) {
  fa_bwd_call call{};
  call.q = describe(q, "q");
  call.k = describe(k, "k");
  call.v = describe(v, "v");
  call.out = describe(out, "out");
  call.dout = describe(dout, "dout");
  call.lse = describe(lse, "lse");
  call.dq = describe_written(dq, "dq");
  call.dk = describe_written(dk, "dk");
  call.dv = describe_written(dv, "dv");
  call.delta = describe_written(delta, "delta");
  call.dq_sums = describe_written(dq_sums, "dq_sums");
  call.alibi_slopes = describe(alibi_slopes, "alibi_slopes");
  call.cu_seqlens_q = describe(cu_seqlens_q, "cu_seqlens_q");
  call.cu_seqlens_k = describe(cu_seqlens_k, "cu_seqlens_k");
  call.rng_state = describe(rng_state, "rng_state");
  describe_options(call, max_seqlen_q, max_seqlen_k, softmax_scale, window_left, window_right, softcap,
                   dropout_p);
  call.stream = stream_of(q);
  fa_message message;
  const fa_status status = fa_bwd(&call, &message);
  require_ok(status, message);
}

void append(Tensor q, Tensor k_cache, Tensor v_cache, Tensor k, Tensor v, std::optional<Tensor> cos,
            std::optional<Tensor> sin, Tensor cache_seqlens, std::optional<Tensor> block_table,
            std::optional<Tensor> cache_batch_idx, std::optional<Tensor> q_out, bool interleaved,
            bool advances) {
  fa_append_call call{};
  call.q = describe(q, "q");
  call.k_cache = describe_written(k_cache, "k_cache");
  call.v_cache = describe_written(v_cache, "v_cache");
  call.k = describe(k, "k");
  call.v = describe(v, "v");
  call.cos = describe(cos, "cos");
  call.sin = describe(sin, "sin");
  call.cache_seqlens = describe(cache_seqlens, "cache_seqlens");
  call.block_table = describe(block_table, "block_table");
  call.cache_batch_idx = describe(cache_batch_idx, "cache_batch_idx");
  call.q_out = describe_written(q_out, "q_out");
  call.interleaved = interleaved;
  call.advances = advances;
  call.stream = stream_of(q);
  fa_message message;
  const fa_status status = fa_append(&call, &message);
  require_ok(status, message);
}

int bounded(std::int64_t head_dim) {
  return static_cast<int>(std::clamp<std::int64_t>(head_dim, -1, INT32_MAX));
}

std::string explain_bwd(std::string arch, std::string dtype, std::int64_t head_dim) {
  fa_message message;
  const fa_status status = fa_explain_bwd(arch.c_str(), dtype.c_str(), bounded(head_dim), &message);
  if (status != FA_UNSUPPORTED) require_ok(status, message);
  return message.text;
}

std::string plan_bwd(std::string arch, std::string dtype, std::int64_t head_dim, bool featured,
                     bool deterministic, std::string wanted) {
  const fa_bwd_plan_call call{arch.c_str(), dtype.c_str(), bounded(head_dim),
                              featured,     deterministic, wanted.c_str()};
  fa_message message;
  fa_bwd_path path{};
  const fa_status status = fa_bwd_plan(&call, &path, &message);
  require_ok(status, message);
  return std::string(path == FA_BWD_PATH_FUSED ? "fused " : "split ") + message.text;
}

std::int64_t bwd_sums(bool ragged, std::int64_t batch, std::int64_t rows_q, std::int64_t nheads,
                      std::int64_t head_dim) {
  return fa_bwd_sums(ragged, batch, rows_q, nheads, head_dim);
}

std::string plan(std::string arch, std::string dtype, std::int64_t head_dim, std::int64_t batch,
                 std::int64_t max_seqlen_q, std::int64_t max_seqlen_k, std::int64_t nheads,
                 std::int64_t nheads_k, std::int64_t compute_units, std::int64_t num_splits, bool dropout,
                 bool aligned) {
  const fa_plan_call call{arch.c_str(), dtype.c_str(), head_dim,      batch,      max_seqlen_q, max_seqlen_k,
                          nheads,       nheads_k,      compute_units, num_splits, dropout,      aligned};
  fa_plan_result result{};
  fa_message message;
  const fa_status status = fa_plan(&call, &result, &message);
  if (status == FA_UNSUPPORTED) return std::string("unsupported 0 ") + message.text;
  require_ok(status, message);
  constexpr const char* kPaths[] = {"matrix", "tiled", "split", "reference"};
  return std::string(kPaths[result.path]) + " " + std::to_string(result.splits) + " " + message.text;
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

// This library has its own C++ runtime, so its exceptions must not reach PyTorch's: the exception that
// Python sees is thrown by libtorch, and passes only this frame, which has nothing to destroy.
template <Boxed kernel>
void boxed(StableIValue* stack, std::uint64_t inputs, std::uint64_t outputs) {
  if (!succeeds<kernel>(stack, inputs, outputs)) {
    aoti_torch_check(false, "flash_attn_rocm", __FILE__, __LINE__, failure);
  }
}

}  // namespace

STABLE_TORCH_LIBRARY(flash_attn_rocm, library) {
  library.def(
      "fwd(Tensor q, Tensor k, Tensor v, Tensor(a!) out, Tensor(b!) lse, Tensor? alibi_slopes, "
      "Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? seqused_k, Tensor? leftpad_k, "
      "Tensor? block_table, Tensor? cache_batch_idx, Tensor? rng_state, Tensor(c!)? partial_out, "
      "Tensor(d!)? partial_lse, SymInt max_seqlen_q, SymInt max_seqlen_k, float softmax_scale, "
      "SymInt window_left, SymInt window_right, float softcap, float dropout_p) -> ()");
  library.def(
      "bwd(Tensor q, Tensor k, Tensor v, Tensor out, Tensor dout, Tensor lse, Tensor(a!) dq, Tensor(b!) dk, "
      "Tensor(c!) dv, Tensor(d!) delta, Tensor(e!)? dq_sums, Tensor? alibi_slopes, Tensor? cu_seqlens_q, "
      "Tensor? cu_seqlens_k, "
      "Tensor? rng_state, SymInt max_seqlen_q, SymInt max_seqlen_k, float softmax_scale, "
      "SymInt window_left, SymInt window_right, float softcap, float dropout_p) -> ()");
  library.def(
      "append(Tensor q, Tensor(a!) k_cache, Tensor(b!) v_cache, Tensor k, Tensor v, Tensor? cos, "
      "Tensor? sin, Tensor cache_seqlens, Tensor? block_table, Tensor? cache_batch_idx, "
      "Tensor(c!)? q_out, bool interleaved, bool advances) -> ()");
  library.def("explain_bwd(str arch, str dtype, int head_dim) -> str");
  library.def(
      "plan_bwd(str arch, str dtype, int head_dim, bool featured, bool deterministic, str wanted) -> str");
  library.def("bwd_sums(bool ragged, int batch, int rows_q, int nheads, int head_dim) -> int");
  library.def(
      "plan(str arch, str dtype, int head_dim, int batch, int max_seqlen_q, int max_seqlen_k, int nheads, "
      "int nheads_k, int compute_units, int num_splits, bool dropout, bool aligned) -> str");
  library.def("compute_units(int device) -> int");
  library.def("instances() -> str");
  library.def("gpus() -> str");
  library.def("limits() -> str");
  library.def("device_arch(int device) -> str");
}

STABLE_TORCH_LIBRARY_IMPL(flash_attn_rocm, CUDA, library) {
  library.impl("fwd", &boxed<TORCH_BOX(&fwd)>);
  library.impl("bwd", &boxed<TORCH_BOX(&bwd)>);
  library.impl("append", &boxed<TORCH_BOX(&append)>);
}

STABLE_TORCH_LIBRARY_IMPL(flash_attn_rocm, CompositeExplicitAutograd, library) {
  library.impl("explain_bwd", &boxed<TORCH_BOX(&explain_bwd)>);
  library.impl("plan_bwd", &boxed<TORCH_BOX(&plan_bwd)>);
  library.impl("bwd_sums", &boxed<TORCH_BOX(&bwd_sums)>);
  library.impl("plan", &boxed<TORCH_BOX(&plan)>);
  library.impl("compute_units", &boxed<TORCH_BOX(&compute_units)>);
  library.impl("instances", &boxed<TORCH_BOX(&instances)>);
  library.impl("gpus", &boxed<TORCH_BOX(&gpus)>);
  library.impl("limits", &boxed<TORCH_BOX(&limits)>);
  library.impl("device_arch", &boxed<TORCH_BOX(&device_arch)>);
}
