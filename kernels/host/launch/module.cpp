#include "host/launch/module.hpp"

#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "host/registry/relabel.hpp"
#include "host/registry/select.hpp"
#include "host/registry/unpack.hpp"
#include "host/types/error.hpp"

namespace fa {

namespace {

using Key = std::pair<int, const Instance*>;

// The value of `key`, made on first use.
template <typename Value, typename Make>
Value kept(std::map<Key, Value>& all, const Key& key, Make make) {
  const auto found = all.find(key);
  return found != all.end() ? found->second : all.emplace(key, make()).first->second;
}

hipModule_t load(const unsigned char* code, const std::string& where) {
  hipModule_t module = nullptr;
  check(hipModuleLoadData(&module, code), "loading the code object of " + where,
        "the ROCm runtime or the driver may be older than this wheel: python -m flash_attn_rocm doctor shows "
        "both");
  return module;
}

// An arch's code objects, and the memory that they lie in.
struct ArchCode {
  Unpacked unpacked;
  std::vector<Bytes> codes;
};

ArchCode unpack_arch(const std::string& gfx) {
  Unpacked unpacked = unpack(packed_code(gfx), packed_codes());
  std::vector<Bytes> codes = find_code_objects(unpacked.bytes(), gfx);
  return {std::move(unpacked), std::move(codes)};
}

// Unpacked at the arch's first kernel. Never freed: the runtime may read a module's code object for the
// module's lifetime.
Bytes code_of(const Instance& instance, const std::string& gfx) {
  static auto& all = *new std::map<std::string, ArchCode>;
  auto found = all.find(gfx);
  if (found == all.end()) found = all.emplace(gfx, unpack_arch(gfx)).first;
  const std::vector<Bytes>& codes = found->second.codes;
  const std::size_t place = place_of(instance, gfx);
  if (place >= codes.size()) damaged("there are fewer code objects for " + gfx + " than kernels");
  return codes[place];
}

hipModule_t load_module(const Gpu& gpu, Bytes code, const std::string& where) {
  if (gpu.name == name(gpu.code_object)) return load(code.data, where);
  static auto& renamed = *new std::deque<std::vector<unsigned char>>;
  std::vector<unsigned char> bytes = relabelled(code, gpu);
  hipModule_t module = load(bytes.data(), where);
  renamed.push_back(std::move(bytes));
  return module;
}

hipFunction_t find_function(hipModule_t module, const Instance& instance, const std::string& where) {
  hipFunction_t function = nullptr;
  check(hipModuleGetFunction(&function, module, instance.name.c_str()), "finding the kernel " + where,
        "the wheel is damaged: install it again, with the command that you installed it with and "
        "--force-reinstall");
  return function;
}

const Gpu& known_gpu(const std::string& arch) {
  const Gpu* gpu = find_gpu(arch);
  if (gpu == nullptr) throw Error(FA_INTERNAL, "kernels were chosen for " + arch + ", which is not known");
  return *gpu;
}

std::string place_in_words(const std::string& kernel, int device, const std::string& arch) {
  return kernel + " on device " + std::to_string(device) + " (" + shown(arch) + ")";
}

}  // namespace

hipFunction_t load_candidate(int device, const std::string& arch, const Instance& instance,
                             const std::string& row, Bytes code) {
  const Gpu& gpu = known_gpu(arch);
  const std::string where = place_in_words(instance.name + " with row " + row, device, arch);
  return find_function(load_module(gpu, code, where), instance, where);
}

hipFunction_t loaded_kernel(int device, const std::string& arch, const Instance& instance) {
  static std::mutex mutex;
  // Never destroyed: at exit the HIP runtime may end before this library.
  static auto& modules = *new std::map<Key, hipModule_t>;
  static auto& functions = *new std::map<Key, hipFunction_t>;
  const std::lock_guard<std::mutex> lock(mutex);
  const Key key{device, &instance};
  return kept(functions, key, [&] {
    const Gpu& gpu = known_gpu(arch);
    const std::string where = place_in_words(instance.name, device, arch);
    // Kept even if the function is missing, so the next failing call does not load it again.
    hipModule_t module = kept(modules, key, [&] {
      return load_module(gpu, code_of(instance, std::string(name(gpu.code_object))), where);
    });
    return find_function(module, instance, where);
  });
}

}  // namespace fa
