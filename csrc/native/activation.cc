#include "activation.h"

namespace pfb {

std::optional<Activation> AsActivation(const PostOp& op) {
  using Kind = Activation::Kind;
  constexpr struct {
    const char* name;
    Kind kind;
  } kNames[] = {
      {"relu", Kind::kRelu},           {"clip", Kind::kClip},
      {"hardswish", Kind::kHardswish}, {"hardsigmoid", Kind::kHardsigmoid},
      {"swish", Kind::kSwish},         {"logistic", Kind::kSigmoid},
  };
  if (op.value >= 0) return std::nullopt;
  for (const auto& [name, kind] : kNames) {
    if (op.kind == name) return Activation{kind, op.alpha, op.beta};
  }
  return std::nullopt;
}

}  // namespace pfb
