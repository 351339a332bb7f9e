#include "fwd.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "device.hpp"
#include "error.hpp"
#include "fa/arch/dtype.hpp"
#include "fa/arch/gfx.hpp"
#include "fa/kernel/config.hpp"
#include "fa/kernel/params.hpp"
#include "hip.hpp"
#include "module.hpp"
#include "select.hpp"

namespace fa {

namespace {

constexpr std::int64_t kAlignment = 8;      // elements: 16 bytes of a 16-bit dtype
constexpr std::int64_t kMaxGridYZ = 65535;  // HIP's limit for the grid's second and third dimension
constexpr std::int64_t kMaxLength = std::numeric_limits<std::int32_t>::max();

struct Named {
  const char* name;
  const fa_tensor& tensor;
};

const char* dtype_name(fa_dtype dtype) {
  switch (dtype) {
    case FA_FP16: return "fp16";
    case FA_BF16: return "bf16";
    case FA_FP32: return "fp32";
    default: return "another dtype";
  }
}

std::string shape(std::vector<std::int64_t> sizes) {
  std::vector<std::string> words;
  for (const std::int64_t size : sizes) words.push_back(std::to_string(size));
  return "(" + joined(words) + ")";
}

std::string shape(const fa_tensor& tensor) {
  return shape(std::vector<std::int64_t>(tensor.size, tensor.size + tensor.dims));
}

// Collects what is wrong with one call.
class Problems {
 public:
  void add_unless(bool good, const std::string& text) {
    if (!good) text_ += "\n  - " + text;
  }

  void expect_dims(const Named& named, int dims) {
    add_unless(named.tensor.dims == dims, std::string(named.name) + ": expected " + std::to_string(dims) +
                                              " dimensions, got shape " + shape(named.tensor));
  }

  void expect_dtype(const Named& named, fa_dtype dtype) {
    add_unless(named.tensor.dtype == dtype, std::string(named.name) + ": expected dtype " +
                                                dtype_name(dtype) + ", got " +
                                                dtype_name(named.tensor.dtype));
  }

  void expect_shape(const Named& named, const std::vector<std::int64_t>& sizes) {
    add_unless(shape(named.tensor) == shape(sizes),
               std::string(named.name) + ": expected shape " + shape(sizes) + ", got " + shape(named.tensor));
  }

  void expect_device(const Named& named, int device) {
    add_unless(named.tensor.device == device, std::string(named.name) + ": expected device " +
                                                  std::to_string(device) + " like q, got " +
                                                  std::to_string(named.tensor.device));
  }

  void expect_aligned(const Named& named) {
    const fa_tensor& t = named.tensor;
    const bool base = reinterpret_cast<std::uintptr_t>(t.data) % (2 * kAlignment) == 0;
    const bool strides =
        t.stride[0] % kAlignment == 0 && t.stride[1] % kAlignment == 0 && t.stride[2] % kAlignment == 0;
    add_unless(t.stride[3] == 1 && base && strides,
               std::string(named.name) +
                   ": expected a contiguous last dimension, a 16-byte aligned address and "
                   "other strides that are multiples of 8 elements");
    add_unless(t.stride[1] < kMaxRowStride, std::string(named.name) + ": expected a row stride below " +
                                                std::to_string(kMaxRowStride) + " elements, got " +
                                                std::to_string(t.stride[1]));
  }

  void raise_if_any() const {
    if (!text_.empty()) throw Error(FA_INVALID, "flash_attn_rocm::fwd cannot use its arguments:" + text_);
  }

 private:
  std::string text_;
};

// As PyTorch sees it: without elements every tensor is contiguous, and a dimension of one has any stride.
bool contiguous(const fa_tensor& t) {
  bool dense = true;
  std::int64_t elements = 1;
  for (int i = t.dims - 1; i >= 0; --i) {
    dense = dense && (t.size[i] == 1 || t.stride[i] == elements);
    elements *= t.size[i];
  }
  return dense || elements == 0;
}

void require_dims_and_types(const fa_fwd_call& call) {
  Problems problems;
  const fa_dtype dtype = call.q.dtype;
  problems.add_unless(dtype == FA_FP16 || dtype == FA_BF16,
                      std::string("q: expected dtype fp16 or bf16, got ") + dtype_name(dtype));
  for (const Named& each :
       {Named{"q", call.q}, Named{"k", call.k}, Named{"v", call.v}, Named{"out", call.out}}) {
    problems.expect_dims(each, 4);
    problems.expect_dtype(each, dtype);
    problems.expect_device(each, call.q.device);
  }
  problems.expect_dims({"lse", call.lse}, 3);
  problems.expect_dtype({"lse", call.lse}, FA_FP32);
  problems.expect_device({"lse", call.lse}, call.q.device);
  problems.raise_if_any();
}

void require_shapes(const fa_fwd_call& call) {
  const std::int64_t batch = call.q.size[0], seqlen_q = call.q.size[1], nheads = call.q.size[2];
  const std::int64_t head_dim = call.q.size[3], seqlen_k = call.k.size[1], nheads_k = call.k.size[2];
  Problems problems;
  problems.expect_shape({"k", call.k}, {batch, seqlen_k, nheads_k, head_dim});
  problems.expect_shape({"v", call.v}, {batch, seqlen_k, nheads_k, head_dim});
  problems.expect_shape({"out", call.out}, {batch, seqlen_q, nheads, head_dim});
  problems.expect_shape({"lse", call.lse}, {batch, nheads, seqlen_q});
  problems.add_unless(nheads_k > 0 ? nheads % nheads_k == 0 : nheads == 0,
                      "q has " + std::to_string(nheads) + " heads, which is not a multiple of k's " +
                          std::to_string(nheads_k));
  problems.add_unless(
      batch <= kMaxGridYZ && nheads <= kMaxGridYZ,
      "q: batch and nheads may be at most " + std::to_string(kMaxGridYZ) + ", got shape " + shape(call.q));
  problems.add_unless(seqlen_q <= kMaxLength && seqlen_k <= kMaxLength,
                      "seqlen_q and seqlen_k may be at most " + std::to_string(kMaxLength));
  for (const Named& each :
       {Named{"q", call.q}, Named{"k", call.k}, Named{"v", call.v}, Named{"out", call.out}}) {
    problems.expect_aligned(each);
  }
  problems.add_unless(contiguous(call.lse), "lse: expected a contiguous tensor");
  problems.raise_if_any();
}

FwdParams params_of(const fa_fwd_call& call) {
  FwdParams p{};
  p.q = call.q.data;
  p.k = call.k.data;
  p.v = call.v.data;
  p.out = call.out.data;
  p.lse = static_cast<float*>(call.lse.data);
  p.q_batch = call.q.stride[0], p.q_row = call.q.stride[1], p.q_head = call.q.stride[2];
  p.k_batch = call.k.stride[0], p.k_row = call.k.stride[1], p.k_head = call.k.stride[2];
  p.v_batch = call.v.stride[0], p.v_row = call.v.stride[1], p.v_head = call.v.stride[2];
  p.o_batch = call.out.stride[0], p.o_row = call.out.stride[1], p.o_head = call.out.stride[2];
  p.batch = static_cast<std::int32_t>(call.q.size[0]);
  p.seqlen_q = static_cast<std::int32_t>(call.q.size[1]);
  p.seqlen_k = static_cast<std::int32_t>(call.k.size[1]);
  p.nheads = static_cast<std::int32_t>(call.q.size[2]);
  p.nheads_k = static_cast<std::int32_t>(call.k.size[2]);
  p.scale = call.softmax_scale;
  p.causal = call.causal != 0 ? 1 : 0;
  return p;
}

FwdTile tile_of(const Selection& selection) {
  Gfx gfx{};
  DType dtype{};
  if (!parse_gfx(selection.gfx, &gfx) || !parse_dtype(selection.instance->dtype, &dtype)) {
    throw Error(FA_INTERNAL, "the registry names " + selection.gfx + " and " + selection.instance->dtype +
                                 ", and kernels/include/fa/arch lacks one of them");
  }
  return fwd_tile(gfx, dtype, selection.instance->head_dim);
}

void launch(hipFunction_t kernel, const FwdTile& tile, FwdParams params, hipStream_t stream,
            const std::string& what) {
  const auto blocks = (static_cast<std::int64_t>(params.seqlen_q) + tile.block_m - 1) / tile.block_m;
  void* arguments[] = {&params};
  check(hipModuleLaunchKernel(kernel, static_cast<unsigned>(blocks), static_cast<unsigned>(params.nheads),
                              static_cast<unsigned>(params.batch), static_cast<unsigned>(tile.threads), 1, 1,
                              0, stream, arguments, nullptr),
        "launching " + what, "AMD_LOG_LEVEL=3 in the environment makes the HIP runtime say more");
}

}  // namespace

void fwd(const fa_fwd_call& call) {
  require_dims_and_types(call);
  require_shapes(call);
  const FwdParams params = params_of(call);
  if (params.batch == 0 || params.seqlen_q == 0 || params.nheads == 0) return;
  const int device = resolve_device(call.q.device);
  const DeviceGuard guard(device);
  const Selection selection =
      select("fwd", device_arch(device), dtype_name(call.q.dtype), static_cast<int>(call.q.size[3]));
  if (selection.instance == nullptr) throw Error(FA_UNSUPPORTED, selection.reason);
  const hipFunction_t kernel = loaded_kernel(device, selection.gfx, *selection.instance);
  launch(kernel, tile_of(selection), params, static_cast<hipStream_t>(call.stream),
         selection.instance->name + " on device " + std::to_string(device) + " (" + selection.gfx + ")");
}

}  // namespace fa
