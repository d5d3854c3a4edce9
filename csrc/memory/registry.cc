#include "registry.h"

#include <pthread.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "block_pool.h"
#include "tags.h"

namespace pfb::memory {
namespace {

// Never destroyed: threads and tensors may end after main.
struct Registry {
  std::mutex mutex;
  std::vector<BlockPool*> pools;
};

Registry& All() {
  static Registry& registry = *new Registry();
  return registry;
}

void BeforeFork() {
  All().mutex.lock();
  for (BlockPool* pool : All().pools) pool->LockAll();
  LockTags();
}

void AfterFork(bool in_child) {
  UnlockTags();
  auto& pools = All().pools;
  for (auto pool = pools.rbegin(); pool != pools.rend(); ++pool) (*pool)->UnlockAll(in_child);
  All().mutex.unlock();
}

}  // namespace

void Register(BlockPool* pool) {
  static const int handlers =
      pthread_atfork(BeforeFork, [] { AfterFork(false); }, [] { AfterFork(true); });
  static_cast<void>(handlers);
  const std::lock_guard<std::mutex> lock(All().mutex);
  All().pools.push_back(pool);
}

void Unregister(BlockPool* pool) {
  const std::lock_guard<std::mutex> lock(All().mutex);
  auto& pools = All().pools;
  pools.erase(std::remove(pools.begin(), pools.end(), pool), pools.end());
}

void RetireCache(void* opaque) {
  auto* cache = static_cast<ThreadCache*>(opaque);
  const std::lock_guard<std::mutex> lock(All().mutex);
  // The cache itself may be gone with its pool: it is only looked for.
  for (BlockPool* pool : All().pools) {
    if (pool->Retire(cache)) return;
  }
}

}  // namespace pfb::memory
