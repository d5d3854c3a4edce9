// Functions that loops of our own apply to a result before they store it.
#pragma once

#include <optional>

#include "post_ops.h"
#include "simd.h"

namespace pfb {

struct Activation {
  enum class Kind { kNone, kRelu, kClip, kHardswish, kHardsigmoid, kSwish, kSigmoid };
  Kind kind = Kind::kNone;
  float alpha = 0.0F;  // as in PostOp
  float beta = 0.0F;
};

// `op` as such a function, where it is one.
std::optional<Activation> AsActivation(const PostOp& op);

// Not-a-number stays what it is.
PFB_INLINE void Apply(const Activation& activation, Vec& value) {
  using Kind = Activation::Kind;
  const float alpha = activation.alpha, beta = activation.beta;
  const Vec zero = {};
  switch (activation.kind) {
    case Kind::kNone:
      return;
    case Kind::kRelu:
      value = value < zero ? value * alpha : value;
      return;
    case Kind::kClip:
      value = value < alpha ? zero + alpha : value;
      value = value > beta ? zero + beta : value;
      return;
    case Kind::kHardswish:
    case Kind::kHardsigmoid: {
      Vec gate = value * alpha + beta;
      gate = gate < zero ? zero : gate;
      gate = gate > 1.0F ? zero + 1.0F : gate;
      value = activation.kind == Kind::kHardswish ? value * gate : gate;
      return;
    }
    case Kind::kSwish: {
      Vec gate;
      Sigmoid(value * alpha, gate);
      value = value * gate;
      return;
    }
    case Kind::kSigmoid: {
      const Vec x = value;
      Sigmoid(x, value);
      return;
    }
  }
}

}  // namespace pfb
