#pragma once
#include <cuda/std/cstddef>
using ::cuda::std::max_align_t;
