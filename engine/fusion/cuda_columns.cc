#include "engine/fusion/cuda_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "engine/fusion/cuda_formula.h"

namespace braid::fusion {
namespace {

constexpr int kTile = 32;          // columns of a block of the second kernel
constexpr int kTileRows = 32;      // and its rows of threads
constexpr int kMostUnrolled = 20;  // of its rounds
constexpr int kWarp = 32;
static_assert(ColumnSums::kThreads == kTile * kTileRows);

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

template <class... Arguments>
void line(std::string& text, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  fmt::format_to(std::back_inserter(text), format, std::forward<Arguments>(arguments)...);
  text += '\n';
}

}  // namespace

ColumnSums::ColumnSums(const Region& region, const CudaLayout& layout) : region_(region), layout_(layout) {
  for (std::size_t o = 0; o < region_.outputs.size(); ++o) {
    const int value = region_.outputs[o].value;
    if (region_.extent_of(value) != Extent::Column) continue;
    sums_.push_back({value, o, scratch_bytes_});
    const auto elements = static_cast<std::size_t>(layout_.blocks * region_.columns);
    constexpr std::size_t kAlignment = 256;
    scratch_bytes_ +=
        (elements * dtype_size(region_.dtype_of(value)) + kAlignment - 1) / kAlignment * kAlignment;
  }
}

std::string_view ColumnSums::type_of(const Sums& sums) const {
  return cuda_type(region_.dtype_of(sums.value));
}

std::int64_t ColumnSums::blocks() const {
  return ceil_div(region_.columns, kTile) * static_cast<std::int64_t>(sums_.size());
}

/// A row of columns for each warp, or for each row of a block's threads.
std::int64_t ColumnSums::shared_doubles() const {
  std::size_t most = sizeof(double);
  for (const Sums& sum : sums_) most = std::max(most, dtype_size(region_.dtype_of(sum.value)));
  const int rows = layout_.threads / std::max(layout_.row_threads, kWarp);
  return rows > 1 ? ceil_div(static_cast<std::int64_t>(most) * rows * region_.columns, sizeof(double)) : 1;
}

/// Parts of a thread that are on their way at a time. Where a thread has more than one load of a part, more
/// parts do not pay for their registers.
int ColumnSums::unrolled() const {
  constexpr std::int64_t kLoadBytes = 16;
  if (region_.reduces()) return 1;
  std::int64_t bytes = 0;
  for (const Region::Input& input : region_.inputs)
    if (input.extent == Extent::Full)
      bytes += layout_.places * static_cast<std::int64_t>(dtype_size(input.dtype));
  return bytes <= kLoadBytes ? 4 : 1;
}

std::string ColumnSums::begin() const {
  std::string text;
  if (!layout_.loops) return text;
  for (const Sums& sum : sums_) line(text, "{} sum{}[{}] = {{}};", type_of(sum), sum.value, layout_.places);
  // Of all threads of a block together, as reductions of its rows wait for each other.
  line(text, "_Pragma(\"unroll {}\") for (long long part = blockIdx.x; part < {}ll; part += {}ll) {{",
       unrolled(), ceil_div(region_.rows, layout_.threads / layout_.row_threads), layout_.blocks);
  return text;
}

std::string ColumnSums::end() const {
  std::string text;
  if (!layout_.loops) return text;
  line(text, "}}");
  for (const Sums& sum : sums_)
    line(text,
         "add_columns<{}, {}, {}, {}>(sum{}, reinterpret_cast<{}*>(shared), {}, "
         "reinterpret_cast<{}*>(scratch + {}ll) + blockIdx.x * {}ll);",
         layout_.threads, layout_.row_threads, layout_.places, layout_.vector, sum.value, type_of(sum),
         region_.columns, type_of(sum), sum.offset, region_.columns);
  return text;
}

/// A block of kTile x kTileRows threads for kTile columns of a value's sums.
std::string ColumnSums::kernel(std::string_view name, const std::vector<int>& tensors) const {
  std::string text = fmt::format(
      "extern \"C\" __global__ void __launch_bounds__({}) {}_columns(const char* __restrict__ scratch",
      kThreads, name);
  for (std::size_t o = 0; o < region_.outputs.size(); ++o)
    if (!region_.outputs[o].is_of_previous)
      text += fmt::format(", {}* __restrict__ out{}", cuda_type(region_.dtype_of(region_.outputs[o].value)),
                          tensors[o]);
  text += ") {\n";
  const std::int64_t tiles = ceil_div(region_.columns, kTile), rounds = ceil_div(layout_.blocks, kTileRows);
  line(text, "const long long c = (blockIdx.x % {}ll) * {} + threadIdx.x % {};", tiles, kTile, kTile);
  line(text, "const int r = threadIdx.x / {};", kTile);
  for (std::size_t s = 0; s < sums_.size(); ++s) {
    const std::string_view t = type_of(sums_[s]);
    line(text, "if (blockIdx.x / {}ll == {}) {{ __shared__ {} parts[{}]; {} sum = 0;", tiles, s, t, kThreads,
         t);
    line(text, "const {}* const from = reinterpret_cast<const {}*>(scratch + {}ll);", t, t, sums_[s].offset);
    line(text,
         "if (c < {}ll) _Pragma(\"unroll {}\") for (int k = 0; k < {}; ++k) {{ const int b = r + k * {};",
         region_.columns, std::min<std::int64_t>(rounds, kMostUnrolled), rounds, kTileRows);
    line(text, "if (b < {}) sum = fn::add<{}>(sum, from[b * {}ll + c]); }}", layout_.blocks, t,
         region_.columns);
    line(text, "parts[threadIdx.x] = sum; __syncthreads();");
    line(text,
         "if (r == 0 && c < {}ll) {{ _Pragma(\"unroll\") for (int i = 1; i < {}; ++i) sum = fn::add<{}>(sum, "
         "parts[threadIdx.x + i * {}]); out{}[c] = sum; }} }}",
         region_.columns, kTileRows, t, kTile, tensors[sums_[s].output]);
  }
  text += "}\n";
  return text;
}

}  // namespace braid::fusion
