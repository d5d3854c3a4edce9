#include "squeeze.h"

#include <algorithm>
#include <cstring>

#include "parallel.h"

namespace pfb {
namespace {

// [begin, end) of `count` that falls to `thread`, in whole vectors.
struct Share {
  std::size_t begin, end;

  Share(std::size_t count, int thread, int threads) {
    const std::size_t vectors = (count + kLanes - 1) / kLanes;
    begin = std::min(count, vectors * static_cast<std::size_t>(thread) / threads * kLanes);
    end = std::min(count, vectors * static_cast<std::size_t>(thread + 1) / threads * kLanes);
  }
};

PFB_INLINE void LoadPart(const float* from, std::size_t count, Vec& to) {
  if (count >= kLanes) return Load(from, to);
  to = Vec{};
  std::memcpy(&to, from, count * sizeof(float));
}

PFB_INLINE void StorePart(const Vec& from, std::size_t count, float* to) {
  if (count >= kLanes) return Store(from, to);
  std::memcpy(to, &from, count * sizeof(float));
}

PFB_INLINE void SumPixels(const float* x, std::size_t pixels, std::size_t channels, float* sums) {
  std::fill_n(sums, channels, 0.0F);
  for (std::size_t p = 0; p < pixels; ++p, x += channels) {
    for (std::size_t c = 0; c < channels; ++c) sums[c] += x[c];
  }
}

PFB_INLINE void ScalePixels(const float* x, std::size_t pixels, std::size_t channels,
                            const float* gate, float* y) {
  for (std::size_t p = 0; p < pixels; ++p, x += channels, y += channels) {
    for (std::size_t c = 0; c < channels; ++c) y[c] = x[c] * gate[c];
  }
}

// The mean of channels [begin, end) from the sums of the chunks, into the first chunk's place.
PFB_INLINE void Mean(const SqueezeShape& shape, const Share& share, float* sums) {
  const float factor = 1.0F / static_cast<float>(shape.pixels);
  for (std::size_t chunk = 1; chunk < shape.chunks(); ++chunk) {
    const float* more = sums + chunk * shape.channels;
    for (std::size_t c = share.begin; c < share.end; ++c) sums[c] += more[c];
  }
  for (std::size_t c = share.begin; c < share.end; ++c) sums[c] *= factor;
}

// Squeezed units [begin, end): a dot product with the mean each.
PFB_INLINE void Inner(const SqueezeShape& shape, const SqueezeArguments& a, const Share& share,
                      const float* mean, float* squeezed) {
  for (std::size_t unit = share.begin; unit < share.end; unit += kLanes) {
    const std::size_t count = std::min<std::size_t>(kLanes, share.end - unit);
    Vec values = {};
    for (std::size_t i = 0; i < count; ++i) {
      const float* row = a.inner + (unit + i) * shape.channels;
      Vec sum = {};
      for (std::size_t c = 0; c < shape.channels; c += kLanes) {
        Vec x, w;
        LoadPart(mean + c, shape.channels - c, x);
        LoadPart(row + c, shape.channels - c, w);
        sum += x * w;
      }
      float total = 0.0F;
      for (int lane = 0; lane < kLanes; ++lane) total += sum[lane];
      values[static_cast<int>(i)] =
          total + (a.inner_bias == nullptr ? 0.0F : a.inner_bias[unit + i]);
    }
    Apply(shape.inner, values);
    StorePart(values, count, squeezed + unit);
  }
}

// Gates of channels [begin, end).
PFB_INLINE void Gates(const SqueezeShape& shape, const SqueezeArguments& a, const Share& share,
                      const float* squeezed, float* gates) {
  for (std::size_t c = share.begin; c < share.end; c += kLanes) {
    const std::size_t count = share.end - c;
    Vec sum = {};
    if (a.outer_bias != nullptr) LoadPart(a.outer_bias + c, count, sum);
    Vec other = {};
    std::size_t s = 0;
    for (; s + 2 <= shape.squeezed; s += 2) {
      Vec first, second;
      LoadPart(a.outer + s * shape.channels + c, count, first);
      LoadPart(a.outer + (s + 1) * shape.channels + c, count, second);
      sum += squeezed[s] * first;
      other += squeezed[s + 1] * second;
    }
    for (; s < shape.squeezed; ++s) {
      Vec w;
      LoadPart(a.outer + s * shape.channels + c, count, w);
      sum += squeezed[s] * w;
    }
    sum += other;
    Apply(shape.gate, sum);
    StorePart(sum, count, gates + c);
  }
}

struct Loops {
  void (*sum)(const float*, std::size_t, std::size_t, float*);
  void (*scale)(const float*, std::size_t, std::size_t, const float*, float*);
  void (*mean)(const SqueezeShape&, const Share&, float*);
  void (*inner)(const SqueezeShape&, const SqueezeArguments&, const Share&, const float*, float*);
  void (*gates)(const SqueezeShape&, const SqueezeArguments&, const Share&, const float*, float*);
};

#define PFB_INSTANTIATE(suffix, isa)                                                               \
  isa void Sum##suffix(const float* x, std::size_t n, std::size_t c, float* sums) {                \
    SumPixels(x, n, c, sums);                                                                      \
  }                                                                                                \
  isa void Scale##suffix(const float* x, std::size_t n, std::size_t c, const float* g, float* y) { \
    ScalePixels(x, n, c, g, y);                                                                    \
  }                                                                                                \
  isa void Mean##suffix(const SqueezeShape& s, const Share& share, float* sums) {                  \
    Mean(s, share, sums);                                                                          \
  }                                                                                                \
  isa void Inner##suffix(const SqueezeShape& s, const SqueezeArguments& a, const Share& share,     \
                         const float* mean, float* squeezed) {                                     \
    Inner(s, a, share, mean, squeezed);                                                            \
  }                                                                                                \
  isa void Gates##suffix(const SqueezeShape& s, const SqueezeArguments& a, const Share& share,     \
                         const float* squeezed, float* gates) {                                    \
    Gates(s, a, share, squeezed, gates);                                                           \
  }                                                                                                \
  constexpr Loops kLoops##suffix = {Sum##suffix, Scale##suffix, Mean##suffix, Inner##suffix,       \
                                    Gates##suffix};

PFB_INSTANTIATE(Avx512, PFB_AVX512)
PFB_INSTANTIATE(Avx2, PFB_AVX2)
#undef PFB_INSTANTIATE

}  // namespace

bool SqueezeSupported() { return HasAvx512() || HasAvx2(); }

void RunSqueeze(const SqueezeShape& shape, const SqueezeArguments& arguments) {
  const Loops& loops = HasAvx512() ? kLoopsAvx512 : kLoopsAvx2;
  const std::size_t chunks = shape.chunks(), channels = shape.channels;
  float* sums = arguments.work;
  float* gates = sums + chunks * channels;
  float* squeezed = gates + channels;
  Meeting meeting;
  ParallelTeam(MaxThreads(), [&](int thread, int threads) {
    const Share mine(channels, thread, threads), units(shape.squeezed, thread, threads);
    const std::size_t first = chunks * static_cast<std::size_t>(thread) / threads;
    const std::size_t last = chunks * static_cast<std::size_t>(thread + 1) / threads;
    const auto pixel = [&](std::size_t chunk) { return shape.pixels * chunk / chunks; };
    for (std::size_t image = 0; image < shape.batch; ++image) {
      const std::size_t base = image * shape.pixels * channels;
      const float* x = arguments.source + base;
      for (std::size_t chunk = first; chunk < last; ++chunk) {
        loops.sum(x + pixel(chunk) * channels, pixel(chunk + 1) - pixel(chunk), channels,
                  sums + chunk * channels);
      }
      meeting.Wait(threads);
      loops.mean(shape, mine, sums);
      meeting.Wait(threads);
      loops.inner(shape, arguments, units, sums, squeezed);
      meeting.Wait(threads);
      loops.gates(shape, arguments, mine, squeezed, gates);
      meeting.Wait(threads);
      loops.scale(x + pixel(first) * channels, pixel(last) - pixel(first), channels, gates,
                  arguments.result + base + pixel(first) * channels);
      // The sums of the next image overwrite the mean, which nobody reads any more.
    }
  });
}

}  // namespace pfb
