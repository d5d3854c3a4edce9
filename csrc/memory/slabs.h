// Small blocks: slabs of 256 KiB, each cut into blocks of one size class.
//
// Which blocks of a slab are free, and how many bytes each live one was asked for, stands outside
// of it: memory of free blocks is not touched, and no overrun can break the lists.  Each class has
// a lock of its own, the table of slabs another; `Sizes` are atomic.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "budget.h"
#include "region.h"
#include "size_classes.h"

namespace pfb::memory {

constexpr std::size_t kSlabBytes = 256 * 1024;

class Slabs {
 public:
  Slabs(std::size_t address_space, HugePages huge, Budget& budget);

  bool usable() const { return region_.base() != nullptr && tables_.base() != nullptr; }
  bool Contains(const void* address) const { return region_.Contains(address); }

  // Moves up to `count` free blocks of class `index` to `blocks`; returns how many.  When the class
  // has none, a slab is taken, if the budget allows it; `grown` tells when from the system.
  std::size_t Take(int index, void** blocks, std::size_t count, bool* grown);

  // Takes free blocks of one class back.
  void GiveBack(int index, void* const* blocks, std::size_t count);

  // The block that begins at `address` less `front`.
  struct Block {
    int size_class = -1;  // -1: there is none
    std::atomic<std::uint32_t>* size = nullptr;
  };
  Block Find(const void* address, std::size_t front) const;

  // What `Find` gives as `size`: bytes asked for plus one while the block is alive, else 0.
  // Calls visit(start, class, bytes requested) for every block alive.
  template <typename Visit>
  void ForEachAlive(Visit visit) const;

  // Gives the memory of unused slabs back to the system; returns the bytes.
  std::size_t Trim();

  std::size_t held() const { return held_.load(std::memory_order_relaxed) * kSlabBytes; }

  // Around fork: all locks.
  void Lock();
  void Unlock();

 private:
  static constexpr std::uint32_t kNone = 0;  // lists hold slab + 1
  static constexpr std::size_t kMostBlocks = kSlabBytes / kBlockAlignment;

  struct Slab {
    std::atomic<int> size_class{-1};
    std::uint32_t free = 0;   // blocks on the stack
    std::uint32_t fresh = 0;  // blocks from here on were never handed out
    std::uint32_t next = kNone, previous = kNone;
    bool resident = false;
  };
  struct Tables {  // of one slab
    std::atomic<std::uint32_t> sizes[kMostBlocks];
    std::uint16_t stack[kMostBlocks];
  };
  struct Class {
    std::mutex mutex;
    std::uint32_t partial = kNone;  // slabs with a free block
  };

  Tables& TablesOf(std::size_t slab) const {
    return *reinterpret_cast<Tables*>(tables_.base() + slab * RoundUp(sizeof(Tables), kPageBytes));
  }
  Slab& SlabAt(std::size_t slab) const { return reinterpret_cast<Slab*>(slabs_.base())[slab]; }
  static std::uint32_t Capacity(int index) {
    return static_cast<std::uint32_t>(kSlabBytes / ClassBytes(index));
  }
  void Link(Class& of, std::size_t slab);
  void Unlink(Class& of, std::size_t slab);
  std::size_t TakeFrom(int index, std::size_t slab, void** blocks, std::size_t count);
  // Slab + 1, made ready for class `index`; 0 when there is none to be had.
  std::size_t NewSlab(int index, bool* grown);
  std::size_t AddSlab();

  Budget& budget_;
  Region region_;
  Region tables_;
  Region slabs_;
  Class classes_[kSizeClasses];
  std::mutex mutex_;  // of what follows; taken after a class's
  std::uint32_t unused_ = kNone;
  std::atomic<std::size_t> end_{0};   // slabs below were used at least once
  std::atomic<std::size_t> held_{0};  // slabs whose memory the system provides
};

template <typename Visit>
void Slabs::ForEachAlive(Visit visit) const {
  const std::size_t end = end_.load(std::memory_order_acquire);
  for (std::size_t slab = 0; slab < end; ++slab) {
    const int index = SlabAt(slab).size_class.load(std::memory_order_acquire);
    if (index < 0) continue;
    const std::size_t bytes = ClassBytes(index);
    for (std::uint32_t i = 0; i < Capacity(index); ++i) {
      const std::uint32_t size = TablesOf(slab).sizes[i].load(std::memory_order_acquire);
      if (size != 0) visit(region_.base() + slab * kSlabBytes + i * bytes, index, size - 1);
    }
  }
}

}  // namespace pfb::memory
