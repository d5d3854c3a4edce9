// A block of aligned memory that a run of a plan works in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace pfb {

// Where arenas come from: functions of the block pool (csrc/memory/pool.h), which is a library of
// its own, or the system while there is none.
struct ArenaSource {
  void* pool = nullptr;
  void* (*allocate)(void* pool, std::size_t bytes, std::size_t alignment,
                    std::uint32_t tag) = nullptr;
  int (*free)(void* pool, void* block) = nullptr;
  std::uint32_t tag = 0;
};

// Set once, before the first plan runs.
inline ArenaSource& TheArenaSource() {
  static ArenaSource source;
  return source;
}

// Page-aligned, uninitialised, freed on destruction.
class Arena {
 public:
  explicit Arena(std::size_t bytes) : source_(TheArenaSource()), bytes_(bytes) {
    if (bytes == 0) return;
    constexpr std::size_t kPage = 4096;
    void* block = source_.allocate != nullptr
                      ? source_.allocate(source_.pool, bytes, kPage, source_.tag)
                      : std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
    if (block == nullptr) throw std::bad_alloc();
    block_ = static_cast<char*>(block);
  }
  ~Arena() {
    if (block_ == nullptr) return;
    if (source_.free != nullptr) {
      source_.free(source_.pool, block_);
    } else {
      std::free(block_);
    }
  }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  char* data() const { return block_; }
  std::size_t bytes() const { return bytes_; }

 private:
  const ArenaSource source_;
  char* block_ = nullptr;
  std::size_t bytes_;
};

}  // namespace pfb
