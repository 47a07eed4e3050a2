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
  Scopes scopes;
  std::vector<int> streams;
  double step_us;
  std::string name() const {
    return std::string(stream_policy_name(policy)) + (scopes == Scopes::KeptApart ? " without ids" : "");
  }
};

Candidate predicted(StreamPolicy policy, Scopes scopes, std::vector<int> streams,
                    const StreamProblem& problem) {
  const std::vector<int> order = list_order(problem.dag, streams, problem.all_streams);
  const double us = predict(problem.dag, order, streams, problem.all_streams).end;
  return {policy, scopes, std::move(streams), us};
}

std::vector<int> with_lanes(const std::vector<int>& pins, std::vector<int> lanes) {
  for (std::size_t op = 0; op < lanes.size(); ++op)
    if (lanes[op] == kNoStream) lanes[op] = pins[op];
  return lanes;
}

void note(Plan& plan, std::string text) { plan.note(Severity::Info, std::move(text)); }

std::string unused_ids(const StreamPins& pins, int streams) {
  return fmt::format("stream ids on {} node{} ignored: {}", pins.hand_set, pins.hand_set == 1 ? "" : "s",
                     streams == 1 ? "there is one stream (set streams.count)" : "the policy is NONE");
}

std::vector<int> choose(Plan& plan, const StreamPins& pins, const std::vector<int>& lanes,
                        const StreamProblem& problem) {
  std::vector<Candidate> candidates;
  const Scopes scopes = plan.options.streams.scopes;
  const StreamPolicy base = pins.hand_set > 0 ? StreamPolicy::User : StreamPolicy::None;
  candidates.push_back(predicted(base, scopes, rest_on_first(problem.fixed), problem));
  const auto schedule = [&](Scopes its, const StreamProblem& problem_of_it) {
    candidates.push_back(predicted(StreamPolicy::Cost, its, schedule_by_cost(problem_of_it), problem));
    if (problem.dag.size() <= kMostFullOps / 2)
      candidates.push_back(predicted(StreamPolicy::Full, its, cover_by_chains(problem_of_it), problem));
  };
  schedule(scopes, problem);
  if (pins.scoped > 0) {
    const StreamPins free = find_pins_without_scopes(plan, lanes);
    const std::vector<int> fixed = with_lanes(free.stream, lanes);
    schedule(Scopes::KeptApart,
             {problem.dag, fixed, free.leader, problem.compute_streams, problem.all_streams});
  }
  if (base == StreamPolicy::User)  // ids that only cost time
    candidates.push_back(predicted(StreamPolicy::None, scopes, rest_on_first(lanes), problem));
  std::size_t best = 0;
  std::string times;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const bool drops_ids = candidates[i].scopes != candidates[best].scopes;
    const double share = best == 0 || drops_ids ? 1 - problem.dag.model().worthwhile_gain : 1;
    if (candidates[i].step_us < candidates[best].step_us * share) best = i;
    times += fmt::format("{}{} {:.1f} us", i ? ", " : "", candidates[i].name(), candidates[i].step_us);
  }
  plan.program.policy = candidates[best].policy;
  plan.program.scopes = candidates[best].scopes;
  note(plan, fmt::format("AUTO took {}; predicted: {}", candidates[best].name(), times));
  if (base == StreamPolicy::User && candidates[best].policy == StreamPolicy::None)
    note(plan, unused_ids(pins, problem.compute_streams) + "; USER uses them");
  return candidates[best].streams;
}

}  // namespace

std::vector<int> apply_policy(Plan& plan, const StreamPins& pins, const std::vector<int>& lanes) {
  const std::vector<int> fixed = with_lanes(pins.stream, lanes);
  const Dag dag(plan);
  const StreamProblem problem{dag, fixed, pins.leader, plan.program.compute_streams,
                              static_cast<int>(plan.program.streams.size())};
  StreamPolicy policy = plan.options.streams.policy;
  if (!plan.options.streams.why.empty()) note(plan, plan.options.streams.why);
  for (const std::string& warning : plan.options.streams.warnings) plan.note(Severity::Warning, warning);
  if (policy == StreamPolicy::None && pins.hand_set > 0)
    note(plan, unused_ids(pins, problem.compute_streams));
  if (policy == StreamPolicy::User && pins.hand_set == 0)
    note(plan, "USER, but no node has an id: all are on stream 0");
  if (policy == StreamPolicy::Full && dag.size() > kMostFullOps) {
    note(plan, fmt::format("FULL takes at most {} ops, the program has {}: COST instead", kMostFullOps,
                           dag.size()));
    policy = StreamPolicy::Cost;
  }
  if (policy == StreamPolicy::Auto && problem.compute_streams == 1) policy = StreamPolicy::None;
  plan.program.policy = policy;
  plan.program.scopes = plan.options.streams.scopes;
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
