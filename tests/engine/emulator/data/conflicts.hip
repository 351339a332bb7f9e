// LDS accesses with conflicts that are known by hand, for one wave.  `n` is the lanes of a wave, which the
// compiler must not know; volatile keeps every access as it is written, and in the loop of kernel `strided`
// twice.
#include <hip/hip_runtime.h>

#define KERNEL extern "C" __global__ __launch_bounds__(64)
typedef __attribute__((address_space(3))) volatile float LdsFloat;  // a plain volatile would be a flat access

__shared__ float memory[64 * 33];
__device__ LdsFloat* tile() { return (LdsFloat*)memory; }

KERNEL void side_by_side(float* out, int n) { tile()[threadIdx.x] = n; }
KERNEL void strided(float* out, int n) {
#pragma unroll 1
  for (int i = 0; i < n / 16; ++i) tile()[32 * threadIdx.x + i] = i;
}
KERNEL void padded(float* out, int n) { tile()[33 * threadIdx.x] = n; }
KERNEL void broadcast(float* out, int n) { out[threadIdx.x] = tile()[n]; }
KERNEL void two_lanes(float* out, int n) {
  if (threadIdx.x < 2) tile()[32 * threadIdx.x] = n;
}
