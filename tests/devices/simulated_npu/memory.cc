#include "memory.h"

#include <sys/mman.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "settings.h"

namespace simulated_npu {

namespace {

constexpr int kPoison = 0xA5;

char* Map(size_t size, int access) {
  void* address = mmap(nullptr, size, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) std::abort();
  return static_cast<char*>(address);
}

std::mutex devices_mutex;
std::array<std::unique_ptr<DeviceMemory>, kMaxDevices> devices;

}  // namespace

DeviceMemory::DeviceMemory(size_t capacity)
    : capacity_(capacity),
      addresses_(Map(capacity, PROT_NONE)),
      store_(Map(capacity, PROT_READ | PROT_WRITE)) {}

void* DeviceMemory::Allocate(size_t size) {
  size = (size + kAlignment - 1) / kAlignment * kAlignment;
  if (size == 0) size = kAlignment;
  std::lock_guard<std::mutex> lock(mutex_);
  size_t start = 0;  // the first gap that is large enough
  for (const auto& [offset, length] : blocks_) {
    if (offset - start >= size) break;
    start = offset + length;
  }
  if (size > capacity_ || start > capacity_ - size) return nullptr;
  blocks_[start] = size;
  live_ += size;
  if (live_ > peak_) peak_ = live_;
  std::memset(store_ + start, kPoison, size);
  return addresses_ + start;
}

bool DeviceMemory::Free(void* address) {
  std::lock_guard<std::mutex> lock(mutex_);
  auto block = blocks_.find(static_cast<size_t>(static_cast<char*>(address) - addresses_));
  if (block == blocks_.end()) return false;
  std::memset(store_ + block->first, kPoison, block->second);
  live_ -= block->second;
  blocks_.erase(block);
  return true;
}

char* DeviceMemory::Translate(const void* address, size_t size) {
  const char* first = static_cast<const char*>(address);
  if (first < addresses_ || first >= addresses_ + capacity_) return nullptr;
  const size_t offset = static_cast<size_t>(first - addresses_);
  std::lock_guard<std::mutex> lock(mutex_);
  auto block = blocks_.upper_bound(offset);
  if (block == blocks_.begin()) return nullptr;
  --block;
  if (offset + size > block->first + block->second) return nullptr;
  return store_ + offset;
}

size_t DeviceMemory::live() {
  std::lock_guard<std::mutex> lock(mutex_);
  return live_;
}

size_t DeviceMemory::peak() {
  std::lock_guard<std::mutex> lock(mutex_);
  return peak_;
}

DeviceMemory& MemoryOf(int number) {
  std::lock_guard<std::mutex> lock(devices_mutex);
  auto& device = devices.at(static_cast<size_t>(number));
  if (!device) device = std::make_unique<DeviceMemory>(MemoryBytes());
  return *device;
}

char* TranslateOrAbort(const void* address, size_t size) {
  for (int number = 0; number < DeviceCount(); ++number) {
    if (char* bytes = MemoryOf(number).Translate(address, size)) return bytes;
  }
  std::fprintf(stderr, "simulated_npu: illegal device address %p (%zu bytes)\n", address, size);
  std::abort();
}

}  // namespace simulated_npu
