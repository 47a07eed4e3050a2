#include "engine/rewrite/region_finder.h"

#include <algorithm>
#include <functional>
#include <map>
#include <unordered_set>

#include "engine/fusion/rules.h"
#include "engine/graph/write_order.h"
#include "engine/ir/device_name.h"
#include "engine/ir/op.h"
#include "engine/program/cost_model.h"
#include "engine/rewrite/region_cuts.h"
#include "engine/rewrite/region_gathers.h"
#include "engine/rewrite/region_parts.h"
#include "engine/rewrite/region_program.h"
#include "engine/rewrite/region_turns.h"
#include "engine/rewrite/rewrite.h"
#include "engine/rewrite/written_streams.h"

namespace braid {
namespace {

/// A device's kernel has a row to a part of a warp, or to a block: few rows keep most of it idle, and a
/// loss's mean over its batch would have what comes before it wait for one warp.
constexpr std::int64_t kFewRows = 32;
/// Lines that are scanned in a region: a thread goes down each, and those of a warp lie beside each other.
constexpr std::int64_t kFewLines = 16384, kNearLines = 32;
/// Lines that are only added up, with what is computed before: of so many elements, for so many lines.
constexpr std::int64_t kNearFolds = 16, kFoldLength = 128;
/// Or fewer lines, that are short: a kernel is then as long as its launch, and one of fewer pays.
constexpr std::int64_t kLinesOfShort = 2048, kShortFold = 32;
/// Elements of all lines beside each other, which a thread of the CPU has whole, for each value of a region.
constexpr std::int64_t kLargestPiece = 1 << 15;
/// Sums of columns of so many elements are taken in.
constexpr std::int64_t kManyElements = 1 << 20;
/// Regions that read one value of so many bytes read it once; smaller ones stay in a device's cache.
constexpr std::int64_t kLargeBytes = 48 << 20;
/// Sums of columns that such a region may have: a thread keeps them in registers.
constexpr int kMostSums = 4;
/// Of a search for a way back into a region; what takes longer is left alone.
constexpr int kMostSteps = 20000;

class RegionFinder {
 public:
  explicit RegionFinder(const Plan& plan)
      : plan_(plan),
        graph_(plan.program.graph),
        users_(graph_),
        steps_(graph_),
        streams_(written_streams(plan)),
        order_(graph_.topological_order()),
        position_(size(), 0),
        region_of_(size(), -1) {
    for (std::size_t at = 0; at < order_.size(); ++at) {
      position_[index(order_[at])] = static_cast<int>(at);
      horizon_.push_back(static_cast<int>(at));
    }
  }

  std::vector<FusedRegion> find(bool cuts) {
    find_after_writes();
    find_turns(plan_, users_, steps_, [&](const Node& node) { return may_join(node); });
    // What lines are added up to is for somebody outside. It comes last, as it suits fewer others.
    for (const bool folds : {false, true})
      for (const NodeId id : order_)
        if (may_join(graph_.node(id)) && steps_.of(id)->folds() == folds) join(id);
    if (plan_.options.domain == Domain::Device) merge_readers();
    const std::vector<Join> joins = merge_joined();
    std::vector<FusedRegion> found = cuts ? cut() : uncut();
    for (FusedRegion& region : found) region.saved_us = saved_us(region);
    absorb_joins(plan_, users_, steps_, joins, found);
    if (plan_.options.domain == Domain::Device) absorb_gathers(plan_, users_, steps_, found);
    std::erase_if(found, [](const FusedRegion& region) { return !is_worthwhile(region); });
    std::sort(found.begin(), found.end(), [&](const FusedRegion& a, const FusedRegion& b) {
      return position_[index(a.nodes.back())] < position_[index(b.nodes.back())];
    });
    return found;
  }

 private:
  /// A node by itself is a region for what it reads or writes where that is.
  static bool is_worthwhile(const FusedRegion& region) {
    return region.nodes.size() > 1 || region.repeats || region.reads_parts || !region.joins.empty() ||
           region.program.gathers();
  }
  static std::size_t index(NodeId id) { return static_cast<std::size_t>(id); }
  std::size_t size() const { return index(graph_.size()); }
  const std::vector<NodeId>& nodes_of(int region) const { return regions_[static_cast<std::size_t>(region)]; }

  std::vector<FusedRegion> uncut() {
    std::vector<FusedRegion> found;
    for (const std::vector<NodeId>& nodes : regions_)
      if (!nodes.empty())
        if (auto made = make(nodes)) found.push_back(std::move(*made));
    return found;
  }

  std::vector<FusedRegion> cut() {
    std::vector<std::vector<NodeId>> regions;
    for (const std::vector<NodeId>& nodes : regions_)
      if (!nodes.empty()) regions.push_back(nodes);
    return cut_regions(plan_, users_, steps_, {position_, streams_}, std::move(regions));
  }

  void find_after_writes() {
    after_write_.assign(size(), 0);
    for (const NodeId id : order_) {
      const Node& node = graph_.node(id);
      char& after = after_write_[index(id)];
      const auto look = [&](NodeId before) {
        after |= after_write_[index(before)] || writes_[index(before)];
      };
      if (writes_.empty()) writes_.assign(size(), 0);
      writes_[index(id)] = writes_variable(node);
      for (const ValueRef input : node.inputs) look(input.node);
      for (const NodeId control : node.control_inputs) look(control);
    }
  }

  bool may_join(const Node& node) {
    const bool is_target =
        std::find(plan_.targets.begin(), plan_.targets.end(), node.id) != plan_.targets.end();
    if (!is_plain(plan_, node) || is_target || users_.is_awaited(node.id) || after_write_[index(node.id)] ||
        !fusion::has_no_state(*node.op))
      return false;
    for (int o = 0; o < static_cast<int>(node.outputs.size()); ++o)
      if (graph_.known_value({node.id, o})) return false;
    if (plan_.options.domain == Domain::Device && !runs_on_device(node)) return false;
    const fusion::NodeSteps* steps = steps_.of(node.id);
    if (!steps) return false;
    // On the CPU sums of columns are as fast by their own kernel, which has other bits. On a device they make
    // what else the region computes wait for them: that pays where they would read much.
    if (steps->sums_columns() && (plan_.options.domain == Domain::Host || steps->elements < kManyElements))
      return false;
    if (steps->columns == 0) return true;
    if (plan_.options.domain == Domain::Device && steps->elements / steps->columns < kFewRows) return false;
    return scans_suit(*steps);
  }

  /// A device has lines that threads go down side by side, the CPU pieces that fit into a thread's cache.
  bool scans_suit(const fusion::NodeSteps& steps) const {
    return std::all_of(steps.steps.begin(), steps.steps.end(), [&](const fusion::Region::Step& step) {
      if (step.kind != fusion::Region::Kind::Scan) return true;
      const std::int64_t lines = steps.elements / step.length;
      if (step.last) {  // the CPU has bits of its own
        const bool many = steps.columns >= kNearFolds && lines >= kFewLines &&
                          step.length <= lines / kFewLines * kFoldLength;
        const bool is_short = steps.columns > 1 && lines >= kLinesOfShort && step.length <= kShortFold;
        return plan_.options.domain == Domain::Device && (many || is_short);
      }
      if (plan_.options.domain == Domain::Host) return step.length * steps.columns <= kLargestPiece;
      return steps.columns >= kNearLines && lines >= kFewLines;
    });
  }

  bool runs_on_device(const Node& node) const {
    if (!node.op->cuda || !suits_device(plan_, node)) return false;
    return node.device.empty() || parse_device_name(node.device).kind.value_or("GPU") == "GPU";
  }

  std::optional<FusedRegion> make(const std::vector<NodeId>& nodes) {
    const std::unordered_set<NodeId> members(nodes.begin(), nodes.end());
    return make_region(
        plan_, steps_, nodes,
        [&](ValueRef value) {
          return is_needed(plan_, users_, steps_, value, [&](NodeId user) { return members.contains(user); });
        },
        limits_);
  }

  // ------------------------------------------------------------------------------------------ growing

  /// What a node that may be fused reads, behind views.
  std::vector<NodeId> sources_of(NodeId id) {
    std::vector<NodeId> sources;
    for (const fusion::NodeSteps::Input& input : steps_.of(id)->inputs)
      sources.push_back(
          steps_.source(plan_, graph_.node(id).inputs[static_cast<std::size_t>(input.input)]).node);
    return sources;
  }

  void join(NodeId id) {
    region_of_[index(id)] = static_cast<int>(regions_.size());
    regions_.push_back({id});
    copied_.emplace_back();
    for (const NodeId source : sources_of(id)) {
      const int from = region_of_[index(source)], to = region_of_[index(id)];
      if (from >= 0 && from != to) try_merge(from, to);
    }
  }

  /// Regions that read a large value: the gradients of a norm's input and of its gain, say. Neither makes
  /// what the other reads.
  void merge_readers() {
    std::map<ValueRef, std::vector<NodeId>> readers;
    for (const NodeId id : order_) {
      if (region_of_[index(id)] < 0) continue;
      for (const fusion::NodeSteps::Input& input : steps_.of(id)->inputs) {
        const ValueRef source =
            steps_.source(plan_, graph_.node(id).inputs[static_cast<std::size_t>(input.input)]);
        const OutputInfo& info = graph_.info(source);
        if (info.shape.is_static() &&
            info.shape.elements() * static_cast<std::int64_t>(dtype_size(info.dtype)) >= kLargeBytes)
          readers[source].push_back(id);
      }
    }
    for (const NodeId made : order_)
      for (int o = 0; o < static_cast<int>(graph_.node(made).outputs.size()); ++o)
        if (const auto at = readers.find({made, o}); at != readers.end()) merge_readers_of(at->second);
  }

  void merge_readers_of(const std::vector<NodeId>& readers) {
    for (std::size_t i = 0; i < readers.size(); ++i)
      for (std::size_t j = i + 1; j < readers.size(); ++j) {
        const int first = region_of_[index(readers[i])], other = region_of_[index(readers[j])];
        if (first == other || sums_of(first) + sums_of(other) > kMostSums || leads_back(other, first))
          continue;
        try_merge(first, other);
      }
  }

  int sums_of(int region) {
    const auto sums = [&](NodeId id) { return steps_.of(id)->sums_columns(); };
    return static_cast<int>(std::count_if(nodes_of(region).begin(), nodes_of(region).end(), sums));
  }

  /// Nodes whose inputs regions make, which are put together so that one of them writes all parts. What it
  /// does not make it copies.
  std::vector<Join> merge_joined() {
    std::vector<Join> joins;
    for (const NodeId id : order_) {
      auto join = join_of(plan_, steps_, graph_.node(id));
      const auto region = [&](ValueRef part) { return region_of_[index(part.node)]; };
      if (!join) continue;
      const auto made = std::find_if(join->parts.begin(), join->parts.end(),
                                     [&](ValueRef part) { return region(part) >= 0; });
      if (made == join->parts.end()) continue;
      for (const ValueRef part : join->parts) {
        const int first = region(*made), other = region(part);
        if (other < 0 || first == other || leads_back(other, first)) continue;
        try_merge(first, other);
      }
      if (choose_writer(*join)) joins.push_back(*join);
    }
    return joins;
  }

  /// The region that is to write a join: the last one that makes a part, and may wait for the others.
  bool choose_writer(Join& join) {
    std::vector<int> candidates;
    for (const ValueRef part : join.parts)
      if (const int region = region_of_[index(part.node)]; region >= 0) candidates.push_back(region);
    const auto end_of = [&](int region) { return position_[index(nodes_of(region).back())]; };
    std::stable_sort(candidates.begin(), candidates.end(),
                     [&](int a, int b) { return end_of(a) > end_of(b); });
    for (const int region : candidates) {
      std::vector<NodeId> others;
      for (const ValueRef part : join.parts)
        if (region_of_[index(part.node)] != region) others.push_back(part.node);
      const bool waits = std::any_of(others.begin(), others.end(), [&](NodeId id) {
        return position_[index(id)] > end_of(region) || depends_on(region, {id}, -1);
      });
      const Node& node = graph_.node(nodes_of(region)[0]);
      if (waits || !together(graph_.node(join.node), node) ||
          streams_[index(join.node)] != streams_[index(node.id)])
        continue;
      // What makes a part stays in its region, as the join reads it.
      for (const ValueRef part : join.parts)
        if (region_of_[index(part.node)] == region) join.writer = part.node;
      std::vector<NodeId>& copied = copied_[static_cast<std::size_t>(region)];
      copied.insert(copied.end(), others.begin(), others.end());
      return true;
    }
    return false;
  }

  void try_merge(int from, int to) {
    const Node &a = graph_.node(nodes_of(from)[0]), &b = graph_.node(nodes_of(to)[0]);
    if (!together(a, b) || streams_[index(a.id)] != streams_[index(b.id)] || leads_back(from, to)) return;
    std::vector<NodeId> both = nodes_of(from);
    both.insert(both.end(), nodes_of(to).begin(), nodes_of(to).end());
    std::sort(both.begin(), both.end(),
              [&](NodeId x, NodeId y) { return position_[index(x)] < position_[index(y)]; });
    if (!make(both)) return;
    for (const NodeId id : nodes_of(to)) region_of_[index(id)] = from;
    const int last = position_[index(both.back())];
    for (auto at = static_cast<std::size_t>(position_[index(both[0])]);
         at < horizon_.size() && horizon_[at] < last; ++at)
      horizon_[at] = last;
    regions_[static_cast<std::size_t>(from)] = std::move(both);
    std::vector<NodeId>& copied = copied_[static_cast<std::size_t>(from)];
    copied.insert(copied.end(), copied_[static_cast<std::size_t>(to)].begin(),
                  copied_[static_cast<std::size_t>(to)].end());
    regions_[static_cast<std::size_t>(to)].clear();
  }

  /// Whether what ends at `position` may depend, by whatever regions, on what begins at `first`: a region
  /// that has a node before it may have others behind it.
  bool may_depend_on(int position, int first) const {
    while (position < first) {
      const int horizon = horizon_[static_cast<std::size_t>(position)];
      if (horizon == position) return false;
      position = horizon;
    }
    return true;
  }

  /// Whether `to` depends on `from` by a way through other nodes. Regions do not depend on each other in a
  /// circle, so there is no way from `to` to `from`.
  bool leads_back(int from, int to) {
    std::vector<NodeId> sources;
    for (const NodeId source : read_by(to))
      if (region_of_[index(source)] != from) sources.push_back(source);
    return depends_on(from, sources, to);
  }

  /// What a region's nodes read, and what it copies.
  std::vector<NodeId> read_by(int region) {
    std::vector<NodeId> read = copied_[static_cast<std::size_t>(region)];
    for (const NodeId member : nodes_of(region))
      for (const NodeId source : sources_of(member)) read.push_back(source);
    return read;
  }

  /// Whether one of the nodes, or the region that has it, depends on the region `from` by a way that does not
  /// pass the region `to`.
  bool depends_on(int from, const std::vector<NodeId>& nodes, int to) {
    const int first = position_[index(nodes_of(from)[0])];
    std::vector<NodeId> open;
    std::unordered_set<NodeId> seen;
    const auto visit = [&](NodeId id) {
      const int region = region_of_[index(id)];
      if (region == to && to >= 0) return;
      const NodeId last = region < 0 ? id : nodes_of(region).back();
      if (may_depend_on(position_[index(last)], first) &&
          seen.insert(region < 0 ? id : nodes_of(region)[0]).second)
        open.push_back(id);
    };
    for (const NodeId id : nodes) visit(id);
    for (int steps = 0; !open.empty(); ++steps) {
      const NodeId id = open.back();
      const int region = region_of_[index(id)];
      open.pop_back();
      if (region == from || steps > kMostSteps) return true;
      if (region >= 0) {
        for (const NodeId source : read_by(region)) visit(source);
        continue;
      }
      for (const ValueRef input : graph_.node(id).inputs) visit(input.node);
      for (const NodeId control : graph_.node(id).control_inputs) visit(control);
    }
    return false;
  }

  /// A kernel for each node but one, and the bytes that are neither written nor read again.
  double saved_us(const FusedRegion& region) const {
    const CostModel& costs = cost_model(plan_.options.domain);
    double bytes = 0;
    for (const NodeId id : region.nodes) {
      const Node& node = graph_.node(id);
      for (int o = 0; o < static_cast<int>(node.outputs.size()); ++o) {
        const auto& info = node.outputs[static_cast<std::size_t>(o)];
        const bool stays = std::any_of(region.outputs.begin(), region.outputs.end(), [&](const auto& same) {
          return std::find(same.begin(), same.end(), ValueRef{id, o}) != same.end();
        });
        bytes += (stays ? 1.0 : 2.0) * static_cast<double>(info.shape.elements()) *
                 static_cast<double>(dtype_size(info.dtype));
      }
    }
    return static_cast<double>(region.nodes.size() - 1) * costs.kernel_us + bytes / costs.bytes_per_us;
  }

  const Plan& plan_;
  const Graph& graph_;
  Users users_;
  NodeStepsCache steps_;
  std::vector<int> streams_;
  std::vector<NodeId> order_;
  std::vector<int> position_, region_of_;  // by node
  std::vector<int> horizon_;  // by position: the last position of a region that has a node up to here
  std::vector<char> after_write_, writes_;
  std::vector<std::vector<NodeId>> regions_;  // each in topological order; empty: part of another
  std::vector<std::vector<NodeId>> copied_;   // by region: what it reads for joins that it writes
  RegionLimits limits_;
};

}  // namespace

std::vector<FusedRegion> find_fused_regions(const Plan& plan, bool cuts) {
  return RegionFinder(plan).find(cuts);
}

}  // namespace braid
