// Failures of the stand-in: a HIP error code and, in words, what the stand-in knows beyond it.
#pragma once

#define __HIP_PLATFORM_AMD__
#include <hip/hip_runtime_api.h>

#include <stdexcept>
#include <string>

namespace standin {

struct Failure : std::runtime_error {
  Failure(hipError_t code_, const std::string& detail) : std::runtime_error(detail), code(code_) {}
  hipError_t code;
};

// What AMD's runtime says for this code, and, for the last failure of this thread, the stand-in's words.
const char* words_for(hipError_t code);

// Remembers the words of this thread's last failure.
hipError_t remember(const Failure& failure) noexcept;

}  // namespace standin
