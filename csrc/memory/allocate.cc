// The ways of an allocation.
#include <cstdlib>
#include <new>

#include "block_pool.h"
#include "tags.h"

namespace pfb::memory {

void* BlockPool::Allocate(std::size_t bytes, std::size_t alignment) {
  const bool power_of_two = alignment != 0 && (alignment & (alignment - 1)) == 0;
  if (!power_of_two || alignment > kPageBytes || bytes > SIZE_MAX / 4) return nullptr;
  if (bytes == 0) bytes = 1;
  void* payload =
      options_.debug ? AllocateGuarded(bytes, alignment) : Serve(bytes, bytes, alignment);
  if (payload != nullptr || closed_.load(std::memory_order_acquire)) return payload;
  exhausted_.fetch_add(1, std::memory_order_relaxed);
  if (options_.exhaustion != PFB_EXHAUSTED_SYSTEM) return nullptr;
  return AllocateFromSystem(bytes, alignment);
}

void* BlockPool::Serve(std::size_t bytes, std::size_t requested, std::size_t alignment) {
  const bool small = bytes <= kLargestSmall && alignment <= kBlockAlignment;
  for (int attempt = 0;; ++attempt) {
    void* start =
        small ? AllocateSmall(ClassOf(bytes), requested) : AllocateLarge(bytes, requested);
    if (start != nullptr || attempt > 0 || closed_.load(std::memory_order_acquire)) return start;
    // What lies free in caches and in the other half of the pool counts against the limit.
    TrimHeld();
  }
}

void* BlockPool::AllocateSmall(int index, std::size_t requested) {
  ThreadCache& cache = MyCache();
  const std::lock_guard<SpinLock> lock(cache.mutex);
  if (closed_.load(std::memory_order_acquire)) return nullptr;
  ThreadCache::Shelf& shelf = cache.shelves[index];
  if (shelf.count > 0) {
    ++cache.counters.cache_hits;
  } else {
    bool grown = false;
    const std::size_t batch = ThreadCache::Capacity(index) / 2;
    shelf.count = static_cast<int>(slabs_.Take(index, shelf.blocks, batch, &grown));
    if (shelf.count == 0) return nullptr;
    ++(grown ? cache.counters.grown : cache.counters.pool_hits);
  }
  void* start = shelf.blocks[--shelf.count];
  slabs_.Find(start, 0).size->store(static_cast<std::uint32_t>(requested + 1),
                                    std::memory_order_release);
  Counters& counters = cache.counters;
  ++counters.allocations;
  ++counters.live;
  counters.requested += static_cast<std::int64_t>(requested);
  counters.block_bytes += static_cast<std::int64_t>(ClassBytes(index));
  if (counters.block_bytes > kFlushBytes) Flush(cache);
  return start;
}

void* BlockPool::AllocateLarge(std::size_t bytes, std::size_t requested) {
  const std::lock_guard<std::mutex> lock(heap_mutex_);
  if (closed_.load(std::memory_order_acquire)) return nullptr;
  const PageHeap::Taken taken = heap_.Take(bytes, requested);
  if (taken.start == nullptr) return nullptr;
  Counters counters;
  counters.requested = static_cast<std::int64_t>(requested);
  counters.block_bytes = static_cast<std::int64_t>(taken.bytes);
  counters.live = 1;
  counters.allocations = 1;
  ++(taken.grown ? counters.grown : counters.pool_hits);
  Count(counters);
  return taken.start;
}

void* BlockPool::AllocateGuarded(std::size_t bytes, std::size_t alignment) {
  const std::lock_guard<std::mutex> lock(debug_mutex_);
  const std::size_t front = alignment <= kBlockAlignment ? kGuardBytes : alignment;
  const std::size_t whole = front + bytes + kGuardBytes;
  auto* start = static_cast<char*>(Serve(whole, bytes, alignment));
  if (start == nullptr) {
    LeaveQuarantine(0);
    start = static_cast<char*>(Serve(whole, bytes, alignment));
    if (start == nullptr) return nullptr;
  }
  const std::size_t space = slabs_.Contains(start) ? ClassBytes(slabs_.Find(start, 0).size_class)
                                                   : RoundUp(whole, kPageBytes);
  Arm({start, start + front, start + space, bytes}, CurrentTag(), ++number_);
  return start + front;
}

void* BlockPool::AllocateFromSystem(std::size_t bytes, std::size_t alignment) {
  if (alignment < kBlockAlignment) alignment = kBlockAlignment;
  void* payload = std::aligned_alloc(alignment, RoundUp(bytes, alignment));
  if (payload == nullptr) return nullptr;
  const std::lock_guard<std::mutex> lock(system_mutex_);
  system_.emplace(payload, bytes);
  return payload;
}

}  // namespace pfb::memory
