#include "module.hpp"

#include <map>
#include <mutex>
#include <utility>

namespace fa {

namespace {

hipFunction_t load(int device, const std::string& gfx, const Instance& instance) {
  const std::string where = instance.name + " on device " + std::to_string(device) + " (" + gfx + ")";
  const Bytes code = find_code_object(instance.bundle, gfx);
  hipModule_t module = nullptr;
  check(hipModuleLoadData(&module, code.data), "loading the code object of " + where,
        "the ROCm runtime or the driver may be older than this wheel: python -m flash_attn_rocm doctor shows "
        "both");
  hipFunction_t function = nullptr;
  check(hipModuleGetFunction(&function, module, instance.name.c_str()), "finding the kernel " + where,
        "the wheel is damaged: pip install --force-reinstall flash-attn-rocm");
  return function;
}

}  // namespace

hipFunction_t loaded_kernel(int device, const std::string& gfx, const Instance& instance) {
  using Key = std::pair<int, const Instance*>;
  static std::mutex mutex;
  // Never destroyed: at exit the HIP runtime may be gone before this library.
  static auto& loaded = *new std::map<Key, hipFunction_t>;
  const std::lock_guard<std::mutex> lock(mutex);
  const Key key{device, &instance};
  const auto found = loaded.find(key);
  return found != loaded.end() ? found->second
                               : loaded.emplace(key, load(device, gfx, instance)).first->second;
}

}  // namespace fa
