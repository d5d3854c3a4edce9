// Convolutions by Winograd's algorithm, where measurement says that it is faster.
#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "builder.h"
#include "parallel.h"
#include "plan.h"
#include "tile_choices.h"
#include "winograd.h"

namespace pfb {
namespace {

// A convolution's other operands, its working area and its result are arguments too.
constexpr std::size_t kMaxWinogradParts = kMaxKernelArguments - 5;

// Bytes of V and P together that a thread should work on at a time: about half a second-level
// cache.
constexpr std::size_t kWorkingSet = 512 << 10;

// Tiles worked on at once, and by whom.
struct Schedule {
  bool by_tiles;  // each thread takes its own tiles through all stages; else threads share stages
  int chunk;      // tiles at a time
  int workers;    // working areas needed
};

// Many tiles: every thread works alone and in its cache.  Few: all threads share each product, so
// that the weights, which dominate then, are read once.
Schedule ChooseSchedule(const WinogradShape& shape, int threads) {
  const std::size_t per_tile = static_cast<std::size_t>(shape.positions()) *
                               (shape.channels + shape.out_channels) * sizeof(float);
  const int fitting = static_cast<int>(std::max<std::size_t>(kWorkingSet / per_tile, 1));
  constexpr int kEfficientRows = 16;  // of a matrix product
  const int share = (shape.tiles() + threads - 1) / threads;
  if (share < kEfficientRows || fitting < kEfficientRows) {
    const int chunk = std::min(shape.tiles(), std::max(fitting, kEfficientRows) * threads);
    return {false, chunk, 1};
  }
  const int rounds = (share + fitting - 1) / fitting;
  return {true, (share + rounds - 1) / rounds, threads};
}

std::vector<int> Key(const Dims& source, const ConvolutionSpec& spec, const Dims& out,
                     int threads) {
  std::vector<int> key(source.begin(), source.end());
  key.insert(key.end(), out.begin(), out.end());
  key.insert(key.end(), spec.pad_begin.begin(), spec.pad_begin.end());
  key.push_back(threads);
  return key;
}

}  // namespace

int PlanBuilder::ChooseTile(const ConvolutionSpec& spec, const Dims& out) {
  if (settings_.algorithm == "winograd2") return 2;
  if (settings_.algorithm == "winograd4") return 4;
  const std::vector<int> key = Key(SourceShape(spec), spec, out, settings_.threads);
  if (const auto known = KnownTile(key)) return *known;
  // A larger tile needs larger weights (16 / 9 and 4 times the direct ones): it must clearly win.
  constexpr double kClearly = 0.93;
  double best = MeasureSeconds(spec, "direct");
  int tile = 0;
  for (const int candidate : {2, 4}) {
    const double seconds = MeasureSeconds(spec, "winograd" + std::to_string(candidate));
    if (seconds < best * kClearly) {
      best = seconds;
      tile = candidate;
    }
  }
  RememberTile(key, tile);
  return tile;
}

// The fastest of a few runs of this convolution alone, without its residual.
double PlanBuilder::MeasureSeconds(const ConvolutionSpec& spec, const std::string& algorithm) {
  BuilderSettings settings = settings_;
  settings.algorithm = algorithm;
  PlanBuilder probe(settings);
  const Dims source = SourceShape(spec);
  ConvolutionSpec alone = spec;
  alone.sources = {probe.Input(source, DType::kFloat32)};
  alone.target = -1;
  const Storage& weights = storage(RowMajorOf(spec.weights));
  alone.weights = probe.Constant(weights.packed ? weights.packed->get_data_handle() : weights.data,
                                 shape(spec.weights), DType::kFloat32, /*borrowed=*/true);
  alone.bias = -1;
  alone.post_ops = {{"relu", 0.0F, 0.0F, -1}};
  probe.SetStepName("convolution");
  const int result = probe.Convolution(alone);
  const Dims out = probe.shape(result);
  probe.Output(result);
  std::vector<std::size_t> offsets;
  std::size_t bytes = 0;
  for (const Lifetime& life : probe.Lifetimes()) {
    offsets.push_back(bytes);
    bytes += life.bytes;
  }
  const auto plan = probe.Finish(offsets, bytes);
  std::vector<float> input(static_cast<std::size_t>(ElementCount(source)), 0.5F);
  std::vector<float> output(static_cast<std::size_t>(ElementCount(out)));
  constexpr int kRuns = 5;
  long long fastest = std::numeric_limits<long long>::max();
  for (int run = 0; run < kRuns; ++run) {
    std::vector<long long> nanoseconds;
    plan->Run({input.data()}, {output.data()}, nullptr, &nanoseconds);
    for (std::size_t i = 0; i < nanoseconds.size(); ++i) {
      if (plan->data().steps[i].name == "convolution") fastest = std::min(fastest, nanoseconds[i]);
    }
  }
  return static_cast<double>(fastest) * 1e-9;
}

bool PlanBuilder::WinogradApplies(const ConvolutionSpec& spec, const Dims& out) const {
  if (settings_.algorithm == "direct" || !settings_.channels_last || !WinogradSupported()) {
    return false;
  }
  const Dims source = SourceShape(spec);
  const Dims weights = shape(spec.weights);
  const auto all = [](const Dims& dims, long value) {
    return std::all_of(dims.begin(), dims.end(), [=](auto d) { return d == value; });
  };
  if (source.size() != 4 || weights[2] != 3 || weights[3] != 3 || spec.groups != 1) return false;
  if (!all(spec.strides, 1) || !all(spec.dilations, 1)) return false;
  if (out[1] % 8 != 0) return false;
  for (const int part : spec.sources) {
    if (this->shape(part)[1] % 8 != 0) return false;
  }
  if (spec.sources.size() > kMaxWinogradParts) return false;
  // Small products do not repay the transforms.
  constexpr int kFewestChannels = 24;
  if (source[1] < kFewestChannels || out[1] < kFewestChannels) return false;
  // At most an activation, a residual and another activation.
  std::size_t next = 0;
  const PostOps& ops = spec.post_ops;
  if (next < ops.size() && AsActivation(ops[next])) ++next;
  if (next < ops.size() && ops[next].value >= 0) {
    const bool adds = ops[next].kind == "sum" || ops[next].kind == "add";
    if (!adds || shape(ops[next].value) != out) return false;
    ++next;
    if (next < ops.size() && AsActivation(ops[next])) ++next;
  }
  return next == ops.size();
}

int PlanBuilder::Winograd(const ConvolutionSpec& spec, const Dims& out, int tile) {
  const Dims source_shape = SourceShape(spec);
  WinogradShape shape{};
  shape.batch = static_cast<int>(source_shape[0]);
  shape.channels = static_cast<int>(source_shape[1]);
  shape.height = static_cast<int>(source_shape[2]);
  shape.width = static_cast<int>(source_shape[3]);
  shape.out_channels = static_cast<int>(out[1]);
  shape.out_height = static_cast<int>(out[2]);
  shape.out_width = static_cast<int>(out[3]);
  shape.pad_top = static_cast<int>(spec.pad_begin[0]);
  shape.pad_left = static_cast<int>(spec.pad_begin[1]);
  shape.tile = tile;
  const Schedule schedule = ChooseSchedule(shape, settings_.threads);

  // The products of one chunk: [positions, tiles, channels] x [positions, channels, out channels].
  const auto f32 = dnnl::memory::data_type::f32;
  const Desc v_desc = RowMajor({shape.positions(), schedule.chunk, shape.channels}, f32);
  const Desc p_desc = RowMajor({shape.positions(), schedule.chunk, shape.out_channels}, f32);
  const Dims u_shape = {shape.positions(), shape.channels, shape.out_channels};
  const auto product = [&] {
    const ThreadScope threads(schedule.by_tiles ? 1 : settings_.threads);
    return dnnl::matmul::primitive_desc(engine_, v_desc, AnyLayout(u_shape), p_desc,
                                        PlainAttributes());
  }();
  const auto primitive = [&] {
    const ThreadScope threads(schedule.by_tiles ? 1 : settings_.threads);
    return dnnl::matmul(product);
  }();
  const Desc u_desc = product.weights_desc();
  const int weights = TransformedWeights(spec.weights, shape, u_shape, u_desc);

  // One working area per worker: V, P, and the product's scratchpad.
  const auto aligned = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
  const std::size_t v_bytes = aligned(v_desc.get_size());
  const std::size_t p_bytes = aligned(p_desc.get_size());
  const std::size_t scratch_bytes = aligned(product.scratchpad_desc().get_size());
  const std::size_t area = v_bytes + p_bytes + scratch_bytes;
  const int work =
      NewValue(RowMajor({static_cast<dnnl::memory::dim>(area * schedule.workers)}, DType::kUInt8),
               DType::kUInt8);

  const Desc out_desc = ChannelsLast(out, f32);
  WinogradEpilogue made;
  Arguments arguments = {{0, weights}, {0, work}};
  std::vector<int> part_channels;
  for (const int part : spec.sources) {
    arguments.emplace_back(0, InLayout(part, ChannelsLast(this->shape(part), f32)));
    part_channels.push_back(static_cast<int>(this->shape(part)[1]));
  }
  int result = -1;
  int bias_at = -1;
  int residual_at = -1;
  if (spec.bias >= 0) {
    bias_at = static_cast<int>(arguments.size());
    arguments.emplace_back(0, PlainVector(spec.bias));
  }
  for (const PostOp& op : spec.post_ops) {
    if (const auto activation = AsActivation(op)) {
      (residual_at < 0 ? made.before : made.after) = *activation;
    } else {
      residual_at = static_cast<int>(arguments.size());
      arguments.emplace_back(0, InLayout(op.value, out_desc));
      if (op.kind == "sum") result = SumTarget(spec.post_ops, out_desc);
    }
  }
  shape.out_stride = shape.out_channels;
  if (result < 0 && spec.target >= 0) {
    result = spec.target;
    shape.out_stride = static_cast<int>(PixelStride(desc(result)));
  }
  if (result < 0) result = NewValue(out_desc, DType::kFloat32);
  const std::size_t result_at = arguments.size();
  arguments.emplace_back(0, result);

  AddKernel(std::move(arguments), [=, engine = engine_, scratch_desc = product.scratchpad_desc()](
                                      void* const* pointers) {
    WinogradPart parts[kMaxWinogradParts];
    for (std::size_t i = 0; i < part_channels.size(); ++i) {
      parts[i] = {static_cast<const float*>(pointers[2 + i]), part_channels[i]};
    }
    auto* out_data = static_cast<float*>(pointers[result_at]);
    WinogradEpilogue epilogue = made;
    if (bias_at >= 0) epilogue.bias = static_cast<const float*>(pointers[bias_at]);
    if (residual_at >= 0) epilogue.residual = static_cast<const float*>(pointers[residual_at]);
    const int chunks = (shape.tiles() + schedule.chunk - 1) / schedule.chunk;

    // Takes chunks [first, last) through the stages in working area `worker`.
    const auto work_on = [&](int first, int last, int worker, bool shared) {
      char* base = static_cast<char*>(pointers[1]) + static_cast<std::size_t>(worker) * area;
      auto* v = reinterpret_cast<float*>(base);
      auto* p = reinterpret_cast<float*>(base + v_bytes);
      dnnl::stream stream(engine);
      const dnnl::memory v_memory(v_desc, engine, v);
      const dnnl::memory u_memory(u_desc, engine, pointers[0]);
      const dnnl::memory p_memory(p_desc, engine, p);
      const dnnl::memory scratch(scratch_desc, engine, base + v_bytes + p_bytes);
      const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, v_memory.get()},
                                      {DNNL_ARG_WEIGHTS, u_memory.get()},
                                      {DNNL_ARG_DST, p_memory.get()},
                                      {DNNL_ARG_SCRATCHPAD, scratch.get()}};
      const auto each = [&](int begin, int end, const auto& stage) {
        if (!shared) return stage(begin, end);
        ParallelFor(static_cast<std::size_t>(end - begin), [&](std::size_t b, std::size_t e) {
          stage(begin + static_cast<int>(b), begin + static_cast<int>(e));
        });
      };
      const auto channels = static_cast<std::size_t>(shape.channels);
      const auto out_channels = static_cast<std::size_t>(shape.out_channels);
      for (int chunk = first; chunk < last; ++chunk) {
        const int begin = chunk * schedule.chunk;
        const int end = std::min(shape.tiles(), begin + schedule.chunk);
        each(begin, end, [&](int b, int e) {
          TransformSource(shape, parts, b, e, schedule.chunk,
                          v + static_cast<std::size_t>(b - begin) * channels);
        });
        dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive.get(), stream.get(), 4, args),
                                "a Winograd product could not be executed");
        each(begin, end, [&](int b, int e) {
          TransformResult(shape, p + static_cast<std::size_t>(b - begin) * out_channels, b, e,
                          schedule.chunk, epilogue, out_data);
        });
      }
    };
    if (!schedule.by_tiles) return work_on(0, chunks, 0, true);
    ParallelFor(static_cast<std::size_t>(schedule.workers), [&](std::size_t b, std::size_t e) {
      for (std::size_t worker = b; worker < e; ++worker) {
        const auto part = [&](std::size_t w) {
          return static_cast<int>(static_cast<std::size_t>(chunks) * w /
                                  static_cast<std::size_t>(schedule.workers));
        };
        work_on(part(worker), part(worker + 1), static_cast<int>(worker), false);
      }
    });
  });
  steps_.back().implementation = "winograd:" + std::to_string(tile);
  return result;
}

int PlanBuilder::TransformedWeights(int weights, const WinogradShape& shape, const Dims& u_shape,
                                    const Desc& u_desc) {
  Storage packed;
  packed.kind = Storage::Kind::kConstant;
  packed.bytes = u_desc.get_size();
  Storage& source = storage(RowMajorOf(weights));
  const Desc from = RowMajor(u_shape, dnnl::memory::data_type::f32);
  packed.packed = ConstantCache::Instance().Get(HashOf(source), from, u_desc, [&] {
    const auto* data = source.packed ? source.packed->get_data_handle() : source.data;
    dnnl::memory plain(from, engine_);
    TransformWeights(shape, static_cast<const float*>(data),
                     static_cast<float*>(plain.get_data_handle()));
    dnnl::memory result(u_desc, engine_);
    dnnl::reorder(plain, result).execute(stream_, plain, result);
    stream_.wait();
    return result;
  });
  packed.data = packed.packed->get_data_handle();
  storages_.push_back(std::move(packed));
  return AddValue(u_desc, DType::kFloat32, static_cast<int>(storages_.size()) - 1);
}

}  // namespace pfb
