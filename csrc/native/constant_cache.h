// Constants in the layouts that primitives want, shared by all plans of the process.
//
// A constant is known by its *content* (128-bit hash) and layout, not by the name or address of a
// parameter: so weights that were folded at compile time are shared between the plans of a layer
// too, and a weight that changed can never be served stale.  The cache holds weak references: an
// entry lives exactly as long as some plan uses it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "layout.h"
#include "onednn.h"

namespace pfb {

using ContentHash = std::array<std::uint64_t, 2>;

ContentHash HashBytes(const void* data, std::size_t bytes);

class ConstantCache {
 public:
  // The constant `hash`, whose bytes are described by `from`, in layout `to`: a cached one, or the
  // result of `pack`.  `pack` runs outside the lock; of two threads that pack at once one wins.
  std::shared_ptr<const dnnl::memory> Get(const ContentHash& hash, const Desc& from, const Desc& to,
                                          const std::function<dnnl::memory()>& pack);

  // Bytes alive, and how often Get was served from the cache.
  struct Statistics {
    std::size_t bytes = 0;
    std::size_t entries = 0;
    std::size_t hits = 0;
    std::size_t misses = 0;
  };
  Statistics statistics();

  static ConstantCache& Instance();

 private:
  struct Entry {
    ContentHash hash;
    Desc from;
    Desc to;
    std::weak_ptr<const dnnl::memory> memory;
  };
  using Map = std::unordered_multimap<std::uint64_t, Entry>;

  std::shared_ptr<const dnnl::memory> Find(const ContentHash& hash, const Desc& from,
                                           const Desc& to);

  std::mutex mutex_;
  Map entries_;
  std::size_t hits_ = 0;
  std::size_t misses_ = 0;
};

}  // namespace pfb
