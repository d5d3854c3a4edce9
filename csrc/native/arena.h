// A block of aligned memory that a run of a plan works in.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

namespace pfb {

// Page-aligned, uninitialised, freed on destruction.
class Arena {
 public:
  explicit Arena(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    constexpr std::size_t kPage = 4096;
    void* block = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
    if (block == nullptr) throw std::bad_alloc();
    block_.reset(static_cast<char*>(block));
  }

  char* data() const { return block_.get(); }
  std::size_t bytes() const { return bytes_; }

 private:
  struct Free {
    void operator()(char* block) const { std::free(block); }
  };
  std::unique_ptr<char, Free> block_;
  std::size_t bytes_;
};

}  // namespace pfb
