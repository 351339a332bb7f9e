// Kernels with one error each, and next to each its sound twin: what the sanitizers have to tell apart.
// `n` is always 64, the threads of a workgroup unless the test says otherwise; the compiler must not know it.
#include <hip/hip_runtime.h>

#define KERNEL extern "C" __global__ __launch_bounds__(256)
typedef float f4 __attribute__((ext_vector_type(4)));

#if defined(__GFX9__)
#define BUFFER_WORD3 0x00027000
#elif defined(__GFX10__)
#define BUFFER_WORD3 0x31014000
#else
#define BUFFER_WORD3 0x31004000
#endif

extern __shared__ char dynamic_lds[];

KERNEL void global_overrun(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i <= n) out[i] = in[i];  // one too many
}
KERNEL void global_underrun(const float* in, float* out, int n) {
  int i = threadIdx.x;
  if (i < n) out[i] = in[i - 1];
}
KERNEL void global_sound(const float* in, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = in[i];
}
KERNEL void global_misaligned(const float* in, float* out, int n) {
  int i = threadIdx.x;
  const char* bytes = (const char*)in;
  if (i < n - 1) out[i] = *(const float*)(bytes + 4 * i + 2);
}
KERNEL void write_to_input(const float* in, float* out, int n) {
  int i = threadIdx.x;
  if (i < n) ((float*)in)[i] = out ? 1.f : 2.f;
}

// A buffer of 16 floats; `first` moves the lanes' elements from the vector's offset into the scalar one.
__device__ float from_buffer(const float* in, int i, int first) {
  __amdgpu_buffer_rsrc_t buffer = __builtin_amdgcn_make_buffer_rsrc((void*)in, 0, 64, BUFFER_WORD3);
  return __builtin_bit_cast(float, __builtin_amdgcn_raw_buffer_load_b32(buffer, 4 * i, 4 * first, 0));
}
KERNEL void scalar_offset_decides(const float* in, float* out, int n) {
  int i = threadIdx.x;
  if (i < n) out[i] = from_buffer(in, i % 16, n / 8);
}
KERNEL void vector_offset_decides(const float* in, float* out, int n) {
  int i = threadIdx.x;
  if (i < n) out[i] = from_buffer(in, i % 16 + n / 8, 0) + from_buffer(in, i % 8, n / 8);
}

KERNEL void lds_overrun(const float* in, float* out, int n) {
  float* tile = (float*)dynamic_lds;  // n floats
  int i = threadIdx.x;
  tile[i] = in[i];
  __syncthreads();
  out[i] = tile[i + (i == n - 1)];
}
KERNEL void lds_misaligned(const float* in, float* out, int n) {
  int i = threadIdx.x;
  *(volatile float*)(dynamic_lds + 4 * i + (i == 3 ? 2 : 0)) = in[i];
  __syncthreads();
  out[i] = in[i] + n;
}
KERNEL void lds_sound(const float* in, float* out, int n) {
  float* tile = (float*)dynamic_lds;
  int i = threadIdx.x;
  tile[i] = in[i];
  __syncthreads();
  out[i] = tile[(i + 1) % n];
}

KERNEL void scratch_overrun(const int* index, float* out, int n) {
  volatile float local[16];
  for (int k = 0; k < 16; ++k) local[k] = k;
  int i = threadIdx.x;
  if (i < n) out[i] = local[index[i]];  // index 4096 lies outside everything the lane has
}
KERNEL void scratch_misaligned(const int* index, float* out, int n) {
  volatile float local[16];
  for (int k = 0; k < 16; ++k) local[k] = k;
  int i = threadIdx.x;
  if (i < n) out[i] = *(volatile float*)((volatile char*)local + index[i]);
}

KERNEL void lds_unwritten(const float* in, float* out, int n) {
  float* tile = (float*)dynamic_lds;
  int i = threadIdx.x;
  if (i != 5) tile[i] = in[i];
  __syncthreads();
  out[i] = tile[(i + n - 1) % n];
}
KERNEL void global_unwritten(const float* in, float* out, int n) {
  int i = threadIdx.x;
  if (i < n) out[i] += in[i];  // out is an output
}
KERNEL void scratch_unwritten(const int* index, float* out, int n) {
  volatile float local[64];
  for (int k = 0; k < 63; ++k) local[k] = k;
  int i = threadIdx.x;
  if (i < n) out[i] = local[index[i]];
}
// Registers, by name: the compiler would not leave one unwritten.
KERNEL void vgpr_unwritten(const float* in, float* out, int n) {
  int i = threadIdx.x;
  float x;
  asm volatile("v_add_f32 %0, %1, v77" : "=v"(x) : "v"(in[i]) : "v77");
  if (i < n) out[i] = x;
}
KERNEL void sgpr_unwritten(const float* in, float* out, int n) {
  int i = threadIdx.x, x;
  asm volatile("s_add_i32 %0, %1, s77" : "=s"(x) : "s"(n) : "s77", "scc");
  if (i < n) out[i] = in[i] + x;
}
KERNEL void sgpr_decides(const float* in, float* out, int n) {
  int i = threadIdx.x, x;
  asm volatile("s_mov_b32 %0, s77" : "=s"(x) : : "s77");
  if (x > n)
    out[i] = in[i];
  else
    out[i] = 0;
}
KERNEL void vcc_decides(const float* in, float* out, int n) {
  int i = threadIdx.x;
  asm volatile("s_mov_b32 vcc_lo, s77\n\ts_mov_b32 vcc_hi, s77\n\ts_cbranch_vccnz L%=\n\ts_nop 0\nL%=:"
               :
               :
               : "s77", "vcc");
  if (i < n) out[i] = in[i];
}
// Written under half of EXEC only.
KERNEL void vgpr_partly_written(const float* in, float* out, int n) {
  int i = threadIdx.x;
  if (i & 1) asm volatile("v_mov_b32 v78, %0" : : "v"(in[i]) : "v78");
  float x;
  asm volatile("v_mov_b32 %0, v78" : "=v"(x) : : "v78");
  if (i < n) out[i] = x;
}
KERNEL void address_unwritten(const float* in, float* out, int n) {
  int i = threadIdx.x, x;
  asm volatile("v_and_b32 %0, 1, v79" : "=v"(x) : : "v79");
  if (i < n) out[i] = in[x];
}
// Moved about and never used: no error. Half of a register, lanes, conditions of switched-off lanes.
KERNEL void moved_only(const float* in, float* out, int n) {
  int i = threadIdx.x;
  int x, y;
  asm volatile("v_mov_b32 %0, v80" : "=v"(x) : : "v80");
  y = (x & 0xffff0000) | i;
  y &= 0xffff;
  int z = i < 32 ? x : i;
  if (i < n) out[i] = in[y] + (i < 32 ? 0 : z);
}
// Bits of a register that nothing has written, and what an instruction makes of the others.  The bits from
// `FROM` on are undefined; the lower 24 of each result are stored, by an instruction of their own.
#define STORE_PART(INSTRUCTION)                                                                  \
  {                                                                                              \
    int y;                                                                                       \
    asm volatile(INSTRUCTION : "=v"(y) : "v"(x), "v"(i), "v"(0x1ff), "v"(2), "v"(0xff) : "v81"); \
    ((volatile int*)out)[at += 64] = y & 0xffffff;                                               \
  }
#if defined(__gfx1100__)
#define STORE_PART_OF_HALF \
  STORE_PART("v_mov_b32 v81, %1\n\tv_and_b16 v81.l, v81.h, %5.l\n\tv_and_b32 %0, %5, v81")
#else
#define STORE_PART_OF_HALF STORE_PART("v_mul_u32_u24 %0, %1, %2")
#endif
#define PARTS(NAME, FROM)                                                            \
  KERNEL void NAME(const float* in, float* out, int n) {                             \
    int i = threadIdx.x, at = i - 64, x;                                             \
    asm volatile("v_lshl_or_b32 %0, v80, " #FROM ", %1" : "=v"(x) : "v"(i) : "v80"); \
    STORE_PART("v_and_or_b32 %0, %1, %3, %2")                                        \
    STORE_PART("v_lshl_add_u32 %0, %1, %4, %2")                                      \
    STORE_PART("v_add_lshl_u32 %0, %1, %2, %4")                                      \
    STORE_PART("v_xad_u32 %0, %1, %2, %3")                                           \
    STORE_PART("v_mul_u32_u24 %0, %1, %2")                                           \
    STORE_PART("v_mad_u32_u24 %0, %1, %2, %3")                                       \
    STORE_PART_OF_HALF                                                               \
  }
PARTS(undefined_part_counts, 8)
PARTS(undefined_part_does_not_count, 24)
KERNEL void registers_written(const float* in, float* out, int n) {
  int i = threadIdx.x, x;
  float y;
  asm volatile("v_mov_b32 v77, %1\n\tv_add_f32 %0, %1, v77" : "=v"(y) : "v"(in[i]) : "v77");
  asm volatile("s_mov_b32 s77, %1\n\ts_add_i32 %0, %1, s77" : "=s"(x) : "s"(n) : "s77", "scc");
  if (x > n && i < n) out[i] = y + x;
}
KERNEL void vcc_written(const float* in, float* out, int n) {
  int i = threadIdx.x;
  asm volatile("s_mov_b32 vcc_lo, %0\n\ts_mov_b32 vcc_hi, %0\n\ts_cbranch_vccnz L%=\n\ts_nop 0\nL%=:"
               :
               : "s"(n)
               : "vcc");
  if (i < n) out[i] = in[i];
}
KERNEL void vgpr_wholly_written(const float* in, float* out, int n) {
  int i = threadIdx.x;
  if (i & 1)
    asm volatile("v_mov_b32 v78, %0" : : "v"(in[i]) : "v78");
  else
    asm volatile("v_mov_b32 v78, 0" : : : "v78");
  float x;
  asm volatile("v_mov_b32 %0, v78" : "=v"(x) : : "v78");
  if (i < n) out[i] = x;
}
#if defined(__GFX9__) && !defined(__gfx906__)
KERNEL void agpr_written(const float* in, float* out, int n) {
  int i = threadIdx.x;
  float x;
  asm volatile("v_accvgpr_write_b32 a7, %1\n\ts_nop 2\n\tv_accvgpr_read_b32 %0, a7"
               : "=v"(x)
               : "v"(i)
               : "a7");
  if (i < n) out[i] = in[i] + x;
}
KERNEL void agpr_unwritten(const float* in, float* out, int n) {
  int i = threadIdx.x;
  float x;
  asm volatile("v_accvgpr_read_b32 %0, a7" : "=v"(x) : : "a7");
  if (i < n) out[i] = in[i] + x;
}
#endif

KERNEL void lds_race(const float* in, float* out, int n) {
  float* tile = (float*)dynamic_lds;
  int i = threadIdx.x;
  tile[i] = in[i];
  // no __syncthreads()
  __builtin_amdgcn_wave_barrier();
  out[i] = tile[(i + 64) % n];
}
KERNEL void lds_race_write(const float* in, float* out, int n) {
  float* tile = (float*)dynamic_lds;
  int i = threadIdx.x;
  for (int k = 0; k < 2; ++k) {
    tile[i] = in[i] + k;
    __syncthreads();
    out[i] = tile[(i + 64) % n];
    // no __syncthreads() before the next round's write
  }
}
KERNEL void lds_rounds_sound(const float* in, float* out, int n) {
  float* tile = (float*)dynamic_lds;
  int i = threadIdx.x;
  for (int k = 0; k < 2; ++k) {
    tile[i] = in[i] + k;
    __syncthreads();
    out[i] = tile[(i + 64) % n];
    __syncthreads();
  }
}
KERNEL void global_race_waves(const float* in, float* out, int n) {
  int i = threadIdx.x;
  out[i % 64] = in[i] + n;
}
KERNEL void global_race_groups(const float* in, float* out, int n) {
  int i = threadIdx.x;
  out[i] = in[i] + blockIdx.x + n;
}
KERNEL void barrier_behind_branch(const float* in, float* out, int n) {
  int i = threadIdx.x;
  if (i < n - 10) out[i] = in[i];
  __builtin_amdgcn_s_barrier();
}
KERNEL void barrier_in_branch(const float* in, float* out, int n) {
  int i = threadIdx.x;
  if (i < n - 10) {
    out[i] = in[i];
    __builtin_amdgcn_s_barrier();
  }
}
KERNEL void barrier_skipped_by_wave(const float* in, float* out, int n) {
  int i = threadIdx.x;
  out[i] = in[i];
  if (__builtin_amdgcn_readfirstlane(i) < n) __builtin_amdgcn_s_barrier();
}
KERNEL void endless(const float* in, float* out, int n) {
  volatile int go = 1;
  while (go) go = n != 0;
  out[threadIdx.x] = in[threadIdx.x];
}
KERNEL void loop_that_ends(const float* in, float* out, int n) {
  volatile int left = n;
  while (left) left = left - 1;
  out[threadIdx.x] = in[threadIdx.x];
}
