// What the tests choose before the process starts, and what they count and break while it runs.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>

namespace simulated_npu {

constexpr int kMaxDevices = 8;

inline long FromEnvironment(const char* name, long fallback) {
  const char* text = std::getenv(name);
  return text ? std::atol(text) : fallback;
}
// Devices: SIMULATED_NPU_COUNT, and the memory of each: SIMULATED_NPU_MB.
inline int DeviceCount() {
  static const long count = FromEnvironment("SIMULATED_NPU_COUNT", 2);
  return static_cast<int>(count < kMaxDevices ? count : kMaxDevices);
}
inline size_t MemoryBytes() {
  static const long megabytes = FromEnvironment("SIMULATED_NPU_MB", 64);
  return static_cast<size_t>(megabytes) << 20;
}

// Every event of one kind: how many there were, their bytes, and which of them goes wrong.
struct Event {
  std::atomic<long> count{0};
  std::atomic<long> bytes{0};
  std::atomic<long> fails_after{-1};   // so many more succeed, all later ones fail; -1: never
  std::atomic<long> aborts_after{-1};  // so many more succeed, then the process aborts; -1: never

  // Counts one event; false when it is to fail.
  bool Happens(size_t size = 0);
};

// "h2d", "d2h", "d2d", "allocate", "free", "synchronize", "kernel", "compile"; nullptr for others.
Event* EventOf(const char* name);

}  // namespace simulated_npu
