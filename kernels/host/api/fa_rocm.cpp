// The C interface. The core's exceptions end here.
#include "host/api/fa_rocm.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <string>

#include "device/call/params.hpp"
#include "host/arguments/bwd_arguments.hpp"
#include "host/calls/bwd.hpp"
#include "host/calls/caches.hpp"
#include "host/calls/fwd.hpp"
#include "host/calls/mla.hpp"
#include "host/launch/device.hpp"
#include "host/launch/replaced.hpp"
#include "host/plan/fwd_plan.hpp"
#include "host/plan/plan.hpp"
#include "host/registry/registry.hpp"
#include "host/types/error.hpp"

namespace {

void write(fa_message* message, const char* text) {
  // Unlike strncpy, it leaves the rest of 4 KiB as it is, in every call.
  const std::size_t bytes = std::min(std::strlen(text), sizeof message->text - 1);
  std::memcpy(message->text, text, bytes);
  message->text[bytes] = '\0';
}

template <typename Action>
fa_status guarded(fa_message* message, Action action) noexcept {
  write(message, "");
  try {
    action();
    return FA_OK;
  } catch (const fa::Error& error) {
    write(message, error.what());
    return error.status;
  } catch (const std::exception& error) {
    write(message, error.what());
  } catch (...) {
    write(message, "an exception that is not a std::exception");
  }
  return FA_INTERNAL;
}

// The action's plan: path and parts in `result`, the reason in `message`.
template <typename Action>
fa_status planned(fa_plan_result* result, fa_message* message, Action action) noexcept {
  *result = {"", 1};
  return guarded(message, [&] {
    const auto plan = action();
    *result = {fa::name(plan.path).data(), plan.splits};
    write(message, plan.reason.c_str());
  });
}

std::string json(const fa::Instance& instance) {
  std::string archs;
  for (const std::string& arch : instance.archs) archs += (archs.empty() ? "\"" : ", \"") + arch + "\"";
  return R"({"name": ")" + instance.name + R"(", "op": ")" + instance.op + R"(", "dtype": ")" +
         instance.dtype + R"(", "head_dim": )" + std::to_string(instance.head_dim) + R"(, "archs": [)" +
         archs + R"(], "clang": )" + std::to_string(fa::clang_major()) + "}";
}

std::string json_of_registry() {
  std::string rows;
  for (const fa::Instance& instance : fa::registry()) rows += (rows.empty() ? "" : ", ") + json(instance);
  return "[" + rows + "]";
}

std::string json_of_gpus() {
  std::string rows;
  for (const std::string& gpu : fa::registered_gpus()) {
    rows += (rows.empty() ? "\"" : ", \"") + gpu + "\": \"" + fa::code_object_of(gpu) + "\"";
  }
  return "{" + rows + "}";
}

std::string json_of_limits() {
  return R"({"head_dim": )" + std::to_string(fa::kMaxHeadDim) + R"(, "wide_head_dim": )" +
         std::to_string(fa::kMaxWideHeadDim) + R"(, "uneven_head_dim": )" +
         std::to_string(fa::kUnevenValueDim) + R"(, "splits": )" + std::to_string(fa::kMaxSplits) +
         R"(, "row_stride": )" + std::to_string(fa::kMaxRowStride) + R"(, "alignment": )" +
         std::to_string(fa::kAlignedElements) + R"(, "page": )" + std::to_string(fa::kPageMultiple) +
         R"(, "least_scale": )" + std::to_string(fa::kLeastScale) + "}";
}

void require_counts(std::initializer_list<std::int64_t> counts) {
  for (const std::int64_t count : counts) {
    if (count < 0 || count > INT32_MAX) {
      throw fa::Error(FA_INVALID, "plan: expected counts from 0 to 2^31 - 1, got " + std::to_string(count));
    }
  }
}

void require_plannable(const fa_plan_call& call) {
  require_counts({call.batch, call.max_seqlen_q, call.max_seqlen_k, call.nheads, call.nheads_k,
                  call.compute_units, call.num_splits});
  if (call.nheads_k > 0 ? call.nheads % call.nheads_k != 0 : call.nheads != 0) {
    throw fa::Error(FA_INVALID, "plan: expected nheads to be a multiple of nheads_k, which is " +
                                    std::to_string(call.nheads_k) + ", got " + std::to_string(call.nheads));
  }
}

// The plan of a call. Throws if the library has no kernels for it.
fa::Plan served_plan(const fa_plan_call& call) {
  require_plannable(call);
  const std::int64_t v_head_dim = call.v_head_dim == 0 ? call.head_dim : call.v_head_dim;
  const fa::Kernels kernels = fa::forward_kernels(call.arch, call.dtype, call.head_dim, v_head_dim);
  const fa::Plan plan = fa::plan({kernels.arch, kernels.dtype, call.head_dim, kernels.there, call.batch,
                                  call.max_seqlen_q, call.max_seqlen_k, call.nheads, call.nheads_k,
                                  call.compute_units, call.num_splits, call.dropout != 0, call.aligned != 0,
                                  call.plain != 0, call.masked != 0, call.coded != 0, call.causal != 0});
  fa::served_kernel(plan, kernels, call.head_dim, {call.masked != 0, call.coded != 0});
  return plan;
}

}  // namespace

fa_status fa_fwd(const fa_fwd_call* call, fa_message* message) {
  return guarded(message, [&] { fa::fwd(*call); });
}

fa_status fa_bwd(const fa_bwd_call* call, fa_message* message) {
  return guarded(message, [&] { fa::bwd(*call); });
}

fa_status fa_append(const fa_append_call* call, fa_message* message) {
  return guarded(message, [&] { fa::append(*call); });
}

fa_status fa_widen(const fa_widen_call* call, fa_message* message) {
  return guarded(message, [&] { fa::widen(*call); });
}

fa_status fa_mla(const fa_mla_call* call, fa_message* message) {
  return guarded(message, [&] { fa::mla(*call); });
}

fa_status fa_replace(const fa_candidate* c, fa_message* message) {
  return guarded(message, [&] {
    const int device = fa::resolve_device(c->device);
    const fa::Bytes code{static_cast<const unsigned char*>(c->code), static_cast<std::size_t>(c->bytes)};
    fa::replace(device, fa::device_arch(device),
                {c->kernel, c->row, c->regime, code, c->place, c->rows, c->threads});
  });
}

fa_status fa_fwd_fp8(const fa_fwd_fp8_call* call, fa_message* message) {
  return guarded(message, [&] { fa::fwd_fp8(*call); });
}

fa_status fa_fwd_int8(const fa_fwd_int8_call* call, fa_message* message) {
  return guarded(message, [&] { fa::fwd_int8(*call); });
}

fa_status fa_plan_bwd(const fa_plan_bwd_call* call, fa_plan_result* result, fa_message* message) {
  return planned(result, message, [&] {
    return fa::bwd_plan({call->arch, call->dtype, fa::bounded(call->head_dim), call->featured != 0,
                         call->deterministic != 0, call->masked != 0, call->wanted});
  });
}

int64_t fa_bwd_sums(int32_t ragged, int64_t batch, int64_t rows_q, int64_t nheads, int64_t head_dim) {
  return fa::bwd_sums({ragged != 0, batch, rows_q, nheads, head_dim});
}

fa_status fa_plan(const fa_plan_call* call, fa_plan_result* result, fa_message* message) {
  return planned(result, message, [&] { return served_plan(*call); });
}

fa_status fa_plan_mla(const fa_plan_mla_call* call, fa_plan_result* result, fa_message* message) {
  return planned(result, message, [&] {
    require_counts(
        {call->batch, call->seqlen_q, call->seqlen_k, call->nheads, call->compute_units, call->num_splits});
    return fa::served_latent_plan(*call);
  });
}

const char* fa_instances(void) {
  try {
    static const std::string text = json_of_registry();
    return text.c_str();
  } catch (...) {
    return nullptr;
  }
}

const char* fa_gpus(void) {
  try {
    static const std::string text = json_of_gpus();
    return text.c_str();
  } catch (...) {
    return nullptr;
  }
}

const char* fa_limits(void) {
  try {
    static const std::string text = json_of_limits();
    return text.c_str();
  } catch (...) {
    return nullptr;
  }
}

fa_status fa_device_compute_units(int32_t device, int32_t* units, fa_message* message) {
  return guarded(message, [&] { *units = fa::device_compute_units(fa::resolve_device(device)); });
}

fa_status fa_device_arch(int32_t device, fa_message* message) {
  return guarded(message, [&] { write(message, fa::device_arch(fa::resolve_device(device)).c_str()); });
}
