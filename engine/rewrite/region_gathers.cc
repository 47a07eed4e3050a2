#include "engine/rewrite/region_gathers.h"

#include <algorithm>
#include <optional>

#include "engine/ir/op.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

using fusion::Extent;
using fusion::Region;

constexpr std::int64_t kLeastReadBytes = 64;  // of a row: less is no whole access of memory

/// A gather of rows, as a region would do it.
struct RowGather {
  ValueRef value, table, indices;
  std::int64_t rows = 0, columns = 0, of = 0;  // rows of `columns` elements, out of `of`
  DType index_type = DType::Int64;
};

std::optional<RowGather> row_gather(const Plan& plan, const Node& node) {
  static const Pattern gather{"GatherV2", "Gather"};
  const Graph& graph = plan.program.graph;
  if (node.removed || !gather.names(node) || !is_inner(plan, node.id) || !suits_device(plan, node))
    return std::nullopt;
  if (node.inputs.size() > 2) {
    const Tensor* axis = graph.known_value(node.inputs[2]);
    if (!axis || axis->elements() != 1 || tensor_to_int64s(*axis)[0] != 0) return std::nullopt;
  }
  const OutputInfo &table = graph.info(node.inputs[0]), &indices = graph.info(node.inputs[1]);
  if (!table.shape.is_static() || !indices.shape.is_static() || table.shape.rank() < 1 ||
      table.shape.elements() == 0 || (indices.dtype != DType::Int32 && indices.dtype != DType::Int64))
    return std::nullopt;
  const RowGather made{{node.id, 0},
                       node.inputs[0],
                       node.inputs[1],
                       indices.shape.elements(),
                       table.shape.elements() / table.shape[0],
                       table.shape[0],
                       indices.dtype};
  if (made.rows < 2 || made.columns * static_cast<std::int64_t>(dtype_size(table.dtype)) < kLeastReadBytes)
    return std::nullopt;
  return made;
}

/// The region's grid gets the gather's rows, where nothing of it has rows or columns yet.
bool fits(Region& program, const RowGather& gather) {
  if (program.rows == gather.rows && program.columns == gather.columns) return true;
  if (program.rows != 1 || program.columns != gather.rows * gather.columns) return false;
  for (int v = 0; v < program.values(); ++v)
    if (program.extent_of(v) == Extent::Row || program.extent_of(v) == Extent::Column) return false;
  if (std::any_of(program.outputs.begin(), program.outputs.end(),
                  [](const Region::Output& output) { return output.is_part; }))
    return false;
  program.rows = gather.rows;
  program.columns = gather.columns;
  return true;
}

class GatherAbsorber {
 public:
  GatherAbsorber(const Plan& plan, const Users& users, const NodeStepsCache& steps,
                 std::vector<FusedRegion>& regions)
      : plan_(plan), graph_(plan.program.graph), users_(users), steps_(steps), regions_(regions) {}

  void absorb(const RowGather& gather) {
    std::vector<std::pair<FusedRegion*, std::size_t>> readers;
    for (FusedRegion& region : regions_)
      for (std::size_t i = 0; i < region.inputs.size(); ++i) {
        if (region.inputs[i] != gather.value) continue;
        if (!takes(region, i, gather)) return;
        readers.emplace_back(&region, i);
      }
    if (readers.empty() || !is_for_regions(gather)) return;
    // From the last input of a region to its first, as what is behind one moves.
    for (auto at = readers.rbegin(); at != readers.rend(); ++at) pick(*at->first, at->second, gather);
  }

 private:
  /// Whether the region reads all of it, place by place, and would do so by its grid's rows.
  bool takes(const FusedRegion& region, std::size_t i, const RowGather& gather) const {
    const Region::Input& input = region.program.inputs[i];
    Region program = region.program;
    return together(graph_.node(region.nodes[0]), graph_.node(gather.value.node)) &&
           input.extent == Extent::Full && input.offset == 0 && input.by < 0 &&
           input.axes == fusion::contiguous_axes(gather.rows * gather.columns) && fits(program, gather) &&
           region.inputs.size() < kMostInputs;
  }

  /// Whether nodes of regions are the only ones that read it.
  bool is_for_regions(const RowGather& gather) const {
    if (users_.is_awaited(gather.value.node)) return false;
    std::vector<NodeId> open = users_.readers(gather.value.node);
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      const bool is_member = std::any_of(regions_.begin(), regions_.end(), [&](const FusedRegion& region) {
        return std::find(region.nodes.begin(), region.nodes.end(), id) != region.nodes.end();
      });
      if (is_member) continue;
      // Views that regions look through.
      if (steps_.source(plan_, {id, 0}) == ValueRef{id, 0} || !is_inner(plan_, id) || users_.is_awaited(id))
        return false;
      const std::vector<NodeId> readers = users_.readers(id);
      open.insert(open.end(), readers.begin(), readers.end());
    }
    return true;
  }

  static void pick(FusedRegion& region, std::size_t i, const RowGather& gather) {
    Region& program = region.program;
    fits(program, gather);
    make_room(program, static_cast<int>(i));
    const auto place = static_cast<std::ptrdiff_t>(i);
    program.inputs.insert(
        program.inputs.begin() + place,
        {.dtype = gather.index_type, .extent = Extent::Row, .axes = fusion::contiguous_axes(gather.rows)});
    region.inputs.insert(region.inputs.begin() + place, gather.indices);
    program.inputs[i + 1].by = static_cast<int>(i);
    program.inputs[i + 1].of = gather.of;
    region.inputs[i + 1] = gather.table;
  }

  static constexpr std::size_t kMostInputs = 40;  // of a kernel's arguments, with room to spare

  const Plan& plan_;
  const Graph& graph_;
  const Users& users_;
  const NodeStepsCache& steps_;
  std::vector<FusedRegion>& regions_;
};

}  // namespace

void absorb_gathers(const Plan& plan, const Users& users, const NodeStepsCache& steps,
                    std::vector<FusedRegion>& regions) {
  GatherAbsorber absorber(plan, users, steps, regions);
  for (const NodeId id : plan.program.graph.topological_order())
    if (const auto gather = row_gather(plan, plan.program.graph.node(id))) absorber.absorb(*gather);
}

}  // namespace braid
