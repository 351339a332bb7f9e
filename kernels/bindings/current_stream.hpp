// Access to PyTorch's current stream. Some builds of PyTorch lack the function, and its header declares it
// only under build macros.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <cstdint>

using CurrentStream = AOTITorchError (*)(std::int32_t device, void** stream);

// The function, or null if this process's PyTorch lacks it.
#ifdef _WIN32
CurrentStream find_current_stream();
#else
extern "C" __attribute__((weak)) AOTITorchError aoti_torch_get_current_cuda_stream(std::int32_t device,
                                                                                   void** stream);
inline CurrentStream find_current_stream() { return aoti_torch_get_current_cuda_stream; }
#endif
