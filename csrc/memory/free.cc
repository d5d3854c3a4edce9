// The ways of a block back.
#include <time.h>

#include <cstdlib>
#include <cstring>

#include "block_pool.h"

namespace pfb::memory {
namespace {

std::uint64_t Milliseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1000000;
}

bool PowerOfTwo(std::size_t value) { return value != 0 && (value & (value - 1)) == 0; }

}  // namespace

int BlockPool::Free(void* payload) {
  if (payload == nullptr) return PFB_OK;
  if (closed_.load(std::memory_order_acquire)) return FreeClosed(payload);
  if (!Owns(payload)) return FreeFromSystem(payload);
  if (options_.debug) return FreeGuarded(payload);
  return slabs_.Contains(payload) ? FreeSmall(payload) : FreeLarge(payload);
}

BlockPool::Block BlockPool::Retract(void* payload, int* fault) {
  Block block;
  block.payload = payload;
  if (slabs_.Contains(payload)) {
    const std::size_t front = options_.debug ? kGuardBytes : 0;
    const Slabs::Block found = slabs_.Find(payload, front);
    if (found.size_class < 0) {
      *fault = PFB_FOREIGN;
      return block;
    }
    const std::uint32_t size = found.size->exchange(0, std::memory_order_acq_rel);
    *fault = size == 0 ? PFB_DOUBLE_FREE : PFB_OK;
    block.start = static_cast<char*>(payload) - front;
    block.bytes = ClassBytes(found.size_class);
    block.requested = size - 1;
    block.size_class = found.size_class;
    return block;
  }
  const PageHeap::Block found = heap_.Find(payload);
  const std::size_t front = static_cast<char*>(payload) - found.start;
  const bool first = options_.debug ? PowerOfTwo(front) && front >= kGuardBytes : front == 0;
  *fault = found.found == PageHeap::Found::kDead             ? PFB_DOUBLE_FREE
           : found.found == PageHeap::Found::kAlive && first ? PFB_OK
                                                             : PFB_FOREIGN;
  if (*fault != PFB_OK) return block;
  if (options_.debug && PayloadOf(found.start, found.bytes) != payload && front != kGuardBytes) {
    *fault = PFB_FOREIGN;  // an address within the block
    return block;
  }
  heap_.MarkDead(found);
  block.start = found.start;
  block.bytes = found.bytes;
  block.requested = found.requested;
  return block;
}

void BlockPool::GiveBackToHeap(const Block& block) {
  const std::size_t used = heap_.used();
  const bool decays = decay_.on() && decay_.Note(used, Milliseconds());
  heap_.GiveBack({PageHeap::Found::kDead, block.start, block.bytes, block.requested});
  if (heap_.held() - heap_.used() > options_.retain) heap_.Trim(options_.retain);
  if (decays && decay_.TooMuch(heap_.held())) heap_.Trim(decay_.recent() - heap_.used());
}

BlockPool::Block BlockPool::RetractLocked(void* payload, int* fault) {
  std::unique_lock<std::mutex> heap(heap_mutex_, std::defer_lock);
  if (heap_.Contains(payload)) heap.lock();
  return Retract(payload, fault);
}

void BlockPool::GiveBackLocked(const Block& block) {
  if (block.size_class < 0) {
    const std::lock_guard<std::mutex> heap(heap_mutex_);
    GiveBackToHeap(block);
  } else {
    void* start = block.start;
    slabs_.GiveBack(block.size_class, &start, 1);
  }
}

int BlockPool::FreeSmall(void* payload) {
  ThreadCache& cache = MyCache();
  int fault = PFB_OK;
  {
    const std::lock_guard<SpinLock> lock(cache.mutex);
    if (!closed_.load(std::memory_order_acquire)) {
      const Block block = Retract(payload, &fault);
      if (fault == PFB_OK) {
        ThreadCache::Shelf& shelf = cache.shelves[block.size_class];
        const int capacity = ThreadCache::Capacity(block.size_class);
        if (shelf.count == capacity) {
          // The older half goes: what was freed last is the likeliest to be in the processor's
          // cache.
          const int half = capacity / 2;
          slabs_.GiveBack(block.size_class, shelf.blocks, half);
          shelf.count -= half;
          std::memmove(shelf.blocks, shelf.blocks + half, shelf.count * sizeof(void*));
        }
        shelf.blocks[shelf.count++] = block.start;
        Counters& counters = cache.counters;
        ++counters.frees;
        --counters.live;
        counters.requested -= static_cast<std::int64_t>(block.requested);
        counters.block_bytes -= static_cast<std::int64_t>(block.bytes);
        if (counters.block_bytes < -kFlushBytes) Flush(cache);
        return PFB_OK;
      }
    }
  }
  return fault == PFB_OK ? FreeClosed(payload) : FaultOfFree(fault, payload);
}

int BlockPool::FreeLarge(void* payload) {
  int fault = PFB_OK;
  {
    const std::lock_guard<std::mutex> lock(heap_mutex_);
    if (!closed_.load(std::memory_order_acquire)) {
      const Block block = Retract(payload, &fault);
      if (fault == PFB_OK) {
        GiveBackToHeap(block);
        CountFreed(block);
        return PFB_OK;
      }
    }
  }
  return fault == PFB_OK ? FreeClosed(payload) : FaultOfFree(fault, payload);
}

int BlockPool::FreeFromSystem(void* payload) {
  {
    const std::lock_guard<std::mutex> lock(system_mutex_);
    const auto found = system_.find(payload);
    if (found != system_.end()) {
      system_.erase(found);
      std::free(payload);
      return PFB_OK;
    }
  }
  return FaultOfFree(PFB_FOREIGN, payload);
}

int BlockPool::FreeClosed(void* payload) {
  int result = PFB_OK;
  bool last = false;
  {
    std::unique_lock<std::mutex> debug(debug_mutex_, std::defer_lock);
    if (options_.debug) debug.lock();
    const std::lock_guard<std::mutex> lock(closed_mutex_);
    if (!Owns(payload)) {
      result = FreeFromSystem(payload);
    } else {
      const Block block = RetractLocked(payload, &result);
      if (result != PFB_OK) {
        FaultOfFree(result, payload);
      } else {
        if (options_.debug) result = CheckAlive(block);
        GiveBackLocked(block);
        const std::lock_guard<std::mutex> heap(heap_mutex_);
        heap_.Trim(0);
      }
    }
    const bool freed = result == PFB_OK || result == PFB_OVERRUN;
    last = freed && --left_ == 0;
  }
  if (last) delete this;
  return result;
}

}  // namespace pfb::memory
