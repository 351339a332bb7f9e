// One kernel with everything that a launch has to set up: what the fuzz target's inputs are made from.
#include <hip/hip_runtime.h>

extern __shared__ int dynamic_lds[];

extern "C" __global__ __launch_bounds__(256) void hostile(const int* in, int* out, int n) {
  __shared__ int fixed[64];
  volatile int local[4];
  int i = blockIdx.x * blockDim.x + threadIdx.x + threadIdx.y * gridDim.y;
  for (int k = 0; k < 4; ++k) local[k] = n + k;
  fixed[threadIdx.x & 63] = i < n ? in[i] : 0;
  dynamic_lds[0] = n;
  __syncthreads();
  if (i < n) out[i] = fixed[(threadIdx.x + 1) & 63] + local[n & 3] + dynamic_lds[0];
}
