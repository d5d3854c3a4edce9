// The block pool: thread caches before slabs for small blocks, a heap of pages for large ones.
//
// Locks, in the order in which they are taken: the registry's, debug, closed, the list of caches,
// one cache, one size class, the table of slabs, the heap, then totals, system and reports.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "budget.h"
#include "decay.h"
#include "guard.h"
#include "page_heap.h"
#include "pool.h"
#include "slabs.h"
#include "thread_cache.h"

namespace pfb::memory {

class BlockPool {
 public:
  // Null when no addresses are to be had.
  static BlockPool* Create(const pfb_pool_options& options);

  void* Allocate(std::size_t bytes, std::size_t alignment);
  int Free(void* payload);
  // No more allocations; the pool ends with its last block.
  void Close();

  bool Owns(const void* address) const {
    return slabs_.Contains(address) || heap_.Contains(address);
  }
  std::size_t SizeOf(void* payload);
  std::size_t Reserve(std::size_t bytes, std::size_t count);
  std::uint64_t Trim();
  pfb_pool_statistics Statistics();
  std::size_t Check();
  std::string Report(std::size_t index);

  // For the registry: around fork, and at the end of a thread.
  void LockAll();
  void UnlockAll(bool in_child);
  bool Retire(ThreadCache* cache);  // false: it is not this pool's

 private:
  struct Block {
    void* payload = nullptr;  // as its owner sees it
    char* start = nullptr;
    std::size_t bytes = 0;
    std::size_t requested = 0;
    int size_class = -1;  // -1: from the heap
  };
  struct Quarantined {
    Block block;
    std::uint32_t tag;
    std::uint64_t number;
  };

  explicit BlockPool(const pfb_pool_options& options);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // allocate.cc
  void* Serve(std::size_t bytes, std::size_t requested, std::size_t alignment);
  void* AllocateSmall(int index, std::size_t requested);
  void* AllocateLarge(std::size_t bytes, std::size_t requested);
  void* AllocateGuarded(std::size_t bytes, std::size_t alignment);
  void* AllocateFromSystem(std::size_t bytes, std::size_t alignment);

  // free.cc
  int FreeSmall(void* payload);
  int FreeLarge(void* payload);
  int FreeFromSystem(void* payload);
  int FreeClosed(void* payload);
  // Takes a block out of the living without giving its memory back.  For large ones the caller
  // holds the heap's lock, as for GiveBackToHeap.
  Block Retract(void* payload, int* fault);
  void GiveBackToHeap(const Block& block);
  Block RetractLocked(void* payload, int* fault);
  void GiveBackLocked(const Block& block);

  // debugging.cc
  int FreeGuarded(void* payload);
  int CheckAlive(const Block& block);
  void CheckDead(const Quarantined& dead);
  void LeaveQuarantine(std::size_t until_bytes);
  int FaultOfFree(int kind, void* payload);
  int Fault(int kind, const std::string& text);

  // block_pool.cc
  ThreadCache& MyCache();
  ThreadCache* NewCache();
  void Flush(ThreadCache& cache);  // its counters to the totals
  void Count(const Counters& more);
  void CountFreed(const Block& block);
  void EmptyShelves(ThreadCache& cache);
  void TrimCaches();
  std::uint64_t TrimHeld();

  const pfb_pool_options options_;
  Budget budget_;
  Slabs slabs_;
  std::mutex heap_mutex_;
  PageHeap heap_;
  Decay decay_;  // guarded by the heap's lock

  pthread_key_t key_{};
  bool has_key_ = false;
  ThreadCache shared_;  // of all threads, where there is no other
  std::mutex caches_mutex_;
  std::vector<std::unique_ptr<ThreadCache>> caches_;

  std::mutex totals_mutex_;
  Counters totals_;
  std::int64_t high_water_ = 0;
  std::atomic<std::uint64_t> exhausted_{0};

  std::mutex system_mutex_;
  std::unordered_map<void*, std::size_t> system_;  // payload -> bytes asked for

  std::mutex debug_mutex_;
  std::deque<Quarantined> quarantine_;
  std::size_t quarantine_bytes_ = 0;
  std::uint64_t number_ = 0;

  std::mutex reports_mutex_;
  std::deque<std::string> reports_;
  std::uint64_t faults_ = 0;

  std::atomic<bool> closed_{false};
  std::mutex closed_mutex_;
  std::size_t left_ = 0;  // blocks alive in a closed pool
};

}  // namespace pfb::memory
