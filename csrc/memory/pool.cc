// The C interface: nothing but calls.
#include "pool.h"

#include <cstring>
#include <string>

#include "block_pool.h"
#include "tags.h"

using pfb::memory::BlockPool;

namespace {

BlockPool* Unwrap(pfb_pool* pool) { return reinterpret_cast<BlockPool*>(pool); }

}  // namespace

pfb_pool* pfb_pool_create(const pfb_pool_options* options) {
  return reinterpret_cast<pfb_pool*>(BlockPool::Create(*options));
}

void pfb_pool_close(pfb_pool* pool) { Unwrap(pool)->Close(); }

void* pfb_pool_allocate(pfb_pool* pool, size_t bytes, size_t alignment) {
  return Unwrap(pool)->Allocate(bytes, alignment);
}

void* pfb_pool_allocate_for(pfb_pool* pool, size_t bytes, size_t alignment, uint32_t tag) {
  const std::uint32_t before = pfb::memory::CurrentTag();
  if (before == 0) pfb::memory::SetCurrentTag(tag);
  void* block = Unwrap(pool)->Allocate(bytes, alignment);
  pfb::memory::SetCurrentTag(before);
  return block;
}

int pfb_pool_free(pfb_pool* pool, void* block) { return Unwrap(pool)->Free(block); }

int pfb_pool_owns(const pfb_pool* pool, const void* address) {
  return reinterpret_cast<const BlockPool*>(pool)->Owns(address);
}

size_t pfb_pool_size(pfb_pool* pool, const void* block) {
  return Unwrap(pool)->SizeOf(const_cast<void*>(block));
}

size_t pfb_pool_reserve(pfb_pool* pool, size_t bytes, size_t count) {
  return Unwrap(pool)->Reserve(bytes, count);
}

uint64_t pfb_pool_trim(pfb_pool* pool) { return Unwrap(pool)->Trim(); }

void pfb_pool_get_statistics(pfb_pool* pool, pfb_pool_statistics* statistics) {
  *statistics = Unwrap(pool)->Statistics();
}

size_t pfb_pool_check(pfb_pool* pool) { return Unwrap(pool)->Check(); }

size_t pfb_pool_report(pfb_pool* pool, size_t index, char* text, size_t capacity) {
  const std::string report = Unwrap(pool)->Report(index);
  if (report.empty() || capacity == 0) return 0;
  const size_t length = report.copy(text, capacity - 1);
  text[length] = '\0';
  return length;
}

uint32_t pfb_pool_tag(const char* name) { return pfb::memory::TagOf(name); }

uint32_t pfb_pool_set_tag(uint32_t tag) { return pfb::memory::SetCurrentTag(tag); }
