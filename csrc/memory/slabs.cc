#include "slabs.h"

#include <new>

namespace pfb::memory {
namespace {

constexpr std::size_t kLeast = std::size_t{16} << 20;

}  // namespace

Slabs::Slabs(std::size_t address_space, HugePages huge, Budget& budget)
    : budget_(budget),
      region_(address_space, kLeast, huge),
      tables_(region_.bytes() / kSlabBytes * RoundUp(sizeof(Tables), kPageBytes),
              region_.bytes() / kSlabBytes * RoundUp(sizeof(Tables), kPageBytes), HugePages::kNone),
      slabs_(region_.bytes() / kSlabBytes * sizeof(Slab),
             region_.bytes() / kSlabBytes * sizeof(Slab), HugePages::kNone) {}

std::size_t Slabs::Take(int index, void** blocks, std::size_t count, bool* grown) {
  Class& of = classes_[index];
  const std::lock_guard<std::mutex> lock(of.mutex);
  if (of.partial == kNone) {
    const std::size_t made = NewSlab(index, grown);
    if (made == kNone) return 0;
    Link(of, made - 1);
  }
  std::size_t taken = 0;
  while (taken < count && of.partial != kNone) {
    taken += TakeFrom(index, of.partial - 1, blocks + taken, count - taken);
  }
  return taken;
}

std::size_t Slabs::NewSlab(int index, bool* grown) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool held = unused_ != kNone && SlabAt(unused_ - 1).resident;
  if (!held && !budget_.Take(kSlabBytes)) return kNone;
  std::size_t slab = unused_;
  if (slab != kNone) {
    unused_ = SlabAt(slab - 1).next;
  } else {
    slab = AddSlab();
    if (slab == kNone) {
      budget_.Cancel(kSlabBytes);
      return kNone;
    }
  }
  Slab& made = SlabAt(slab - 1);
  if (!held) {
    made.resident = true;
    held_.fetch_add(1, std::memory_order_relaxed);
    *grown = true;
  }
  made.free = made.fresh = 0;
  made.size_class.store(index, std::memory_order_release);
  return slab;
}

std::size_t Slabs::AddSlab() {
  const std::size_t slab = end_.load(std::memory_order_relaxed);
  const std::size_t end = slab + 1;
  if (!region_.CommitUpTo(end * kSlabBytes) ||
      !tables_.CommitUpTo(end * RoundUp(sizeof(Tables), kPageBytes)) ||
      !slabs_.CommitUpTo(end * sizeof(Slab))) {
    return kNone;
  }
  // The tables are zeros, which is what an empty one is.
  new (&SlabAt(slab)) Slab();
  end_.store(end, std::memory_order_release);
  return end;
}

void Slabs::Link(Class& of, std::size_t slab) {
  Slab& head = SlabAt(slab);
  head.previous = kNone;
  head.next = of.partial;
  if (head.next != kNone) SlabAt(head.next - 1).previous = static_cast<std::uint32_t>(slab + 1);
  of.partial = static_cast<std::uint32_t>(slab + 1);
}

void Slabs::Unlink(Class& of, std::size_t slab) {
  Slab& head = SlabAt(slab);
  if (head.next != kNone) SlabAt(head.next - 1).previous = head.previous;
  if (head.previous != kNone) {
    SlabAt(head.previous - 1).next = head.next;
  } else {
    of.partial = head.next;
  }
}

std::size_t Slabs::TakeFrom(int index, std::size_t slab, void** blocks, std::size_t count) {
  Slab& from = SlabAt(slab);
  Tables& tables = TablesOf(slab);
  char* start = region_.base() + slab * kSlabBytes;
  const std::size_t bytes = ClassBytes(index);
  std::size_t taken = 0;
  while (taken < count && from.free > 0)
    blocks[taken++] = start + tables.stack[--from.free] * bytes;
  while (taken < count && from.fresh < Capacity(index)) {
    blocks[taken++] = start + from.fresh++ * bytes;
  }
  if (from.free == 0 && from.fresh == Capacity(index)) Unlink(classes_[index], slab);
  return taken;
}

void Slabs::GiveBack(int index, void* const* blocks, std::size_t count) {
  Class& of = classes_[index];
  const std::lock_guard<std::mutex> lock(of.mutex);
  const std::size_t bytes = ClassBytes(index);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t offset = static_cast<char*>(blocks[i]) - region_.base();
    const std::size_t slab = offset / kSlabBytes;
    Slab& to = SlabAt(slab);
    if (to.free == 0 && to.fresh == Capacity(index)) Link(of, slab);
    TablesOf(slab).stack[to.free++] = static_cast<std::uint16_t>(offset % kSlabBytes / bytes);
    const bool only = of.partial == slab + 1 && to.next == kNone;
    if (to.free == to.fresh && !only) {  // the last one stays, or a class would take turns
      Unlink(of, slab);
      to.size_class.store(-1, std::memory_order_release);
      const std::lock_guard<std::mutex> table(mutex_);
      to.next = unused_;
      unused_ = static_cast<std::uint32_t>(slab + 1);
    }
  }
}

Slabs::Block Slabs::Find(const void* address, std::size_t front) const {
  const std::size_t offset = static_cast<const char*>(address) - front - region_.base();
  const std::size_t slab = offset / kSlabBytes;
  if (slab >= end_.load(std::memory_order_acquire)) return {};
  const int index = SlabAt(slab).size_class.load(std::memory_order_acquire);
  if (index < 0) return {};
  const std::size_t bytes = ClassBytes(index);
  const std::size_t within = offset % kSlabBytes;
  if (within % bytes != 0 || within / bytes >= Capacity(index)) return {};
  return {index, &TablesOf(slab).sizes[within / bytes]};
}

std::size_t Slabs::Trim() {
  // A class keeps its last slab even when that is empty: those go now.
  for (int index = 0; index < kSizeClasses; ++index) {
    Class& of = classes_[index];
    const std::lock_guard<std::mutex> lock(of.mutex);
    for (std::uint32_t at = of.partial; at != kNone;) {
      Slab& slab = SlabAt(at - 1);
      const std::uint32_t next = slab.next;
      if (slab.free == slab.fresh) {
        Unlink(of, at - 1);
        slab.size_class.store(-1, std::memory_order_release);
        const std::lock_guard<std::mutex> table(mutex_);
        slab.next = unused_;
        unused_ = at;
      }
      at = next;
    }
  }
  const std::lock_guard<std::mutex> table(mutex_);
  std::size_t released = 0;
  for (std::uint32_t at = unused_; at != kNone; at = SlabAt(at - 1).next) {
    Slab& slab = SlabAt(at - 1);
    if (!slab.resident) continue;
    if (region_.Release((at - 1) * kSlabBytes, kSlabBytes) == 0) continue;
    slab.resident = false;
    held_.fetch_sub(1, std::memory_order_relaxed);
    budget_.Give(kSlabBytes);
    released += kSlabBytes;
  }
  return released;
}

void Slabs::Lock() {
  for (Class& of : classes_) of.mutex.lock();
  mutex_.lock();
}

void Slabs::Unlock() {
  mutex_.unlock();
  for (int index = kSizeClasses - 1; index >= 0; --index) classes_[index].mutex.unlock();
}

}  // namespace pfb::memory
