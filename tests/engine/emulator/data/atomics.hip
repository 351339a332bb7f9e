// Kernels with atomics: data handed over rightly through one, and wrongly. Their workgroups run one after
// another, which is why they are not in planted.hip.
#include <hip/hip_runtime.h>

#define KERNEL extern "C" __global__ __launch_bounds__(256)

extern __shared__ char dynamic_lds[];

KERNEL void global_atomics(const int* in, int* out, int n) {
  int i = threadIdx.x;
  __hip_atomic_fetch_add(&out[i % 8], in[i] + n, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

// Handing data over through an atomic alone: the first 64 work items write, the others wait for the count.
__device__ void hand_over(const float* in, float* out, int n, bool count_first) {
  float* tile = (float*)dynamic_lds;
  int* count = (int*)dynamic_lds + 64;
  int i = threadIdx.x;
  if (i == 0) *count = 0;
  __syncthreads();
  if (i < 64) {
    if (count_first) __hip_atomic_fetch_add(count, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_WORKGROUP);
    ((volatile float*)tile)[i] = in[i] + n;
    if (!count_first) __hip_atomic_fetch_add(count, 1, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_WORKGROUP);
    out[i] = in[i];
  } else {
    // Adds 0, which the compiler does not know: it would make a plain load of it.
    while (__hip_atomic_fetch_add(count, n - 128, __ATOMIC_ACQUIRE, __HIP_MEMORY_SCOPE_WORKGROUP) < 64) {
    }
    out[i] = tile[i - 64];
  }
}
KERNEL void lds_handover(const float* in, float* out, int n) { hand_over(in, out, n, false); }
KERNEL void lds_handover_early(const float* in, float* out, int n) { hand_over(in, out, n, true); }

// The last workgroup, found by an atomic on out[0], sums what all have written.
__device__ void sum_by_last(const float* in, float* out, int n, bool wait) {
  int* last = (int*)dynamic_lds;
  int i = threadIdx.x;
  out[n * (1 + blockIdx.x) + i] = in[i];
  __threadfence();
  if (wait) __syncthreads();
  if (i == 0) *last = atomicAdd((int*)out, 1) == gridDim.x - 1;
  __syncthreads();
  if (!*last) return;
  __threadfence();
  float sum = 0;
  for (int g = 0; g < gridDim.x; ++g) sum += out[n * (1 + g) + i];
  out[n * (1 + gridDim.x) + i] = sum;
}
KERNEL void last_group_sums(const float* in, float* out, int n) { sum_by_last(in, out, n, true); }
// The wave that counts does not wait for the others' stores.
KERNEL void last_group_in_haste(const float* in, float* out, int n) { sum_by_last(in, out, n, false); }
