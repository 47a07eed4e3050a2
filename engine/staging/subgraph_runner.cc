#include "engine/staging/subgraph_runner.h"

#include <algorithm>

#include "engine/exec/program.h"
#include "engine/ops/variable_init.h"

namespace braid {
namespace {

CompileOptions one_stream() {
  CompileOptions options;
  options.streams.policy = StreamPolicy::None;
  options.steps_in_flight = 1;
  return options;
}

const Tensor* find(const SubgraphRunner::Values& values, const std::string& name) {
  const auto at = std::find_if(values.begin(), values.end(), [&](const auto& v) { return v.first == name; });
  return at == values.end() ? nullptr : &at->second;
}

}  // namespace

std::vector<FeedSpec> part_signature(const Graph& graph, const std::vector<std::string>& values,
                                     const std::vector<FeedSpec>& feeds) {
  const auto program = compile(graph, {feeds, values, {}}, one_stream());
  std::vector<FeedSpec> signature;
  for (const ProgramFetch& fetch : program->fetches)
    signature.push_back({fetch.name, fetch.dtype, fetch.shape});
  return signature;
}

SubgraphRunner::SubgraphRunner(const Graph& graph, std::vector<std::string> fetches,
                               SubgraphSettings settings, const VariableStore& store)
    : graph_(graph), fetches_(std::move(fetches)), settings_(std::move(settings)), store_(store) {}

void SubgraphRunner::load_variables(Runtime& runtime) const {
  for (const VariableInfo& variable : list_variables(graph_)) {
    if (std::find(settings_.variables.begin(), settings_.variables.end(), variable.name) ==
        settings_.variables.end())
      continue;
    Tensor& memory = runtime.variables().get_or_create(variable.name, variable.dtype, variable.shape);
    if (const auto value = store_.read(variable.name))
      runtime.variables().write(variable.name, *value);
    else
      initialize_variable(graph_.node(variable.handle), settings_.seed, memory);
  }
}

SubgraphRunner::Lane& SubgraphRunner::lane(int thread) {
  std::lock_guard lock(mu_);
  auto& lane = lanes_[thread];
  if (!lane) {
    lane = std::make_unique<Lane>(settings_.intra_op_threads);
    load_variables(lane->runtime);
  }
  return *lane;
}

std::vector<Tensor> SubgraphRunner::run(int thread, std::uint64_t step, const Values& feeds,
                                        const WaitContext& wait) {
  std::vector<Tensor> results(fetches_.size());
  std::vector<std::string> computed;
  for (std::size_t i = 0; i < fetches_.size(); ++i) {
    if (const Tensor* given = find(feeds, fetches_[i]))
      results[i] = *given;
    else
      computed.push_back(fetches_[i]);
  }
  if (computed.empty()) return results;

  Lane& mine = lane(thread);
  auto& programs = mine.programs[computed];
  if (!programs)
    programs = std::make_unique<ProgramCache>(graph_, computed, std::vector<std::string>{}, one_stream(),
                                              mine.runtime);
  std::vector<FeedSpec> specs;
  StepRequest request;
  request.params.step = step;
  request.params.seed = settings_.seed;
  for (const auto& [name, value] : feeds) {
    specs.push_back({name, value.dtype(), value.shape()});
    request.feeds.push_back(value);
  }
  StepResult made = programs->instance(specs)->run(std::move(request), wait);
  std::size_t next = 0;
  for (Tensor& result : results)
    if (!result.defined()) result = std::move(made.fetches[next++]);
  return results;
}

}  // namespace braid
