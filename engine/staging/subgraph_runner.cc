#include "engine/staging/subgraph_runner.h"

#include <algorithm>

#include "engine/exec/program.h"
#include "engine/ops/variable_init.h"
#include "engine/staging/graph_stage.h"

namespace braid {
namespace {

CompileOptions one_stream() {
  CompileOptions options;
  options.streams.policy = StreamPolicy::None;
  options.steps_in_flight = 1;
  return options;
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

SubgraphRunner::SubgraphRunner(const Graph& graph, const std::vector<std::string>& fetches,
                               SubgraphSettings settings, const VariableStore& store)
    : graph_(graph), settings_(std::move(settings)), store_(store) {
  for (const std::string& name : fetches) fetches_.push_back(graph.parse_value(name));
}

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

const TextNodes& SubgraphRunner::text(const TextNodes::Known& given) {
  std::lock_guard lock(mu_);
  if (!text_) {
    std::vector<ValueRef> values;
    for (const auto& [value, tensor] : given) values.push_back(value);
    text_ = std::make_unique<const TextNodes>(graph_, fetches_, values);
  }
  return *text_;
}

void SubgraphRunner::compute(int thread, std::uint64_t step, const std::vector<ValueRef>& wanted,
                             TextNodes::Known& known, const WaitContext& wait) {
  Lane& mine = lane(thread);
  Programs& programs = mine.programs[wanted];
  if (!programs.cache) {
    std::vector<ValueRef> given;
    std::vector<std::string> names;
    for (const auto& [value, tensor] : known) given.push_back(value);
    for (const ValueRef value : wanted) names.push_back(graph_.value_name(value));
    programs.feeds = part_above(graph_, wanted, {}, given).taken;
    add_siblings(graph_, programs.feeds);
    std::erase_if(programs.feeds, [&](ValueRef value) { return !known.contains(value); });
    programs.cache = std::make_unique<ProgramCache>(graph_, std::move(names), std::vector<std::string>{},
                                                    one_stream(), mine.runtime);
  }
  std::vector<FeedSpec> specs;
  StepRequest request;
  request.params.step = step;
  request.params.seed = settings_.seed;
  for (const ValueRef feed : programs.feeds) {
    const Tensor& value = known.at(feed);
    specs.push_back({graph_.value_name(feed), value.dtype(), value.shape()});
    request.feeds.push_back(value);
  }
  StepResult made = programs.cache->instance(specs)->run(std::move(request), wait);
  for (std::size_t i = 0; i < wanted.size(); ++i) known.emplace(wanted[i], std::move(made.fetches[i]));
}

std::vector<Tensor> SubgraphRunner::run(int thread, std::uint64_t step, const Values& feeds,
                                        const WaitContext& wait) {
  TextNodes::Known known;
  for (const auto& [name, value] : feeds) known.emplace(graph_.parse_value(name), value);
  const TextNodes& text_nodes = text(known);
  if (!text_nodes.empty())
    for (;;) {
      std::vector<ValueRef> missing = text_nodes.advance(known);
      if (missing.empty()) break;
      add_siblings(graph_, missing);
      compute(thread, step, missing, known, wait);
    }
  std::vector<ValueRef> wanted;
  for (const ValueRef value : fetches_)
    if (!known.contains(value) && std::find(wanted.begin(), wanted.end(), value) == wanted.end())
      wanted.push_back(value);
  if (!wanted.empty()) compute(thread, step, wanted, known, wait);
  std::vector<Tensor> results;
  for (const ValueRef value : fetches_) results.push_back(known.at(value));
  return results;
}

}  // namespace braid
