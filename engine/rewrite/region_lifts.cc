#include "engine/rewrite/region_lifts.h"

#include <algorithm>
#include <string_view>

#include "engine/rewrite/region_turns.h"

namespace braid {
namespace {

using fusion::Axes;
using fusion::NodeSteps;
using fusion::Region;

/// Beyond these a launch is little beside what the region reads, and more loads a place are felt.
constexpr std::int64_t kMostRepeats = 1 << 22;
/// At least so many places for each element of a node, or it is hardly repeated.
constexpr std::int64_t kFewestRepeats = 8;
/// Additions at all places that a device does in the time of half a launch.
constexpr std::int64_t kMostWork = 1 << 24;
constexpr std::int64_t kFunctionWork = 16;  // of a function or a quotient, in additions

std::int64_t work_of(const NodeSteps& steps) {
  static const std::set<std::string_view> kCheap{"AddV2",  "Sub",     "Mul",     "Neg",
                                                 "Square", "Maximum", "Minimum", "AddN"};
  std::int64_t work = 0;
  for (const Region::Step& step : steps.steps)
    work += step.kind == Region::Kind::Constant                           ? 0
            : step.kind == Region::Kind::Cast || kCheap.contains(step.op) ? 1
                                                                          : kFunctionWork;
  return work;
}

}  // namespace

std::optional<Axes> composed(const Axes& outer, const Axes& inner) {
  TurnOf turn;
  for (const auto& [size, stride] : inner) {
    turn.sizes.push_back(size);
    turn.strides.push_back(stride);
  }
  if (inner.empty()) {  // a single element
    turn.sizes.push_back(1);
    turn.strides.push_back(0);
  }
  const auto through = axes_through(turn, {outer, 0});
  return through ? std::optional(through->axes) : std::nullopt;
}

bool may_be_lifted(const NodeSteps& steps, std::int64_t places) {
  const auto by_itself = [](const Region::Step& step) {
    return step.kind == Region::Kind::Apply || step.kind == Region::Kind::Cast ||
           step.kind == Region::Kind::Constant;
  };
  return places <= kMostRepeats && steps.columns == 0 && steps.elements * kFewestRepeats <= places &&
         std::all_of(steps.steps.begin(), steps.steps.end(), by_itself);
}

std::optional<Lifts> find_lifts(const Plan& plan, NodeStepsCache& steps, const std::vector<NodeId>& nodes,
                                const std::set<NodeId>& small, std::int64_t places) {
  Lifts lifts;
  std::int64_t work = 0;
  for (auto reader = nodes.rbegin(); reader != nodes.rend(); ++reader) {
    const NodeSteps& own = *steps.of(*reader);
    const bool is_small = small.contains(*reader);
    const auto lift = lifts.find(*reader);
    if (is_small) {
      if (lift == lifts.end()) return std::nullopt;
      work += work_of(own);
    }
    for (const NodeSteps::Input& input : own.inputs) {
      const ValueRef source =
          steps.source(plan, plan.program.graph.node(*reader).inputs[static_cast<std::size_t>(input.input)]);
      if (!small.contains(source.node)) continue;
      const auto axes = is_small ? composed(lift->second, input.axes) : std::optional(input.axes);
      if (!axes || (!is_small && own.elements != places)) return std::nullopt;
      const auto [at, is_new] = lifts.try_emplace(source.node, *axes);
      if (!is_new && at->second != *axes) return std::nullopt;
    }
  }
  return work * places <= kMostWork ? std::optional(std::move(lifts)) : std::nullopt;
}

}  // namespace braid
