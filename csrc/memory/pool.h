// The C interface of the block pool.  It knows nothing of Paddle, oneDNN or Python.
//
// All functions may be called from any thread, and from a forked child.  Sizes are in bytes.
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define PFB_POOL_API __attribute__((visibility("default")))
#else
#define PFB_POOL_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pfb_pool pfb_pool;

enum pfb_huge_pages {
  PFB_HUGE_NONE = 0,
  PFB_HUGE_TRANSPARENT = 1,  // advises the kernel; costs nothing where it does not follow
  PFB_HUGE_EXPLICIT = 2,     // from the machine's reserved huge pages; ordinary ones when short
};

enum pfb_exhaustion {
  PFB_EXHAUSTED_ERROR = 0,   // allocation gives NULL
  PFB_EXHAUSTED_SYSTEM = 1,  // allocation is served by the system's allocator
};

enum pfb_fault {
  PFB_OK = 0,
  PFB_FOREIGN = 1,          // the address is not the start of a block of this pool
  PFB_DOUBLE_FREE = 2,      // the block was free already
  PFB_OVERRUN = 3,          // bytes outside the block were written (debug)
  PFB_WRITE_AFTER_FREE = 4  // bytes of a free block were written (debug)
};

typedef struct pfb_pool_options {
  uint64_t limit;           // most bytes held from the system; 0: no limit but the address space
  uint64_t address_space;   // bytes of addresses to reserve; 0: as much as the machine has memory
  uint64_t retain;          // free bytes of the heap kept for reuse; UINT64_MAX: all of them
  uint32_t decay_ms;        // more than was used at once within this time is not kept; 0: no decay
  uint32_t huge_pages;      // enum pfb_huge_pages
  uint32_t exhaustion;      // enum pfb_exhaustion
  uint32_t thread_caches;   // 0: every operation takes a lock
  uint32_t debug;           // guards and poison around every block, and a quarantine; slow
  uint32_t abort_on_fault;  // a fault ends the process after its report was printed
} pfb_pool_options;

typedef struct pfb_pool_statistics {
  uint64_t requested;        // bytes asked for and not yet given back
  uint64_t block_bytes;      // bytes of the blocks that serve them
  uint64_t held;             // bytes taken from the system and not given back
  uint64_t live;             // blocks alive
  uint64_t high_water;       // most bytes of blocks alive at once (to 256 KiB per thread)
  uint64_t high_water_held;  // most bytes held at once
  uint64_t allocations;
  uint64_t frees;
  uint64_t cache_hits;     // allocations served by the calling thread's cache
  uint64_t pool_hits;      // ... by memory that the pool held already
  uint64_t grown;          // ... by memory that was taken from the system for it
  uint64_t exhausted;      // allocations that the pool could not serve
  uint64_t system_live;    // blocks alive that the system's allocator serves
  uint64_t cached_bytes;   // bytes of free blocks in thread caches
  uint64_t heap_held;      // bytes that the heap of large blocks holds, used and free
  uint64_t heap_free;      // ... of these free
  uint64_t heap_largest;   // the longest run of free bytes in the heap
  uint64_t slab_held;      // bytes of the slabs of small blocks
  uint64_t released;       // bytes given back to the system so far
  uint64_t faults;         // faults reported so far
  uint64_t huge_refused;   // times that explicit huge pages were not to be had
  uint64_t address_space;  // bytes of addresses reserved for large blocks
} pfb_pool_statistics;

// NULL when not even a small range of addresses can be reserved.
PFB_POOL_API pfb_pool* pfb_pool_create(const pfb_pool_options* options);

// The owner lets go.  Blocks that are alive stay valid; the last one to be freed ends the pool.
PFB_POOL_API void pfb_pool_close(pfb_pool* pool);

// A block of at least `bytes` bytes, aligned to `alignment` (a power of two, at most 4096; at least
// 64 is given).  Its content is undefined.  NULL when the pool is exhausted or closed.
PFB_POOL_API void* pfb_pool_allocate(pfb_pool* pool, size_t bytes, size_t alignment);

// The same; where the calling thread has no tag of its own, reports name the block by `tag`.
PFB_POOL_API void* pfb_pool_allocate_for(pfb_pool* pool, size_t bytes, size_t alignment,
                                         uint32_t tag);

// Takes a block back; returns enum pfb_fault.  After PFB_OVERRUN the block is free all the same.
PFB_POOL_API int pfb_pool_free(pfb_pool* pool, void* block);

// Whether an address lies in the pool's range (blocks served by the system do not).
PFB_POOL_API int pfb_pool_owns(const pfb_pool* pool, const void* address);

// Bytes that were asked for when the block was allocated; 0 when it is not alive.
PFB_POOL_API size_t pfb_pool_size(pfb_pool* pool, const void* block);

// Takes `count` blocks of `bytes` bytes from the system, and touches them, ahead of use.
// Returns how many the limit allowed.
PFB_POOL_API size_t pfb_pool_reserve(pfb_pool* pool, size_t bytes, size_t count);

// Gives free memory back to the system, caches of all threads included; returns the bytes.
PFB_POOL_API uint64_t pfb_pool_trim(pfb_pool* pool);

PFB_POOL_API void pfb_pool_get_statistics(pfb_pool* pool, pfb_pool_statistics* statistics);

// Examines all blocks, alive and in quarantine (debug); returns the number of faults found.
PFB_POOL_API size_t pfb_pool_check(pfb_pool* pool);

// Copies the report of fault `index` (of those kept; the newest 64) as text; 0 when there is none.
PFB_POOL_API size_t pfb_pool_report(pfb_pool* pool, size_t index, char* text, size_t capacity);

// What the calling thread's allocations are for, as reports name it; returns the tag before.
// Tag 0 has no name.  Tags are never forgotten: use few.
PFB_POOL_API uint32_t pfb_pool_tag(const char* name);
PFB_POOL_API uint32_t pfb_pool_set_tag(uint32_t tag);

#ifdef __cplusplus
}
#endif
