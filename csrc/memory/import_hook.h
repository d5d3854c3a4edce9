// Serves the memory of another library's tensors from a pool, by replacing the entries for
// posix_memalign and free in that library's table of imported functions.
//
// Only requests with one exact alignment go to the pool; addresses of the pool are told from others
// by their range when they are freed.  The entries are never put back: memory of the pool may be
// alive as long as the process.  Switched off, they call the system's functions.
#pragma once

#include "pool.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pfb_hook_statistics {
  uint64_t requests;  // allocations with the alignment, whoever served them
  uint64_t requested_bytes;
  uint64_t served;  // ... of these by the pool
  uint64_t served_bytes;
  uint64_t freed;    // blocks of the pool that came back
  uint64_t entries;  // table entries that were replaced
} pfb_hook_statistics;

// Replaces the entries in the loaded libraries whose file names start with one of `prefixes`
// (comma separated), and serves requests aligned to `alignment` from `pool`, which must never be
// closed.  Off until enabled.  Returns 0, or an error with its reason in `reason`.  A second call
// covers libraries that were loaded since; pool and alignment stay the first call's.
PFB_POOL_API int pfb_hook_install(pfb_pool* pool, const char* prefixes, size_t alignment,
                                  char* reason, size_t capacity);

// Whether new requests go to the pool.
PFB_POOL_API void pfb_hook_enable(int on);

PFB_POOL_API void pfb_hook_get_statistics(pfb_hook_statistics* statistics);

#ifdef __cplusplus
}
#endif
