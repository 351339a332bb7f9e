// Edges of what the core does for a whole wave at once: where one lane, one byte or one later access needs
// the check lane by lane after all.  `n` is always 64, which the compiler must not know.
#include <hip/hip_runtime.h>

#define KERNEL extern "C" __global__ __launch_bounds__(256)
typedef __attribute__((address_space(3))) volatile float LdsFloat;  // a plain volatile would be a flat access
typedef __attribute__((address_space(3))) volatile short LdsShort;

#if defined(__GFX11__) || defined(__GFX12__)
#define LDS_LOAD "ds_load_b32"
#else
#define LDS_LOAD "ds_read_b32"
#endif

extern __shared__ char dynamic_lds[];
__device__ LdsFloat* words() { return (LdsFloat*)dynamic_lds; }
__device__ LdsShort* halves() { return (LdsShort*)dynamic_lds; }

// All waves read the same words again and again; then lane 5 of the last one stores to one of them.
KERNEL void store_after_reads(const float* in, float* out, int n) {
  const int i = threadIdx.x;
  words()[i] = in[i];
  __syncthreads();
  float sum = 0;
#pragma unroll 1
  for (int k = 0; k < n; ++k) sum += words()[k];
  if (i == (int)blockDim.x - n + 5) words()[7] = sum;
  out[i] = sum;
}
// The same behind a barrier.
KERNEL void store_behind_barrier(const float* in, float* out, int n) {
  const int i = threadIdx.x;
  words()[i] = in[i];
  __syncthreads();
  float sum = 0;
#pragma unroll 1
  for (int k = 0; k < n; ++k) sum += words()[k];
  __syncthreads();
  if (i == (int)blockDim.x - n + 5) words()[7] = sum;
  out[i] = sum;
}
// Two waves share words, each with its own half; but of word 9 both store the lower one.
KERNEL void halves_apart(const float* in, float* out, int n) {
  const int i = threadIdx.x, wave_half = i / n;
  halves()[2 * (i % n) + wave_half] = (short)in[i];
  __syncthreads();
  out[i] = halves()[i];
}
KERNEL void halves_together(const float* in, float* out, int n) {
  const int i = threadIdx.x;
  halves()[2 * (i % n) + (i % n == 9 ? 0 : i / n)] = (short)in[i];
  __syncthreads();
  out[i] = halves()[i];
}
// Lanes from 40 on get no value from LDS.
KERNEL void loaded_in_part(const float* in, float* out, int n) {
  const int i = threadIdx.x;
  words()[i] = in[i];
  __syncthreads();
  float x;
  // Nothing waits for it: here a load has arrived when it ends.
  if (i < n - 24) asm volatile(LDS_LOAD " v78, %0" : : "v"(4 * i) : "v78");
  asm volatile("v_mov_b32 %0, v78" : "=v"(x) : : "v78");
  out[i] = x;
}
// Byte 2 of word 33 is undefined when it is stored to LDS; the lane's other stores come first.
KERNEL void stored_in_part(const float* in, float* out, int n) {
  const int i = threadIdx.x;
  words()[i] = in[i];
  if (i == n - 31) {
    float x;
    asm volatile("v_and_b32 %0, 0xff0000, v79" : "=v"(x) : : "v79");
    words()[i] = x;
  }
  __syncthreads();
  out[i] = words()[(i + 1) % n];
}
KERNEL void stored_whole(const float* in, float* out, int n) {
  const int i = threadIdx.x;
  words()[i] = in[i];
  if (i == n - 31) {
    float x;
    asm volatile("v_and_b32 %0, 0, v79" : "=v"(x) : : "v79");
    words()[i] = x;
  }
  __syncthreads();
  out[i] = words()[(i + 1) % n];
}
// Workgroup g stores floats 48 g to 48 g + 63 of the result: 16 of them are the next one's, too.
KERNEL void groups_overlap(const float* in, float* out, int n) {
  const int i = threadIdx.x;
  out[i + (n - 16) * blockIdx.x] = in[i] + blockIdx.x;
}
// The same from the last workgroup on.
KERNEL void groups_overlap_downwards(const float* in, float* out, int n) {
  const int i = threadIdx.x;
  out[i + (n - 16) * (gridDim.x - 1 - blockIdx.x)] = in[i] + blockIdx.x;
}
