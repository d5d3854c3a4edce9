// What a plan computes with: values, which are views of storages.
#pragma once

#include <climits>
#include <memory>
#include <optional>

#include "constant_cache.h"
#include "dtype.h"
#include "layout.h"

namespace pfb {

// Bytes that values live in.
struct Storage {
  enum class Kind {
    kArena,     // a planned range of the session's arena
    kInput,     // argument `index` of the call
    kOutput,    // result `index` of the call, allocated by the caller
    kHandle,    // memory that host step output `index` brings along
    kConstant,  // a constant: packed in `packed`, or borrowed at `data`
  };
  Kind kind = Kind::kArena;
  std::size_t bytes = 0;
  int index = -1;
  // kConstant.
  const void* data = nullptr;
  bool borrowed = false;  // `data` outlives the plan: no copy needed
  std::optional<ContentHash> hash;
  std::shared_ptr<const dnnl::memory> packed;
  // kArena: the first and last step that touches it, and where the planner put it.
  int first_step = INT_MAX;
  int last_step = -1;
  std::size_t offset = 0;
};

// A tensor: a storage seen through a descriptor.  Tensors without dimensions are vectors of one.
//
// Where a view starts is kept here and never in the descriptor: several of oneDNN's primitives
// (brgemm matmul, layer normalisation) ignore a descriptor's own offset.
struct Value {
  Desc desc;
  DType dtype = DType::kFloat32;
  int storage = -1;
  std::size_t offset = 0;  // bytes from the start of the storage
};

}  // namespace pfb
