#include "constant_cache.h"

#include <cstring>

namespace pfb {
namespace {

// The finaliser of MurmurHash3: every input bit reaches every output bit.
std::uint64_t Mix(std::uint64_t x) {
  x ^= x >> 33;
  x *= 0xff51afd7ed558ccdULL;
  x ^= x >> 33;
  x *= 0xc4ceb9fe1a85ec53ULL;
  x ^= x >> 33;
  return x;
}

std::uint64_t Rotate(std::uint64_t x, int by) { return (x << by) | (x >> (64 - by)); }

}  // namespace

// Four independent multiply-rotate lanes, so that a megabyte takes well under a millisecond.
ContentHash HashBytes(const void* data, std::size_t bytes) {
  constexpr std::uint64_t kOdd[4] = {0x9e3779b185ebca87ULL, 0xc2b2ae3d27d4eb4fULL,
                                     0x165667b19e3779f9ULL, 0x85ebca77c2b2ae63ULL};
  std::uint64_t lane[4] = {bytes, ~bytes, kOdd[2], kOdd[3]};
  const char* from = static_cast<const char*>(data);
  std::size_t at = 0;
  for (; at + 32 <= bytes; at += 32) {
    std::uint64_t word[4];
    std::memcpy(word, from + at, sizeof(word));
    for (int i = 0; i < 4; ++i) lane[i] = Rotate(lane[i] + word[i] * kOdd[i], 31) * kOdd[3 - i];
  }
  std::uint64_t tail[4] = {0, 0, 0, 0};
  std::memcpy(tail, from + at, bytes - at);
  for (int i = 0; i < 4; ++i) lane[i] = Rotate(lane[i] + tail[i] * kOdd[i], 29) * kOdd[3 - i];
  const std::uint64_t low = Mix(lane[0] ^ Rotate(lane[1], 17) ^ Rotate(lane[2], 41) ^ lane[3]);
  const std::uint64_t high = Mix(lane[0] + Mix(lane[1] + Mix(lane[2] + Mix(lane[3]))));
  return {low, high};
}

std::shared_ptr<const dnnl::memory> ConstantCache::Find(const ContentHash& hash, const Desc& from,
                                                        const Desc& to) {
  auto [it, end] = entries_.equal_range(hash[0]);
  while (it != end) {
    auto alive = it->second.memory.lock();
    if (!alive) {
      it = entries_.erase(it);
      continue;
    }
    if (it->second.hash == hash && it->second.from == from && it->second.to == to) return alive;
    ++it;
  }
  return nullptr;
}

std::shared_ptr<const dnnl::memory> ConstantCache::Get(const ContentHash& hash, const Desc& from,
                                                       const Desc& to,
                                                       const std::function<dnnl::memory()>& pack) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (auto found = Find(hash, from, to)) {
      ++hits_;
      return found;
    }
  }
  auto packed = std::make_shared<const dnnl::memory>(pack());
  std::lock_guard<std::mutex> lock(mutex_);
  if (auto found = Find(hash, from, to)) return found;
  ++misses_;
  entries_.emplace(hash[0], Entry{hash, from, to, packed});
  return packed;
}

ConstantCache::Statistics ConstantCache::statistics() {
  std::lock_guard<std::mutex> lock(mutex_);
  Statistics result;
  result.hits = hits_;
  result.misses = misses_;
  for (auto it = entries_.begin(); it != entries_.end();) {
    if (auto alive = it->second.memory.lock()) {
      result.bytes += alive->get_desc().get_size();
      ++result.entries;
      ++it;
    } else {
      it = entries_.erase(it);
    }
  }
  return result;
}

ConstantCache& ConstantCache::Instance() {
  static ConstantCache cache;
  return cache;
}

}  // namespace pfb
