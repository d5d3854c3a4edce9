#include "ordinary.h"

#include <cstdint>
#include <cstring>

namespace pfb {
namespace {

// The bits of 1e18F without its sign.  Among the bits of floats without sign, larger magnitudes
// have larger bits, infinity and NaN the largest of all.
constexpr std::uint32_t kLimit = 0x5D5E0B6BU;
constexpr std::uint32_t kMagnitude = 0x7FFFFFFFU;

// Read in pieces: one branch for each piece keeps the loop inside it free of branches, so that the
// compiler turns it into vector instructions.
constexpr std::size_t kPiece = 4096;

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
bool AnyAbove(const float* data, std::size_t count) {
  std::uint32_t above = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, data + i, sizeof(bits));
    above |= static_cast<std::uint32_t>((bits & kMagnitude) > kLimit);
  }
  return above != 0;
}

}  // namespace

bool AllOrdinary(const float* data, std::size_t count) {
  while (count > 0) {
    const std::size_t piece = count < kPiece ? count : kPiece;
    if (AnyAbove(data, piece)) return false;
    data += piece;
    count -= piece;
  }
  return true;
}

}  // namespace pfb
