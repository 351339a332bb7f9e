// Functions of DLLs already in this process. Never loads a DLL.
#pragma once

#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>

#include <cstring>

namespace fa {

// The function `name` of `dll`. Null if the process lacks the DLL, or the DLL lacks the function.
template <typename Function>
Function loaded_function(const char* dll, const char* name) {
  const HMODULE module = GetModuleHandleA(dll);
  const FARPROC found = module == nullptr ? nullptr : GetProcAddress(module, name);
  Function function = nullptr;
  static_assert(sizeof function == sizeof found);
  std::memcpy(&function, &found, sizeof function);
  return function;
}

}  // namespace fa
