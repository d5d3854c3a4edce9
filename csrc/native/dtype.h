// Element types of a plan's values, and how oneDNN sees them.
#pragma once

#include <cstddef>
#include <string>

#include "onednn.h"

namespace pfb {

enum class DType {
  kFloat32,
  kFloat16,
  kBFloat16,
  kFloat64,
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kUInt8,
  kBool
};

// The type that numpy and Paddle spell `name`; throws std::invalid_argument for others.
DType ParseDType(const std::string& name);
const char* Name(DType dtype);
std::size_t SizeOf(DType dtype);

// The oneDNN type that carries `dtype`.  oneDNN has no 64-bit or 16-bit integers: for those it is a
// type of the same size, good for describing layouts but never to be given to a primitive.
dnnl::memory::data_type Carrier(DType dtype);

// Whether oneDNN primitives compute on this type (float32; others are moved but not computed on).
inline bool Computable(DType dtype) { return dtype == DType::kFloat32; }

}  // namespace pfb
