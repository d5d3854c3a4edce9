// The memory of one simulated device.
//
// A device address is never mapped for the host: whoever reads or writes one outside of the copy
// functions below dies of SIGSEGV, as on real hardware.  The bytes lie in a store of the same size,
// reached through Translate().  Fresh and freed memory is poisoned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace simulated_npu {

class DeviceMemory {
 public:
  explicit DeviceMemory(size_t capacity);
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // A device address of `size` bytes, or nullptr when no gap is large enough.
  void* Allocate(size_t size);
  // False when `address` is not the start of a live block.
  bool Free(void* address);
  // The bytes behind [address, address + size), or nullptr unless one live block holds all of them.
  char* Translate(const void* address, size_t size);

  size_t capacity() const { return capacity_; }
  size_t live();
  size_t peak();

 private:
  static constexpr size_t kAlignment = 512;

  const size_t capacity_;
  char* addresses_;  // reserved, never accessible
  char* store_;
  std::mutex mutex_;
  std::map<size_t, size_t> blocks_;  // offset -> size, in order of address
  size_t live_ = 0;
  size_t peak_ = 0;
};

// Of device `number`, made when first asked for.
DeviceMemory& MemoryOf(int number);
// The bytes behind a device address of whichever device owns it; aborts the process where none
// does, as a real driver would on an illegal address.
char* TranslateOrAbort(const void* address, size_t size);

}  // namespace simulated_npu
