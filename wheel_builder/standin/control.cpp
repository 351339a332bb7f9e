// How tests steer the stand-in and learn what ran; control.py has the other side.
#include <cstdint>
#include <exception>
#include <string>

#include "failure.hpp"
#include "runtime.hpp"

namespace {

using standin::Runtime;

// "" or what is wrong; valid until the thread's next call.
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
__attribute__((visibility("default"))) const char* fa_standin_buffer(std::uint64_t base, std::uint64_t size,
                                                                     const char* name, int readonly,
                                                                     int initialised) {
  return told([&](Runtime& runtime) {
    runtime.buffers().add({base, size, name, readonly != 0, initialised != 0});
    return std::string();
  });
}

__attribute__((visibility("default"))) const char* fa_standin_forget_buffers() {
  return told([](Runtime& runtime) {
    runtime.buffers().clear();
    return std::string();
  });
}

// Replaces what FA_STANDIN_FAIL asked for, counts calls anew and forgets a pending failure.
__attribute__((visibility("default"))) const char* fa_standin_fail(const char* failures) {
  return told([&](Runtime& runtime) {
    runtime.plan_failures(failures);
    return std::string();
  });
}

// JSON, see Runtime::report; forgets the launches in it.
__attribute__((visibility("default"))) const char* fa_standin_report() {
  return told([](Runtime& runtime) {
    const std::string text = runtime.report();
    runtime.forget_launches();
    return text;
  });
}

}  // extern "C"
