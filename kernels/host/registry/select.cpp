#include "host/registry/select.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "host/types/error.hpp"

namespace fa {

namespace {

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// "fp16 with head_dim 64, 128; bf16 with head_dim 64"
std::string offered(const std::string& op, const std::string& gfx) {
  std::map<std::string, std::set<int>> head_dims;
  for (const Instance& each : registry()) {
    if (each.op == op && each.has(gfx)) head_dims[each.dtype].insert(each.head_dim);
  }
  std::string text;
  for (const auto& [dtype, dims] : head_dims) {
    std::vector<std::string> words;
    for (const int head_dim : dims) words.push_back(std::to_string(head_dim));
    const bool any = dims.count(kAnyHeadDim) != 0;
    text +=
        (text.empty() ? "" : "; ") + dtype + (any ? " with any head_dim" : " with head_dim " + joined(words));
  }
  return text.empty() ? "none" : text;
}

std::string unknown_arch(const std::string& gfx) {
  return "this wheel has no kernels for " + (gfx.empty() ? "an arch without a name" : gfx) +
         ": it was built for " + joined(registered_gpus());
}

std::string no_instance(const std::string& op, const std::string& arch, const std::string& dtype,
                        int head_dim) {
  return "no " + op + " kernel for " + dtype + " with head_dim " + std::to_string(head_dim) + " on " +
         shown(arch) + ": this wheel has " + offered(op, code_object_of(arch));
}

}  // namespace

Selection select(const std::string& op, const std::string& arch, const std::string& dtype, int head_dim) {
  const std::string gfx = code_object_of(arch);
  if (!contains(registered_archs(), gfx)) {
    return {nullptr, gfx, unknown_arch(std::string(without_features(arch)))};
  }
  for (const Instance& each : registry()) {
    // Head dims first: every launch comes here, and comparing numbers is faster than comparing names.
    const bool fits = each.head_dim == head_dim || each.head_dim == kAnyHeadDim;
    if (fits && each.op == op && each.dtype == dtype && each.has(gfx)) return {&each, gfx, ""};
  }
  return {nullptr, gfx, no_instance(op, arch, dtype, head_dim)};
}

Selection served(const std::string& op, const std::string& arch, const std::string& dtype, int head_dim) {
  Selection selection = select(op, arch, dtype, head_dim);
  if (selection.instance == nullptr) throw Error(FA_UNSUPPORTED, selection.reason);
  return selection;
}

std::string code_object_of(const std::string& arch) {
  const Gpu* gpu = find_gpu(arch);
  return std::string(gpu != nullptr ? name(gpu->code_object) : without_features(arch));
}

std::string shown(const std::string& arch) {
  const std::string own(without_features(arch)), code = code_object_of(arch);
  return own == code ? own : own + ", which runs the code of " + code;
}

Tabled tabled(const std::string& gfx, const std::string& dtype) {
  Tabled found{};
  if (parse_gfx(gfx, &found.arch) && parse_dtype(dtype, &found.dtype)) return found;
  throw Error(FA_INTERNAL,
              "the registry names " + gfx + " and " + dtype + ", and kernels/tables lacks one of them");
}

}  // namespace fa
