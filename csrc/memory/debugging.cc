// Debug mode: guards, poison, the quarantine; and the reports of faults.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include "block_pool.h"
#include "tags.h"

namespace pfb::memory {
namespace {

constexpr std::size_t kQuarantineBytes = std::size_t{64} << 20;
constexpr std::size_t kQuarantineBlocks = 256;
constexpr std::size_t kReportsKept = 64;

std::string Describe(std::size_t bytes, std::uint32_t tag, std::uint64_t number) {
  char text[192];
  const char* name = TagName(tag);
  std::snprintf(text, sizeof(text), "block of %zu bytes of '%.100s' (allocation %" PRIu64 ")",
                bytes, *name ? name : "untagged", number);
  return text;
}

std::string Offset(long long offset, std::size_t requested) {
  char text[96];
  if (offset < 0) {
    std::snprintf(text, sizeof(text), "%lld bytes before its start", -offset);
  } else {
    std::snprintf(text, sizeof(text), "%lld bytes behind its end",
                  offset - static_cast<long long>(requested) + 1);
  }
  return text;
}

}  // namespace

int BlockPool::FreeGuarded(void* payload) {
  std::unique_lock<std::mutex> lock(debug_mutex_);
  if (closed_.load(std::memory_order_acquire)) {
    lock.unlock();
    return FreeClosed(payload);
  }
  int fault = PFB_OK;
  const Block block = RetractLocked(payload, &fault);
  if (fault != PFB_OK) return FaultOfFree(fault, payload);
  fault = CheckAlive(block);
  const GuardHeader header = *HeaderOf(payload);
  Poison(payload, block.requested);
  quarantine_.push_back({block, header.tag, header.number});
  quarantine_bytes_ += block.bytes;
  CountFreed(block);
  LeaveQuarantine(kQuarantineBytes);
  return fault;
}

void BlockPool::LeaveQuarantine(std::size_t until_bytes) {
  while (!quarantine_.empty() && (quarantine_bytes_ > until_bytes || until_bytes == 0 ||
                                  quarantine_.size() > kQuarantineBlocks)) {
    const Quarantined dead = quarantine_.front();
    quarantine_.pop_front();
    quarantine_bytes_ -= dead.block.bytes;
    CheckDead(dead);
    GiveBackLocked(dead.block);
  }
}

int BlockPool::CheckAlive(const Block& block) {
  const Damage damage = CheckGuards(
      {block.start, static_cast<char*>(block.payload), block.start + block.bytes, block.requested});
  if (!damage.found) return PFB_OK;
  const GuardHeader& header = *HeaderOf(block.payload);
  return Fault(PFB_OVERRUN, "overrun: " + Describe(block.requested, header.tag, header.number) +
                                " was written " + Offset(damage.offset, block.requested));
}

void BlockPool::CheckDead(const Quarantined& dead) {
  const Damage damage = CheckPoison(dead.block.payload, dead.block.requested);
  if (!damage.found) return;
  Fault(PFB_WRITE_AFTER_FREE, "write after free: byte " + std::to_string(damage.offset) + " of a " +
                                  Describe(dead.block.requested, dead.tag, dead.number) +
                                  " was written after its end");
}

std::size_t BlockPool::Check() {
  if (!options_.debug) return 0;
  const std::lock_guard<std::mutex> lock(debug_mutex_);
  std::vector<Block> alive;
  slabs_.ForEachAlive([&](char* start, int index, std::size_t requested) {
    alive.push_back({start + kGuardBytes, start, ClassBytes(index), requested, index});
  });
  {
    const std::lock_guard<std::mutex> heap(heap_mutex_);
    heap_.ForEachAlive([&](char* start, std::size_t bytes, std::size_t requested) {
      alive.push_back({PayloadOf(start, bytes), start, bytes, requested, -1});
    });
  }
  const auto count = [this] {
    const std::lock_guard<std::mutex> reports(reports_mutex_);
    return faults_;
  };
  const std::uint64_t before = count();
  for (const Block& block : alive) CheckAlive(block);
  for (const Quarantined& dead : quarantine_) CheckDead(dead);
  return static_cast<std::size_t>(count() - before);
}

int BlockPool::FaultOfFree(int kind, void* payload) {
  char text[256];
  if (kind == PFB_FOREIGN) {
    std::snprintf(text, sizeof(text), "foreign address: %p is not the start of a block", payload);
    return Fault(kind, text);
  }
  std::string what = "block at ";
  std::snprintf(text, sizeof(text), "%p", payload);
  what += text;
  // In debug mode the caller holds the quarantine's lock.
  for (const Quarantined& dead : quarantine_) {
    if (dead.block.payload == payload) what = Describe(dead.block.requested, dead.tag, dead.number);
  }
  return Fault(kind, "double free: " + what + " is free already");
}

int BlockPool::Fault(int kind, const std::string& text) {
  std::fprintf(stderr, "paddle_fluid_boost block pool: %s\n", text.c_str());
  if (options_.abort_on_fault) std::abort();
  const std::lock_guard<std::mutex> lock(reports_mutex_);
  ++faults_;
  reports_.push_back(text);
  if (reports_.size() > kReportsKept) reports_.pop_front();
  return kind;
}

std::string BlockPool::Report(std::size_t index) {
  const std::lock_guard<std::mutex> lock(reports_mutex_);
  return index < reports_.size() ? reports_[index] : std::string();
}

std::size_t BlockPool::SizeOf(void* payload) {
  if (slabs_.Contains(payload)) {
    const auto found = slabs_.Find(payload, options_.debug ? kGuardBytes : 0);
    if (found.size_class < 0) return 0;
    const std::uint32_t size = found.size->load(std::memory_order_acquire);
    return size == 0 ? 0 : size - 1;
  }
  if (heap_.Contains(payload)) {
    const std::lock_guard<std::mutex> lock(heap_mutex_);
    const PageHeap::Block found = heap_.Find(payload);
    return found.found == PageHeap::Found::kAlive ? found.requested : 0;
  }
  const std::lock_guard<std::mutex> lock(system_mutex_);
  const auto found = system_.find(payload);
  return found == system_.end() ? 0 : found->second;
}

}  // namespace pfb::memory
