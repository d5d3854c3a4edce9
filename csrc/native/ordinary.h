// Whether numbers are ones that every engine treats alike.
#pragma once

#include <cstddef>

namespace pfb {

// True when every element of data[0..count) is finite and of a magnitude below 1e18: NaN, infinity
// and what is about to overflow are where engines and Paddle's own kernels part ways.
bool AllOrdinary(const float* data, std::size_t count);

}  // namespace pfb
