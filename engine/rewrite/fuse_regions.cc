// Puts a braid.Fused in the place of each region of elementwise nodes and reductions of rows
// (region_finder.h).
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/device/generated_kernels.h"
#include "engine/fusion/cuda_source.h"
#include "engine/graph/passes.h"
#include "engine/ir/op.h"
#include "engine/rewrite/narrow_splits.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/region_finder.h"
#include "engine/rewrite/rewrite.h"

namespace braid {
namespace {

/// What values that are gone have become, as regions name those of regions before them.
using Renamed = std::map<ValueRef, ValueRef>;

void replace_region(Plan& plan, const FusedRegion& region, Renamed& renamed) {
  Graph& graph = plan.program.graph;
  Node fused = graph.node(region.nodes.back());
  fused.id = kNoNode;
  fused.op = &OpRegistry::global().require("braid.Fused");
  fused.name = graph.unique_name(fused.name + "/fused");
  fused.attrs = {{"program", region.program.to_text()}};
  fused.inputs = region.inputs;
  for (ValueRef& input : fused.inputs)
    if (const auto at = renamed.find(input); at != renamed.end()) input = at->second;
  fused.outputs.clear();
  fused.known_values.clear();
  const NodeId made = graph.add(std::move(fused));
  for (std::size_t o = 0; o < region.outputs.size(); ++o) {
    const ValueRef output{made, static_cast<int>(o)};
    for (const ValueRef value : region.outputs[o]) {
      replace_value(plan, value, output);
      renamed[value] = output;
    }
  }
  for (const std::vector<NodeId>& ids : {region.nodes, region.joins})
    for (const NodeId id : ids) {
      take_place(plan, id, made);
      graph.remove(id);
    }
}

/// Whether the device has a kernel for each of them.
std::vector<bool> are_generated(const std::vector<FusedRegion>& regions, std::string& why) {
  std::vector<fusion::CudaSource> sources;
  for (const FusedRegion& region : regions) sources.push_back(fusion::cuda_source(region.program));
  std::vector<bool> made(regions.size());
  for (const bool of_halves : {false, true}) {
    std::vector<std::string> texts;
    std::vector<std::size_t> places;
    for (std::size_t r = 0; r < sources.size(); ++r) {
      if (sources[r].is_of_halves != of_halves) continue;
      texts.push_back(sources[r].text);
      places.push_back(r);
    }
    if (texts.empty()) continue;
    const auto codes = generated_kernels(texts, sources[places[0]].options(), why);
    for (std::size_t i = 0; i < places.size(); ++i) made[places[i]] = codes[i] != nullptr;
  }
  return made;
}

/// Those for which a device has kernels. Where it lacks some, their nodes stay nodes with kernels of their
/// own, and no region repeats what another has.
std::vector<FusedRegion> regions_with_kernels(Plan& plan) {
  std::vector<FusedRegion> regions = find_fused_regions(plan, true);
  if (plan.options.domain == Domain::Host || regions.empty()) return regions;
  std::string why;
  const std::vector<bool> all = are_generated(regions, why);
  if (std::find(all.begin(), all.end(), false) == all.end()) return regions;
  regions = find_fused_regions(plan, false);
  const std::vector<bool> made = are_generated(regions, why);
  std::vector<FusedRegion> kept;
  for (std::size_t r = 0; r < regions.size(); ++r)
    if (made[r]) kept.push_back(std::move(regions[r]));
  plan.note(
      fmt::format("{} of {} regions stay single nodes: {}", made.size() - kept.size(), made.size(), why));
  return kept;
}

}  // namespace

void fuse_regions(Plan& plan) {
  if (!plan.options.fusion) return;
  const std::vector<FusedRegion> regions = regions_with_kernels(plan);
  if (regions.empty()) return;
  Renamed renamed;
  std::size_t nodes = 0;
  double saved_us = 0;
  for (const FusedRegion& region : regions) {
    replace_region(plan, region, renamed);
    nodes += region.nodes.size();
    saved_us += region.saved_us;
  }
  prune(plan, true);
  plan.note(fmt::format("{} nodes became {} regions, which saves {:.0f} us by the cost model", nodes,
                        regions.size(), saved_us));
  narrow_splits(plan);
}

}  // namespace braid
