// Squeeze-and-excitation in one step: y = x * f(W2 g(W1 mean(x) + b1) + b2), channels last.
//
// As steps of their own the four parts take a few microseconds each, most of them for starting and
// for waiting.  Here each thread keeps the pixels that it averaged, so that they are still in its
// cache when it multiplies them.
#pragma once

#include <cstddef>

#include "activation.h"

namespace pfb {

struct SqueezeShape {
  std::size_t batch, pixels, channels, squeezed;
  Activation inner, gate;

  // The mean is summed up in so many parts, whatever the number of threads, so that the result does
  // not depend on it.
  std::size_t chunks() const { return pixels < 16 ? pixels : 16; }
  // Floats of working memory.
  std::size_t work() const { return (chunks() + 1) * channels + squeezed; }
};

struct SqueezeArguments {
  const float* source;      // [batch, pixels, channels]
  const float* inner;       // [squeezed, channels]
  const float* inner_bias;  // [squeezed], or none
  const float* outer;       // [squeezed, channels]: transposed
  const float* outer_bias;  // [channels], or none
  float* result;
  float* work;
};

bool SqueezeSupported();

void RunSqueeze(const SqueezeShape& shape, const SqueezeArguments& arguments);

}  // namespace pfb
