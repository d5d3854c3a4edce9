// Debug mode: what stands around a block, so that writing outside of it or after its end is seen.
//
//   | pattern, where alignment asks for it | header (64 bytes) | the caller's bytes | pattern (>=
//   64) |
#pragma once

#include <cstddef>
#include <cstdint>

namespace pfb::memory {

constexpr std::size_t kGuardBytes = 64;

struct GuardHeader {
  std::uint64_t magic;
  std::uint64_t requested;
  std::uint64_t number;  // of the allocation
  std::uint32_t tag;     // whose block it is, or was
  std::uint32_t zero;
  unsigned char pattern[32];
};
static_assert(sizeof(GuardHeader) == kGuardBytes);

inline GuardHeader* HeaderOf(void* payload) {
  return reinterpret_cast<GuardHeader*>(static_cast<char*>(payload) - kGuardBytes);
}

struct Guarded {
  char* start;    // of the block
  char* payload;  // at least kGuardBytes behind it
  char* end;      // of the block, at least kGuardBytes behind the payload's
  std::size_t requested;
};

void Arm(const Guarded& block, std::uint32_t tag, std::uint64_t number);

// The payload of the block that starts at `start`: behind the first whole header, else behind where
// the first header would be.
void* PayloadOf(char* start, std::size_t bytes);

struct Damage {
  bool found = false;
  long long offset = 0;  // from the first byte of the payload; negative: before it
};

// Whether the guards of a live block are whole.
Damage CheckGuards(const Guarded& block);

// Fills the caller's bytes of a block that was freed, and tells whether they are still as filled.
void Poison(void* payload, std::size_t requested);
Damage CheckPoison(void* payload, std::size_t requested);

}  // namespace pfb::memory
