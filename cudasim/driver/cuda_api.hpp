// cuda.h with every version of every name declared as it is exported (cuMemAlloc_v2, not the macro), and
// visible outside the library although the project compiles with hidden visibility.
#pragma once
#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <cuda.h>
#pragma GCC visibility pop
