/* Types shared by the C interface (fa_rocm.h) and the library: statuses, tensors, calls. */
#ifndef FA_TYPES_H
#define FA_TYPES_H

#include <stdint.h>

typedef enum fa_status {
  FA_OK = 0,
  FA_INVALID = 1,       /* the arguments break the function's contract */
  FA_UNSUPPORTED = 2,   /* no kernel in this library serves the call */
  FA_NO_RUNTIME = 3,    /* no HIP runtime in this process */
  FA_RUNTIME_ERROR = 4, /* the HIP runtime reported an error */
  FA_INTERNAL = 5       /* a defect of this library */
} fa_status;

typedef enum fa_dtype {
  FA_FP16 = 0,
  FA_BF16 = 1,
  FA_FP32 = 2,
  FA_OTHER_DTYPE = 3,
  FA_INT32 = 4,
  FA_INT64 = 5,
  FA_BOOL = 6, /* bytes, 0 or 1 */
  /* Codes of 8 bits, of caches: OCP's formats, e4m3fnuz with half of e4m3fn's values, and integers. */
  FA_E4M3FN = 7,
  FA_E4M3FNUZ = 8,
  FA_E5M2 = 9,
  FA_INT8 = 10
} fa_dtype;

typedef struct fa_message {
  char text[4096]; /* UTF-8, ends with a zero byte; "" after FA_OK, unless the function says otherwise */
} fa_message;

#define FA_MAX_DIMS 5

/* A strided tensor: `dims` <= FA_MAX_DIMS sizes and strides, in elements. `device` -1 is the current device.
 */
typedef struct fa_tensor {
  void* data;
  int32_t dtype; /* of fa_dtype */
  int32_t device;
  int32_t dims;
  int64_t size[FA_MAX_DIMS];
  int64_t stride[FA_MAX_DIMS];
} fa_tensor;

/* The calls, generated from calls.toml. fa_rocm.h explains them. */
#include "generated/host/fa_calls.h"

#endif
