// Tests' interface to the fake HIP runtime: control and reports. control.py is the Python side.
#include <cstdint>
#include <exception>
#include <string>

#include "failure.hpp"
#include "runtime.hpp"

namespace {

using fake_hip::Runtime;

// "" or the problem, valid until the thread's next call.
template <typename Action>
const char* told(Action action) noexcept {
  thread_local std::string text;
  try {
    text = action(Runtime::get());
  } catch (const std::exception& error) {
    text = std::string("error: ") + error.what();
  }
  return text.c_str();
}

}  // namespace

extern "C" {

// Lets kernels touch `size` bytes from `base`.
__attribute__((visibility("default"))) const char* fa_fake_hip_buffer(std::uint64_t base, std::uint64_t size,
                                                                      const char* name, int readonly,
                                                                      int initialised) {
  return told([&](Runtime& runtime) {
    runtime.buffers().add({base, size, name, readonly != 0, initialised != 0});
    return std::string();
  });
}

__attribute__((visibility("default"))) const char* fa_fake_hip_forget_buffers() {
  return told([](Runtime& runtime) {
    runtime.buffers().clear();
    return std::string();
  });
}

// Replaces the failures of FA_FAKE_HIP_FAIL, counts calls anew and forgets a pending failure.
__attribute__((visibility("default"))) const char* fa_fake_hip_fail(const char* failures) {
  return told([&](Runtime& runtime) {
    runtime.plan_failures(failures);
    return std::string();
  });
}

// The instructions of a loaded kernel as JSON, see listing_of. The first kernel of this name.
__attribute__((visibility("default"))) const char* fa_fake_hip_listing(const char* kernel) {
  return told([&](Runtime& runtime) { return runtime.listing(kernel); });
}

// JSON, see Runtime::report. Forgets the reported launches.
__attribute__((visibility("default"))) const char* fa_fake_hip_report() {
  return told([](Runtime& runtime) {
    const std::string text = runtime.report();
    runtime.forget_launches();
    return text;
  });
}

}  // extern "C"
