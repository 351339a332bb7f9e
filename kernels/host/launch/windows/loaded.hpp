// Functions of DLLs that are in this process already; nothing is ever loaded.
#pragma once

#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>

#include <cstring>

namespace fa {

// The function `name` of `dll`, null where the process has no such DLL, or the DLL no such function.
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
