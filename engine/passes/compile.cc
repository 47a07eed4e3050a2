#include "engine/passes/compile.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/passes/batch_siblings.h"
#include "engine/passes/check_values.h"
#include "engine/passes/plan.h"
#include "engine/passes/segments.h"
#include "engine/passes/verify.h"

namespace braid {
namespace {

constexpr std::array<std::pair<StreamPolicy, std::string_view>, 6> kPolicies = {{
    {StreamPolicy::None, "NONE"},
    {StreamPolicy::User, "USER"},
    {StreamPolicy::Embedding, "EMBEDDING"},
    {StreamPolicy::Full, "FULL"},
    {StreamPolicy::Cost, "COST"},
    {StreamPolicy::Auto, "AUTO"},
}};

}  // namespace

std::optional<StreamPolicy> stream_policy_from_name(std::string_view name) {
  for (const auto& [policy, text] : kPolicies)
    if (text == name) return policy;
  return std::nullopt;
}

std::string_view stream_policy_name(StreamPolicy policy) {
  for (const auto& [known, text] : kPolicies)
    if (known == policy) return text;
  return "?";
}

std::shared_ptr<const Program> compile(const Graph& graph, const CompileRequest& request,
                                       const CompileOptions& options) {
  if (options.steps_in_flight < 1)
    throw InvalidArgument("at least one step must be in flight, got " +
                          std::to_string(options.steps_in_flight));
  Plan plan(request, options);
  plan.program.graph = graph;
  plan.program.steps_in_flight = options.steps_in_flight;
  plan.program.deterministic = options.deterministic;
  plan.program.domain = options.domain;

  resolve_request(plan);
  prune(plan, false);
  infer_shapes(plan);
  simplify(plan);
  merge_duplicates(plan);
  prune(plan, true);
  if (options.check_numerics) check_values(plan);
  fuse_pair_dots(plan);
  fuse_outer_products(plan);
  batch_siblings(plan);
  align_products(plan);
  fuse(plan);
  join_outputs(plan);
  fuse_heads(plan);
  fuse_input_gradients(plan);
  fuse_updates(plan);
  column_gradients(plan);
  place(plan);
  group_gathers(plan);
  group_updates(plan);
  split_updates(plan);
  lower(plan);
  order_variables(plan);
  model_costs(plan);
  assign_streams(plan);
  set_issue_order(plan);
  place_events_and_memory(plan);
  order_steps(plan);
  write_instructions(plan);
  cut_segments(plan.program);

  if (options.verify) verify(plan.program);
  for (const std::string& note : plan.program.notes) log_debug("{}", note);
  return std::make_shared<const Program>(std::move(plan.program));
}

}  // namespace braid
