// All pools of the process: what fork and the ends of threads have to know.
#pragma once

namespace pfb::memory {

class BlockPool;

void Register(BlockPool* pool);
void Unregister(BlockPool* pool);

// For pthread_key_create: gives a thread's cache back, if its pool still exists.
void RetireCache(void* cache);

}  // namespace pfb::memory
