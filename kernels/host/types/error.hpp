// Failures inside the core. fa_rocm.cpp turns them into a status and a message.
#pragma once

#include <stdexcept>
#include <string>

#include "host/types/fa_types.h"

namespace fa {

struct Error : std::runtime_error {
  Error(fa_status status_, const std::string& text) : std::runtime_error(text), status(status_) {}
  fa_status status;
};

}  // namespace fa
