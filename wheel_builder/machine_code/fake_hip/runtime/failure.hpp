// Failures of the fake HIP runtime: a HIP error code and an explanation in words.
#pragma once

#define __HIP_PLATFORM_AMD__
#include <hip/hip_runtime_api.h>

#include <stdexcept>
#include <string>

namespace fake_hip {

struct Failure : std::runtime_error {
  Failure(hipError_t code_, const std::string& detail) : std::runtime_error(detail), code(code_) {}
  hipError_t code;
};

// AMD's text for this code and, for this thread's last failure, the fake HIP runtime's explanation.
const char* words_for(hipError_t code);

// Keeps the explanation of this thread's last failure.
hipError_t remember(const Failure& failure) noexcept;

}  // namespace fake_hip
