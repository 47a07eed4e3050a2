// braid.Fused(inputs...) -> outputs...: a region of elementwise nodes and reductions of rows as one node.
// Attribute `program` says what it computes (engine/fusion/region.h). The compiler makes it
// (engine/rewrite/fuse_regions.cc). On the CPU it has the bits of the nodes that it stands for
// (region_tiles.h).
#include <fmt/format.h>

#include <algorithm>

#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/fused/region_tiles.h"

namespace braid {
namespace {

using fusion::Region;

Region region_of(const Node& node) { return Region::parse(node.attrs.require<std::string>("program")); }

/// One more than the last element that the axes name.
std::int64_t extent_of(const fusion::Axes& axes) {
  std::int64_t last = 0;
  for (const fusion::Axis& axis : axes) last += (axis.size - 1) * axis.stride;
  return last + 1;
}

void infer(InferContext& c) {
  const Region region = region_of(c.node());
  if (static_cast<int>(region.inputs.size()) != c.inputs())
    c.fail(fmt::format("the program has {} inputs, the node {}", region.inputs.size(), c.inputs()));
  for (int i = 0; i < c.inputs(); ++i) {
    const Region::Input& input = region.inputs[static_cast<std::size_t>(i)];
    require_dtype(c, i, {input.dtype});
    const std::int64_t elements =
        input.by >= 0 ? input.of * region.columns : input.offset + extent_of(input.axes);
    if (c.shape(i).is_static() && region.rows * region.columns > 0 && elements > c.shape(i).elements())
      c.fail(fmt::format("input {} of shape {} has fewer elements than the program reads", i,
                         c.shape(i).to_string()));
  }
  for (const Region::Output& output : region.outputs)
    if (!output.is_of_previous) c.output(region.dtype_of(output.value), output.shape);
}

/// A sum of columns: output `to` of the node, of what output `from` of the node without it is.
struct ColumnSum {
  std::size_t to, from;
  DType dtype;
};

/// The region without its sums of columns, whose operands are outputs of it.
Region without_sums(const Region& region, std::vector<ColumnSum>& sums, std::vector<std::size_t>& outputs) {
  Region made = region;
  made.steps.clear();
  made.outputs.clear();
  std::vector<int> number(static_cast<std::size_t>(region.values()));
  for (int v = 0; v < region.values(); ++v) {
    const auto at = static_cast<std::size_t>(v);
    number[at] = region.is_input(v) ? v : made.values();
    if (region.is_input(v) || region.step(v).kind == Region::Kind::Columns) continue;
    Region::Step step = region.step(v);
    for (int& operand : step.operands) operand = number[static_cast<std::size_t>(operand)];
    made.steps.push_back(std::move(step));
  }
  const auto is_sum = [&](const Region::Output& output) {
    return region.extent_of(output.value) == fusion::Extent::Column;
  };
  const std::vector<int> tensors = region.tensors();
  for (std::size_t o = 0; o < region.outputs.size(); ++o) {
    Region::Output output = region.outputs[o];
    if (is_sum(output)) continue;
    output.value = number[static_cast<std::size_t>(output.value)];
    if (!output.is_of_previous) outputs.push_back(static_cast<std::size_t>(tensors[o]));
    made.outputs.push_back(std::move(output));
  }
  // A part that is summed is written again, as a whole.
  for (std::size_t o = 0; o < region.outputs.size(); ++o) {
    const Region::Output& output = region.outputs[o];
    if (!is_sum(output)) continue;
    int summed = number[static_cast<std::size_t>(region.step(output.value).operands[0])];
    const auto find = [&] {
      return std::find_if(made.outputs.begin(), made.outputs.end(),
                          [&](const Region::Output& other) { return other.value == summed; });
    };
    if (const auto known = find(); known != made.outputs.end() && known->is_part) {
      made.steps.push_back({.kind = Region::Kind::Cast,
                            .dtype = made.dtype_of(summed),
                            .extent = fusion::Extent::Full,
                            .operands = {summed}});
      summed = made.values() - 1;
    }
    if (find() == made.outputs.end()) made.outputs.push_back({summed, Shape{region.rows, region.columns}});
    sums.push_back(
        {static_cast<std::size_t>(tensors[o]),
         static_cast<std::size_t>(made.tensors()[static_cast<std::size_t>(find() - made.outputs.begin())]),
         made.dtype_of(summed)});
  }
  return made;
}

template <class T>
BRAID_VECTOR_CLONES void sum_columns(const T* x, std::int64_t rows, std::int64_t columns, T* part, T* sum) {
  constexpr std::int64_t kRows = 512;  // are added apart, so that long sums stay close
  std::fill(sum, sum + columns, T(0));
  for (std::int64_t row = 0; row < rows; row += kRows) {
    std::fill(part, part + columns, T(0));
    for (std::int64_t r = row; r < std::min(row + kRows, rows); ++r)
      for (std::int64_t c = 0; c < columns; ++c) part[c] += x[r * columns + c];
    for (std::int64_t c = 0; c < columns; ++c) sum[c] += part[c];
  }
}

/// Of a region that sums columns: tiles first, then the sums. It is a device's; here for comparison.
PreparedKernel prepare_with_sums(const Region& region) {
  std::vector<ColumnSum> sums;
  std::vector<std::size_t> outputs;  // of the node, for the first ones of the region without sums
  const Region rest = without_sums(region, sums, outputs);
  std::vector<std::size_t> offsets;  // in scratch memory, for the others
  std::size_t bytes = static_cast<std::size_t>(region.columns) * sizeof(double);
  const std::vector<int> tensors = rest.tensors();
  for (std::size_t o = 0; o < rest.outputs.size(); ++o) {
    if (static_cast<std::size_t>(tensors[o]) < outputs.size()) continue;
    bytes = (bytes + 63) / 64 * 64;
    offsets.push_back(bytes);
    bytes +=
        static_cast<std::size_t>(rest.rows * rest.columns) * dtype_size(rest.dtype_of(rest.outputs[o].value));
  }
  PreparedKernel kernel;
  kernel.scratch_bytes = bytes;
  kernel.run = [tiles = RegionTiles(rest), rest, sums, outputs, offsets](const KernelArgs& args) {
    std::vector<void*> places;
    for (const std::size_t output : outputs) places.push_back(args.outputs[output]);
    for (const std::size_t offset : offsets) places.push_back(static_cast<std::byte*>(args.scratch) + offset);
    tiles.run(args.inputs, places.data(), args.params, 0, tiles.tiles());
    for (const ColumnSum& sum : sums) {
      const auto add = [&]<class T>(T) {
        sum_columns(static_cast<const T*>(places[sum.from]), rest.rows, rest.columns,
                    static_cast<T*>(args.scratch), args.out<T>(static_cast<int>(sum.to)));
      };
      sum.dtype == DType::Float64 ? add(double{}) : add(float{});
    }
  };
  return kernel;
}

PreparedKernel prepare(const PrepareContext& c) {
  const Region region = region_of(c.node);
  if (region.sums_columns()) return prepare_with_sums(region);
  const RegionTiles tiles(region);
  const std::int64_t grain =
      std::max<std::int64_t>(kElementGrain / std::max<std::int64_t>(tiles.work(), 1), 1);
  return parallel_kernel(c, tiles.tiles(), grain,
                         [tiles](const KernelArgs& args, std::int64_t begin, std::int64_t end) {
                           tiles.run(args.inputs, args.outputs, args.params, begin, end);
                         });
}

/// Bytes that are read of each input: of a part of a wider tensor its own, of picked rows all there are.
double bytes_read(const InferContext& c, const Region& region) {
  double bytes = 0;
  for (int i = 0; i < c.inputs(); ++i) {
    const double all = known_bytes({c.dtype(i), c.shape(i)});
    const Region::Input& input = region.inputs[static_cast<std::size_t>(i)];
    auto own = static_cast<double>(dtype_size(input.dtype));
    for (const fusion::Axis& axis : input.axes)
      if (axis.stride != 0) own *= static_cast<double>(axis.size);
    bytes += input.by < 0 ? std::min(all, own) : all;
  }
  return bytes;
}

Cost cost(const InferContext& c, std::span<const OutputInfo> outputs) {
  const Region region = region_of(c.node());
  double bytes = bytes_read(c, region);
  for (const OutputInfo& out : outputs) bytes += known_bytes(out);
  return {static_cast<double>(region.rows * region.columns) * 4 * static_cast<double>(region.steps.size()),
          bytes};
}

}  // namespace

void register_fused_region(OpRegistry& registry) {
  OpDef def;
  def.name = "braid.Fused";
  def.traits = computes().any_type().type_attrs({}).output_list();
  def.min_inputs = 0;
  def.max_inputs = -1;
  def.infer = infer;
  def.no_gradient_reason = "fusion makes it after differentiation";
  def.cost = cost;
  def.cpu = prepare;
  registry.add(std::move(def));
}

}  // namespace braid
