// Free small blocks that one thread keeps for itself, and what it counted.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "size_classes.h"

namespace pfb::memory {

// Held by its thread for the length of one operation; others take it to look, to trim and to fork.
// So it is free nearly always, and waiting may be simple.
class SpinLock {
 public:
  void lock() {
    while (taken_.exchange(true, std::memory_order_acquire)) sched_yield();
  }
  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> taken_{false};
};

// What happened in one thread since the totals were last brought up to date.
struct Counters {
  std::int64_t requested = 0, block_bytes = 0, live = 0;  // may be negative: freed by another
  std::uint64_t allocations = 0, frees = 0, cache_hits = 0, pool_hits = 0, grown = 0;
};

// A thread's counters join the totals when they are off by so much: the high-water mark is exact to
// this many bytes per thread.
constexpr std::int64_t kFlushBytes = 256 * 1024;

struct ThreadCache {
  static constexpr int kMostBlocks = 64;
  // Per class at most 64 KiB, but two blocks in any case.
  static constexpr int Capacity(int index) {
    const std::size_t fit = 64 * 1024 / ClassBytes(index);
    return static_cast<int>(std::clamp<std::size_t>(fit, 2, kMostBlocks));
  }

  struct Shelf {
    int count = 0;
    void* blocks[kMostBlocks];
  };

  SpinLock mutex;
  bool idle = false;  // guarded by the pool's list of caches: its thread has ended: the next new
                      // thread takes it over
  Counters counters;
  Shelf shelves[kSizeClasses];
};

}  // namespace pfb::memory
