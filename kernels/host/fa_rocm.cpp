// The C interface: the only place where the core's exceptions end.
#include "fa_rocm.h"

#include <cstddef>
#include <cstring>
#include <exception>
#include <string>

#include "append.hpp"
#include "device.hpp"
#include "error.hpp"
#include "fwd.hpp"
#include "registry.hpp"
#include "select.hpp"

namespace {

void write(fa_message* message, const char* text) {
  std::strncpy(message->text, text, sizeof message->text - 1);
  message->text[sizeof message->text - 1] = '\0';
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

std::string json(const fa::Instance& instance) {
  std::string archs;
  for (const std::string& arch : instance.archs) archs += (archs.empty() ? "\"" : ", \"") + arch + "\"";
  return R"({"name": ")" + instance.name + R"(", "op": ")" + instance.op + R"(", "dtype": ")" +
         instance.dtype + R"(", "head_dim": )" + std::to_string(instance.head_dim) + R"(, "archs": [)" +
         archs + "]}";
}

std::string json_of_registry() {
  std::string rows;
  for (const fa::Instance& instance : fa::registry()) rows += (rows.empty() ? "" : ", ") + json(instance);
  return "[" + rows + "]";
}

}  // namespace

fa_status fa_fwd(const fa_fwd_call* call, fa_message* message) {
  return guarded(message, [&] { fa::fwd(*call); });
}

fa_status fa_append(const fa_append_call* call, fa_message* message) {
  return guarded(message, [&] { fa::append(*call); });
}

fa_status fa_explain(const char* arch, const char* dtype, int32_t head_dim, fa_message* message) {
  return guarded(message, [&] {
    const fa::Selection selection = fa::select("fwd", arch, dtype, head_dim);
    if (selection.instance == nullptr) throw fa::Error(FA_UNSUPPORTED, selection.reason);
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

fa_status fa_device_arch(int32_t device, fa_message* message) {
  return guarded(message, [&] { write(message, fa::device_arch(fa::resolve_device(device)).c_str()); });
}
