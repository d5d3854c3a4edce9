#include "guard.h"

#include <cstring>

namespace pfb::memory {
namespace {

constexpr std::uint64_t kMagic = 0x70666250304f4c21;
constexpr unsigned char kFence = 0xfd;  // outside of the block
constexpr unsigned char kFresh = 0xcd;  // allocated, not written yet: NaN-free but conspicuous
constexpr unsigned char kDead = 0xff;   // freed: as float32 and float64 it reads as NaN

// The first byte of [start, end) that is not `wanted`, or end.
const unsigned char* FirstOther(const unsigned char* start, const unsigned char* end,
                                unsigned char wanted) {
  std::uint64_t word;
  std::memset(&word, wanted, sizeof(word));
  while (end - start >= 8 && std::memcmp(start, &word, 8) == 0) start += 8;
  while (start < end && *start == wanted) ++start;
  return start;
}

}  // namespace

void Arm(const Guarded& block, std::uint32_t tag, std::uint64_t number) {
  GuardHeader* header = HeaderOf(block.payload);
  std::memset(block.start, kFence, block.payload - block.start);
  header->magic = kMagic;
  header->requested = block.requested;
  header->number = number;
  header->tag = tag;
  header->zero = 0;
  char* after = block.payload + block.requested;
  std::memset(block.payload, kFresh, block.requested);
  std::memset(after, kFence, block.end - after);
}

void* PayloadOf(char* start, std::size_t bytes) {
  // An alignment above that of a block moves the payload up by as much.
  for (std::size_t front = kGuardBytes; front <= 4096 && front + kGuardBytes <= bytes; front *= 2) {
    if (HeaderOf(start + front)->magic == kMagic) return start + front;
  }
  return start + kGuardBytes;
}

Damage CheckGuards(const Guarded& block) {
  const auto bytes = [](const char* at) { return reinterpret_cast<const unsigned char*>(at); };
  const GuardHeader* header = HeaderOf(block.payload);
  const auto* payload = bytes(block.payload);
  const auto* after = FirstOther(payload + block.requested, bytes(block.end), kFence);
  if (after != bytes(block.end)) return {true, after - payload};
  const auto* before = FirstOther(header->pattern, payload, kFence);
  if (before != payload) return {true, before - payload};
  if (header->magic != kMagic || header->requested != block.requested || header->zero != 0) {
    return {true, -static_cast<long long>(kGuardBytes)};
  }
  const auto* header_start = reinterpret_cast<const unsigned char*>(header);
  const auto* far = FirstOther(bytes(block.start), header_start, kFence);
  if (far != header_start) return {true, far - payload};
  return {};
}

void Poison(void* payload, std::size_t requested) { std::memset(payload, kDead, requested); }

Damage CheckPoison(void* payload, std::size_t requested) {
  const auto* start = static_cast<const unsigned char*>(payload);
  const auto* other = FirstOther(start, start + requested, kDead);
  if (other != start + requested) return {true, other - start};
  return {};
}

}  // namespace pfb::memory
