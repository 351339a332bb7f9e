#include "failure.hpp"

#include <map>

namespace fake_hip {

namespace {

thread_local std::string text;    // the last result of words_for
thread_local std::string detail;  // of the last failure
thread_local hipError_t failed = hipSuccess;

// The words of AMD's runtime for the possible error codes of the functions here.
const std::map<int, const char*>& table() {
  static const auto& words = *new std::map<int, const char*>{
      {hipSuccess, "no error"},
      {hipErrorInvalidValue, "invalid argument"},
      {hipErrorOutOfMemory, "out of memory"},
      {hipErrorNotInitialized, "initialization error"},
      {hipErrorInvalidConfiguration, "invalid configuration argument"},
      {hipErrorInvalidDeviceFunction, "invalid device function"},
      {hipErrorNoDevice, "no ROCm-capable device is detected"},
      {hipErrorInvalidDevice, "invalid device ordinal"},
      {hipErrorInvalidImage, "device kernel image is invalid"},
      {hipErrorNoBinaryForGpu, "no kernel image is available for execution on the device"},
      {hipErrorInvalidHandle, "invalid resource handle"},
      {hipErrorNotFound, "named symbol not found"},
      {hipErrorIllegalAddress, "an illegal memory access was encountered"},
      {hipErrorLaunchFailure, "unspecified launch failure"},
      {hipErrorNotSupported, "operation not supported"},
      {hipErrorUnknown, "unknown error"},
  };
  return words;
}

}  // namespace

const char* words_for(hipError_t code) {
  const auto found = table().find(code);
  text = found == table().end() ? "unrecognized error code" : found->second;
  if (code == failed && !detail.empty()) text += " [fake HIP runtime: " + detail + "]";
  return text.c_str();
}

hipError_t remember(const Failure& failure) noexcept {
  failed = failure.code;
  try {
    detail = failure.what();
  } catch (...) {
    detail.clear();
  }
  return failure.code;
}

}  // namespace fake_hip
