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
    if (c.shape(i).is_static() && region.rows * region.columns > 0 &&
        extent_of(input.axes) > c.shape(i).elements())
      c.fail(fmt::format("input {} of shape {} has fewer elements than the program reads", i,
                         c.shape(i).to_string()));
  }
  for (const Region::Output& output : region.outputs) c.output(region.dtype_of(output.value), output.shape);
}

PreparedKernel prepare(const PrepareContext& c) {
  const RegionTiles tiles(region_of(c.node));
  const std::int64_t grain =
      std::max<std::int64_t>(kElementGrain / std::max<std::int64_t>(tiles.work(), 1), 1);
  return parallel_kernel(c, tiles.tiles(), grain,
                         [tiles](const KernelArgs& args, std::int64_t begin, std::int64_t end) {
                           tiles.run(args.inputs, args.outputs, begin, end);
                         });
}

Cost cost(const InferContext& c, std::span<const OutputInfo> outputs) {
  const Region region = region_of(c.node());
  return {static_cast<double>(region.rows * region.columns) * 4 * static_cast<double>(region.steps.size()),
          traffic_bytes(c, outputs)};
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
