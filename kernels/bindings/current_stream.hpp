// How PyTorch tells its current stream.  Not every build of PyTorch does, and its header declares the
// function only under build macros.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <cstdint>

using CurrentStream = AOTITorchError (*)(std::int32_t device, void** stream);

// The function, null where this process's PyTorch has none.
#ifdef _WIN32
CurrentStream find_current_stream();
#else
extern "C" __attribute__((weak)) AOTITorchError aoti_torch_get_current_cuda_stream(std::int32_t device,
                                                                                   void** stream);
inline CurrentStream find_current_stream() { return aoti_torch_get_current_cuda_stream; }
#endif
