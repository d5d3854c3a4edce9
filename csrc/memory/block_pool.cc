#include "block_pool.h"

#include <unistd.h>

#include <algorithm>
#include <new>

#include "registry.h"

namespace pfb::memory {
namespace {

std::size_t AddressSpace(const pfb_pool_options& options) {
  if (options.address_space != 0) return options.address_space;
  const auto pages = static_cast<std::size_t>(std::max(sysconf(_SC_PHYS_PAGES), 1L));
  return std::max(pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)), std::size_t{1} << 30);
}

HugePages Huge(const pfb_pool_options& options) {
  switch (options.huge_pages) {
    case PFB_HUGE_TRANSPARENT:
      return HugePages::kTransparent;
    case PFB_HUGE_EXPLICIT:
      return HugePages::kExplicit;
    default:
      return HugePages::kNone;
  }
}

}  // namespace

BlockPool* BlockPool::Create(const pfb_pool_options& options) {
  auto* pool = new (std::nothrow) BlockPool(options);
  if (pool == nullptr) return nullptr;
  if (!pool->slabs_.usable() || !pool->heap_.usable()) {
    delete pool;
    return nullptr;
  }
  Register(pool);
  return pool;
}

BlockPool::BlockPool(const pfb_pool_options& options)
    : options_(options),
      budget_(options.limit),
      // Small blocks are small: a quarter of the addresses is plenty.
      slabs_(AddressSpace(options) / 4, Huge(options), budget_),
      heap_(AddressSpace(options), Huge(options), budget_),
      decay_(options.decay_ms) {
  has_key_ = options.thread_caches != 0 && pthread_key_create(&key_, RetireCache) == 0;
}

BlockPool::~BlockPool() {
  Unregister(this);
  if (has_key_) pthread_key_delete(key_);
}

ThreadCache& BlockPool::MyCache() {
  if (!has_key_) return shared_;
  auto* mine = static_cast<ThreadCache*>(pthread_getspecific(key_));
  if (mine == nullptr) mine = NewCache();
  return mine == nullptr ? shared_ : *mine;
}

ThreadCache* BlockPool::NewCache() {
  const std::lock_guard<std::mutex> lock(caches_mutex_);
  ThreadCache* mine = nullptr;
  for (auto& cache : caches_) {
    if (cache->idle) mine = cache.get();
  }
  if (mine == nullptr) {
    mine = new (std::nothrow) ThreadCache();
    if (mine == nullptr) return nullptr;
    caches_.emplace_back(mine);
  }
  if (pthread_setspecific(key_, mine) != 0) {
    mine->idle = true;
    return nullptr;
  }
  mine->idle = false;
  return mine;
}

bool BlockPool::Retire(ThreadCache* ended) {
  const std::lock_guard<std::mutex> lock(caches_mutex_);
  for (auto& cache : caches_) {
    if (cache.get() != ended) continue;
    const std::lock_guard<SpinLock> hold(ended->mutex);
    EmptyShelves(*ended);
    Flush(*ended);
    ended->idle = true;
    return true;
  }
  return false;
}

void BlockPool::EmptyShelves(ThreadCache& cache) {
  for (int index = 0; index < kSizeClasses; ++index) {
    ThreadCache::Shelf& shelf = cache.shelves[index];
    if (shelf.count > 0) slabs_.GiveBack(index, shelf.blocks, shelf.count);
    shelf.count = 0;
  }
}

void BlockPool::Flush(ThreadCache& cache) {
  Count(cache.counters);
  cache.counters = {};
}

void BlockPool::Count(const Counters& more) {
  const std::lock_guard<std::mutex> lock(totals_mutex_);
  totals_.requested += more.requested;
  totals_.block_bytes += more.block_bytes;
  totals_.live += more.live;
  totals_.allocations += more.allocations;
  totals_.frees += more.frees;
  totals_.cache_hits += more.cache_hits;
  totals_.pool_hits += more.pool_hits;
  totals_.grown += more.grown;
  high_water_ = std::max(high_water_, totals_.block_bytes);
}

void BlockPool::CountFreed(const Block& block) {
  Counters counters;
  counters.frees = 1;
  counters.live = -1;
  counters.requested = -static_cast<std::int64_t>(block.requested);
  counters.block_bytes = -static_cast<std::int64_t>(block.bytes);
  Count(counters);
}

void BlockPool::TrimCaches() {
  const std::lock_guard<std::mutex> lock(caches_mutex_);
  for (auto& cache : caches_) {
    const std::lock_guard<SpinLock> hold(cache->mutex);
    EmptyShelves(*cache);
  }
  const std::lock_guard<SpinLock> hold(shared_.mutex);
  EmptyShelves(shared_);
}

std::uint64_t BlockPool::TrimHeld() {
  TrimCaches();
  std::uint64_t released = slabs_.Trim();
  const std::lock_guard<std::mutex> lock(heap_mutex_);
  return released + heap_.Trim(0);
}

std::uint64_t BlockPool::Trim() {
  if (options_.debug) {
    const std::lock_guard<std::mutex> lock(debug_mutex_);
    LeaveQuarantine(0);
  }
  return TrimHeld();
}

std::size_t BlockPool::Reserve(std::size_t bytes, std::size_t count) {
  std::vector<void*> blocks;
  while (blocks.size() < count) {
    void* block = Allocate(bytes, kBlockAlignment);
    if (block == nullptr) break;
    blocks.push_back(block);
    if (!Owns(block)) break;  // from the system: that is no reserve
    for (std::size_t at = 0; at < bytes; at += kPageBytes) {
      static_cast<volatile char*>(block)[at] = 0;
    }
  }
  const std::size_t reserved = blocks.size() - (!blocks.empty() && !Owns(blocks.back()) ? 1 : 0);
  for (void* block : blocks) Free(block);
  return reserved;
}

pfb_pool_statistics BlockPool::Statistics() {
  pfb_pool_statistics result{};
  {
    const std::lock_guard<std::mutex> lock(caches_mutex_);
    const auto look = [&](ThreadCache& cache) {
      const std::lock_guard<SpinLock> hold(cache.mutex);
      Flush(cache);
      for (int i = 0; i < kSizeClasses; ++i) {
        result.cached_bytes += cache.shelves[i].count * ClassBytes(i);
      }
    };
    for (auto& cache : caches_) look(*cache);
    look(shared_);
  }
  {
    const std::lock_guard<std::mutex> lock(heap_mutex_);
    result.heap_held = heap_.held();
    result.heap_free = heap_.held() - heap_.used();
    result.heap_largest = heap_.largest_free();
    result.address_space = heap_.address_space();
    result.huge_refused = heap_.huge_refused();
  }
  result.slab_held = slabs_.held();
  result.held = budget_.held();
  result.high_water_held = budget_.most();
  result.released = budget_.released();
  result.exhausted = exhausted_.load(std::memory_order_relaxed);
  {
    const std::lock_guard<std::mutex> lock(system_mutex_);
    result.system_live = system_.size();
  }
  {
    const std::lock_guard<std::mutex> lock(reports_mutex_);
    result.faults = faults_;
  }
  const std::lock_guard<std::mutex> lock(totals_mutex_);
  result.requested = totals_.requested;
  result.block_bytes = totals_.block_bytes;
  result.live = totals_.live;
  result.high_water = high_water_;
  result.allocations = totals_.allocations;
  result.frees = totals_.frees;
  result.cache_hits = totals_.cache_hits;
  result.pool_hits = totals_.pool_hits;
  result.grown = totals_.grown;
  return result;
}

void BlockPool::Close() {
  std::size_t left = 0;
  {
    const std::lock_guard<std::mutex> debug(debug_mutex_);
    LeaveQuarantine(0);
    const std::lock_guard<std::mutex> closing(closed_mutex_);
    {
      const std::lock_guard<std::mutex> lock(caches_mutex_);
      // Whoever looks at `closed_` and frees does so under the lock of a cache or of the heap.
      for (auto& cache : caches_) cache->mutex.lock();
      shared_.mutex.lock();
      const std::lock_guard<std::mutex> heap(heap_mutex_);
      closed_.store(true, std::memory_order_release);
      slabs_.ForEachAlive([&](char*, int, std::size_t) { ++left; });
      heap_.ForEachAlive([&](char*, std::size_t, std::size_t) { ++left; });
      shared_.mutex.unlock();
      for (auto& cache : caches_) cache->mutex.unlock();
    }
    {
      const std::lock_guard<std::mutex> lock(system_mutex_);
      left += system_.size();
    }
    left_ = left;
    TrimHeld();
  }
  // With blocks left, whoever frees the last of them may have ended the pool already.
  if (left == 0) delete this;
}

void BlockPool::LockAll() {
  debug_mutex_.lock();
  closed_mutex_.lock();
  caches_mutex_.lock();
  for (auto& cache : caches_) cache->mutex.lock();
  shared_.mutex.lock();
  slabs_.Lock();
  heap_mutex_.lock();
  totals_mutex_.lock();
  system_mutex_.lock();
  reports_mutex_.lock();
}

void BlockPool::UnlockAll(bool in_child) {
  reports_mutex_.unlock();
  system_mutex_.unlock();
  totals_mutex_.unlock();
  heap_mutex_.unlock();
  slabs_.Unlock();
  shared_.mutex.unlock();
  for (auto& cache : caches_) cache->mutex.unlock();
  if (in_child) {
    // The other threads are not here: whoever starts may have their caches.
    const void* mine = has_key_ ? pthread_getspecific(key_) : nullptr;
    for (auto& cache : caches_) cache->idle = cache.get() != mine;
  }
  caches_mutex_.unlock();
  closed_mutex_.unlock();
  debug_mutex_.unlock();
}

}  // namespace pfb::memory
