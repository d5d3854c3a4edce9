// Attention: in one step by a loop of our own where that applies, else as products around a
// softmax.
#include "attention.h"
#include "builder.h"

namespace pfb {
namespace {

// [batch, heads, rows, depth] or [batch, rows, depth]; dimensions of size 1 repeat.
AttentionStrides StridesOf(const Desc& desc) {
  const Dims dims = desc.get_dims(), strides = desc.get_strides();
  const std::size_t rank = dims.size();
  const auto stride = [&](std::size_t axis) {
    return dims[axis] == 1 ? 0 : static_cast<std::size_t>(strides[axis]);
  };
  return {stride(0), rank == 4 ? stride(1) : 0, stride(rank - 2)};
}

bool HasContiguousRows(const Desc& desc) {
  return IsStrided(desc) && (desc.get_dims().back() == 1 || desc.get_strides().back() == 1);
}

}  // namespace

bool PlanBuilder::CanAttend(int q, int k, int v, int mask) const {
  const Dims queries = values_[q].desc.get_dims(), keys = values_[k].desc.get_dims();
  const Dims values = values_[v].desc.get_dims();
  const std::size_t rank = queries.size();
  if (!AttentionSupported() || (rank != 3 && rank != 4)) return false;
  for (const int operand : {q, k, v}) {
    if (!HasContiguousRows(values_[operand].desc)) return false;
  }
  for (std::size_t axis = 0; axis + 2 < rank; ++axis) {
    if (keys[axis] != queries[axis] || values[axis] != queries[axis]) return false;
  }
  if (mask < 0) return true;
  const Desc& masks = values_[mask].desc;
  return masks.get_dims().size() == rank && masks.get_dims().back() == keys[rank - 2] &&
         HasContiguousRows(masks);
}

int PlanBuilder::AttendInOneStep(int q, int k, int v, int mask, float scale, const Desc& layout,
                                 const std::vector<AttentionBlock>& blocks) {
  const Dims queries = shape(q), keys = shape(k);
  const std::size_t rank = queries.size();
  const int result = NewValue(layout, DType::kFloat32);
  AttentionShape made{};
  const auto size = [](Dims::value_type dimension) { return static_cast<std::size_t>(dimension); };
  made.batches = size(queries[0]);
  made.heads = rank == 4 ? size(queries[1]) : 1;
  made.keys = size(keys[rank - 2]);
  made.depth = size(queries.back());
  made.value_depth = size(shape(v).back());
  made.scale = scale;
  made.query = StridesOf(desc(q));
  made.key = StridesOf(desc(k));
  made.value = StridesOf(desc(v));
  made.result = StridesOf(layout);
  made.masked = mask >= 0;
  if (made.masked) made.mask = StridesOf(desc(mask));
  for (const AttentionBlock& block : blocks) {
    made.blocks.push_back(
        {size(block.begin), size(block.end), size(block.first_key), size(block.last_key)});
  }
  const double products = static_cast<double>(made.keys * size(ElementCount(queries))) /
                          static_cast<double>(made.depth);
  const WorkScope work(*this, 2.0 * products * static_cast<double>(made.depth + made.value_depth));
  const int threads = step_threads_;
  const Dims memory = {static_cast<Dims::value_type>(made.work() * size(threads))};
  const int scratch = NewValue(RowMajor(memory, DType::kFloat32), DType::kFloat32);
  Arguments arguments = {{0, q}, {0, k}, {0, v}, {0, result}, {0, scratch}};
  if (made.masked) arguments.emplace_back(0, mask);
  AddKernel(std::move(arguments), [made, threads](void* const* pointers) {
    const auto at = [&](int index) { return static_cast<float*>(pointers[index]); };
    RunAttention(made, {at(0), at(1), at(2), made.masked ? at(5) : nullptr, at(3), at(4)}, threads);
  });
  return result;
}

int PlanBuilder::Attention(int q, int k, int v, int mask, float scale, bool heads_inside,
                           const std::vector<AttentionBlock>& blocks, bool in_one_step) {
  const int rank = static_cast<int>(shape(q).size());
  const auto last = static_cast<std::size_t>(rank) - 1;
  Dims out = shape(q);
  out.back() = shape(v).back();
  Desc layout = RowMajor(out, DType::kFloat32);
  if (heads_inside) {
    const auto row = out[1] * out[3];
    layout = Desc(out, dnnl::memory::data_type::f32, Dims{out[2] * row, out[3], row, 1});
  }
  if (in_one_step) return AttendInOneStep(q, k, v, mask, scale, layout, blocks);
  if (blocks.empty()) return AttentionOf(q, k, v, mask, scale, layout, -1);
  const int result = NewValue(layout, DType::kFloat32);
  const Dims ones(static_cast<std::size_t>(rank), 1);
  const auto part = [&](int value, std::size_t axis, Dims::value_type begin, Dims::value_type end) {
    Dims from(shape(value).size(), 0), size = shape(value);
    if (size[axis] == 1 || size[axis] == end - begin) return value;
    from[axis] = begin;
    size[axis] = end - begin;
    return Slice(value, from, size, ones);
  };
  for (const AttentionBlock& block : blocks) {
    const auto rows = [&](int value) { return part(value, last - 1, block.begin, block.end); };
    const auto keys = [&](int value, std::size_t axis) {
      return part(value, axis, block.first_key, block.last_key);
    };
    AttentionOf(rows(q), keys(k, last - 1), keys(v, last - 1),
                mask < 0 ? -1 : keys(rows(mask), last), scale, Desc(), rows(result));
  }
  return result;
}

int PlanBuilder::AttentionOf(int q, int k, int v, int mask, float scale, const Desc& layout,
                             int target) {
  const int rank = static_cast<int>(shape(q).size());
  std::vector<int> transposed(static_cast<std::size_t>(rank));
  for (int i = 0; i < rank; ++i) transposed[static_cast<std::size_t>(i)] = i;
  std::swap(transposed[static_cast<std::size_t>(rank) - 1],
            transposed[static_cast<std::size_t>(rank) - 2]);
  PostOps post_ops = {{"linear", scale, 0.0F, -1}};
  if (mask >= 0) post_ops.push_back({"add", 0.0F, 0.0F, mask});
  const int scores = Batched(q, Permute(k, transposed), -1, post_ops);
  return Batched(Softmax(scores, rank - 1, false), v, -1, {}, layout, target);
}

}  // namespace pfb
