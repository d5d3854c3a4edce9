// The search for a small arena, behind memory/planner.py.  It knows nothing of the pool.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Places `count` buffers so that no two that are alive at the same step overlap.
//
//   sizes        bytes of each buffer, above 0
//   first, end   the steps at which it is alive, [first, end), below `steps`
//   bound        the search stops at an arena of this size
//   seconds      time for the search; the first placement is always completed
//   seed         of its random choices
//   offsets      receives the offset of each buffer
//
// Returns the size of the arena in bytes.
__attribute__((visibility("default"))) int64_t pfb_search_placement(
    uint32_t count, const int64_t* sizes, const uint32_t* first, const uint32_t* end,
    uint32_t steps, int64_t bound, double seconds, uint64_t seed, int64_t* offsets);

#ifdef __cplusplus
}
#endif
