// Winograd's minimal filtering for 3x3 convolutions with stride 1, on channels-last tensors.
//
// A tile of M x M results needs (M + 2)^2 products per pair of channels instead of 9 M^2: 4 instead
// of 9 per result with M = 2, 2.25 with M = 4.  The three stages (Lavin & Gray, 2016):
//
//   V = B^T d B    every (M + 2) x (M + 2) patch d of the source, per channel
//   P = V U        one matrix product over channels per patch position; U = G g G^T, made at build
//   Y = A^T P A    every tile of the result, then bias, residual and activation
//
// V and P are laid out as [position][tile][channel], so that the products are plain matrix
// products (oneDNN's) and the transforms are vectors of 16 channels, the last one of 8 where their
// number asks for it.
#pragma once

#include <cstddef>

#include "activation.h"

namespace pfb {

struct WinogradShape {
  int batch, height, width, channels;  // of the source
  int out_height, out_width, out_channels;
  int out_stride;  // from pixel to pixel of the result, at least out_channels
  int pad_top, pad_left;
  int tile;  // M: 2 or 4

  int positions() const { return (tile + 2) * (tile + 2); }
  int tiles_down() const { return (out_height + tile - 1) / tile; }
  int tiles_across() const { return (out_width + tile - 1) / tile; }
  int tiles() const { return batch * tiles_down() * tiles_across(); }
};

// Some of the source's channels: a channels-last image of its own.
struct WinogradPart {
  const float* data;
  int channels;  // a multiple of 8
};

struct WinogradEpilogue {
  const float* bias = nullptr;      // [out_channels], or none
  Activation before;                // of the residual
  const float* residual = nullptr;  // dense, or none; may be the result itself
  Activation after;
};

// Whether this processor has the vector instructions that the transforms are written for.
bool WinogradSupported();

// weights: [out_channels][channels][3][3]; transformed: [positions][channels][out_channels].
void TransformWeights(const WinogradShape& shape, const float* weights, float* transformed);

// Tiles [begin, end) of the source into v[position][tile - begin][channel], `capacity` tiles apart.
// The source is `parts` side by side.
void TransformSource(const WinogradShape& shape, const WinogradPart* parts, int begin, int end,
                     int capacity, float* v);

// Tiles [begin, end) of the result from p[position][tile - begin][out_channel].
void TransformResult(const WinogradShape& shape, const float* p, int begin, int end, int capacity,
                     const WinogradEpilogue& epilogue, float* result);

}  // namespace pfb
