#include "engine/schedule/stream_policy.h"

#include <fmt/format.h>

#include "engine/program/cost_model.h"

namespace braid {
namespace {

std::vector<int> rest_on_first(std::vector<int> streams) {
  for (int& stream : streams)
    if (stream == kNoStream) stream = 0;
  return streams;
}

struct Candidate {
  StreamPolicy policy;
  std::vector<int> streams;
  double step_us;
};

Candidate predicted(StreamPolicy policy, std::vector<int> streams, const StreamProblem& problem) {
  const std::vector<int> order = list_order(problem.dag, streams, problem.all_streams);
  const double us = predict(problem.dag, order, streams, problem.all_streams).end;
  return {policy, std::move(streams), us};
}

void note(Plan& plan, std::string text) { plan.note(Severity::Info, "streams", std::move(text)); }

std::string unused_ids(const StreamPins& pins) {
  return fmt::format("stream ids on {} node{} are not used: the policy is NONE", pins.hand_set,
                     pins.hand_set == 1 ? "" : "s");
}

std::vector<int> choose(Plan& plan, const StreamPins& pins, const std::vector<int>& lanes,
                        const StreamProblem& problem) {
  std::vector<Candidate> candidates;
  const StreamPolicy base = pins.hand_set > 0 ? StreamPolicy::User : StreamPolicy::None;
  candidates.push_back(predicted(base, rest_on_first(problem.fixed), problem));
  candidates.push_back(predicted(StreamPolicy::Cost, schedule_by_cost(problem), problem));
  if (problem.dag.size() <= kMostFullOps / 2)
    candidates.push_back(predicted(StreamPolicy::Full, cover_by_chains(problem), problem));
  if (base == StreamPolicy::User)  // ids that only cost time
    candidates.push_back(predicted(StreamPolicy::None, rest_on_first(lanes), problem));
  std::size_t best = 0;
  std::string times;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const double share = best == 0 ? 1 - problem.dag.model().worthwhile_gain : 1;
    if (candidates[i].step_us < candidates[best].step_us * share) best = i;
    times += fmt::format("{}{} {:.1f} us", i ? ", " : "", stream_policy_name(candidates[i].policy),
                         candidates[i].step_us);
  }
  plan.program.policy = candidates[best].policy;
  note(plan, fmt::format("AUTO took {}; predicted: {}", stream_policy_name(candidates[best].policy), times));
  if (base == StreamPolicy::User && candidates[best].policy == StreamPolicy::None)
    note(plan, unused_ids(pins) + "; USER uses them");
  return candidates[best].streams;
}

}  // namespace

std::vector<int> apply_policy(Plan& plan, const StreamPins& pins, const std::vector<int>& lanes) {
  std::vector<int> fixed = lanes;
  for (std::size_t op = 0; op < fixed.size(); ++op)
    if (fixed[op] == kNoStream) fixed[op] = pins.stream[op];
  const Dag dag(plan);
  const StreamProblem problem{dag, fixed, pins.leader, plan.program.compute_streams,
                              static_cast<int>(plan.program.streams.size())};
  StreamPolicy policy = plan.options.streams.policy;
  if (!plan.options.streams.why.empty()) note(plan, plan.options.streams.why);
  for (const std::string& warning : plan.options.streams.warnings)
    plan.note(Severity::Warning, "streams", warning);
  if (policy == StreamPolicy::None && pins.hand_set > 0) note(plan, unused_ids(pins));
  if (policy == StreamPolicy::User && pins.hand_set == 0)
    note(plan, "USER, but no node has an id: all are on stream 0");
  if (policy == StreamPolicy::Full && dag.size() > kMostFullOps) {
    note(plan, fmt::format("FULL takes at most {} ops, the program has {}: COST instead", kMostFullOps,
                           dag.size()));
    policy = StreamPolicy::Cost;
  }
  if (policy == StreamPolicy::Auto && problem.compute_streams == 1) policy = StreamPolicy::None;
  plan.program.policy = policy;
  switch (policy) {
    case StreamPolicy::None:
    case StreamPolicy::User:
      return rest_on_first(problem.fixed);
    case StreamPolicy::Embedding:
      return spread_embeddings(plan, problem);
    case StreamPolicy::Full:
      return cover_by_chains(problem);
    case StreamPolicy::Cost:
      return schedule_by_cost(problem);
    case StreamPolicy::Auto:
      break;
  }
  return choose(plan, pins, lanes, problem);
}

}  // namespace braid
