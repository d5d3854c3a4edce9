// oneDNN's C++ interface as this engine uses it.  Include this instead of dnnl.hpp.
//
// The headers that we build against may be configured with experimental features, for which the
// C++ wrapper calls other C functions (dnnl_memory_create_v2, ...).  The library in Paddle's wheel
// is built without them and lacks those functions, so the features are switched off first.
#pragma once

#include "oneapi/dnnl/dnnl_config.h"

#undef DNNL_EXPERIMENTAL_SPARSE
#undef DNNL_EXPERIMENTAL

#include "oneapi/dnnl/dnnl.hpp"
