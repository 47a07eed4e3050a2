#include "engine/staging/subgraph_runner.h"

#include <algorithm>

#include "engine/ops/state/variable_init.h"
#include "engine/program/program.h"
#include "engine/staging/graph_stage.h"
#include "engine/staging/stage_pools.h"

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

SubgraphSettings stage_settings(const StageOptions& stage, const StageSession& session, Runtime& step) {
  SubgraphSettings settings;
  if (stage.use_stage_subgraph_thread_pool)
    settings.intra_op_threads =
        session.pools->at(stage.stage_subgraph_thread_pool_id).options().intra_op_threads_num;
  const auto stream = static_cast<std::size_t>(stage.stage_subgraph_stream_id);
  if (stream == 0 || !step.device()) return settings;
  settings.device_streams = stage.name;
  settings.priority = stream < session.priorities.size() ? session.priorities[stream] : 0;
  return settings;
}

SubgraphRunner::SubgraphRunner(const Graph& graph, const std::vector<std::string>& fetches,
                               SubgraphSettings settings, Runtime& step)
    : graph_(graph),
      settings_(std::move(settings)),
      step_(step),
      device_blocks_(on_device() ? BlockPool::make([device = step.device()](std::size_t bytes) {
        return device->allocate(bytes, "staged batch");
      })
                                 : nullptr) {
  for (const std::string& name : fetches) fetches_.push_back(graph.parse_value(name));
}

SubgraphRunner::Lane& SubgraphRunner::lane(int thread) {
  std::lock_guard lock(mu_);
  auto& lane = lanes_[thread];
  if (!lane) {
    lane = std::make_unique<Lane>();
    if (!on_device())
      lane->own = std::make_unique<Runtime>(RuntimeOptions{.intra_op_threads = settings_.intra_op_threads});
  }
  return *lane;
}

std::shared_ptr<Instance> SubgraphRunner::instance(const Lane& lane, ProgramCache& cache,
                                                   const std::vector<FeedSpec>& feeds) {
  if (settings_.variables.empty()) return cache.instance(feeds);
  std::lock_guard lock(mu_);  // threads on the device share variables
  VariableStore& store = runtime(lane).variables();
  std::vector<std::string> missing = settings_.variables;
  std::erase_if(missing, [&](const std::string& name) { return store.contains(name); });
  auto made = cache.instance(feeds);
  if (missing.empty()) return made;
  for (const VariableInfo& variable : list_variables(graph_)) {
    const bool is_new = std::find(missing.begin(), missing.end(), variable.name) != missing.end();
    if (!is_new || !store.contains(variable.name)) continue;
    auto value = lane.own ? step_.variables().read(variable.name) : std::nullopt;
    if (!value) {
      value = Tensor::zeros(variable.dtype, variable.shape);
      initialize_variable(graph_.node(variable.handle), settings_.seed, *value);
    }
    store.write(variable.name, *value);
  }
  return made;
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

SubgraphRunner::Programs SubgraphRunner::make_programs(int thread, const Lane& lane,
                                                       const std::vector<ValueRef>& wanted,
                                                       const TextNodes::Known& known) const {
  Programs programs;
  std::vector<ValueRef> given;
  std::vector<std::string> names;
  for (const auto& [value, tensor] : known) given.push_back(value);
  for (const ValueRef value : wanted) names.push_back(graph_.value_name(value));
  programs.feeds = part_above(graph_, wanted, {}, given).taken;
  add_siblings(graph_, programs.feeds);
  std::erase_if(programs.feeds, [&](ValueRef value) { return !known.contains(value); });
  CompileOptions options = one_stream();
  InstanceOptions streams;
  if (on_device()) {
    options.domain = Domain::Device;
    streams.stream_prefix = settings_.device_streams + "." + std::to_string(thread) + "/";
    streams.priorities = {settings_.priority};
  }
  programs.cache =
      std::make_unique<ProgramCache>(graph_, std::move(names), std::vector<std::string>{}, options,
                                     runtime(lane), ProgramCache::kDefaultCapacity, streams);
  return programs;
}

void SubgraphRunner::compute(int thread, std::uint64_t step, const std::vector<ValueRef>& wanted, bool stay,
                             TextNodes::Known& known, const WaitContext& wait) {
  Lane& mine = lane(thread);
  Programs& programs = mine.programs[wanted];
  if (!programs.cache) programs = make_programs(thread, mine, wanted, known);
  std::vector<FeedSpec> specs;
  StepRequest request;
  request.params.step = step;
  request.params.seed = settings_.seed;
  for (const ValueRef feed : programs.feeds) {
    const Tensor& value = known.at(feed);
    specs.push_back({graph_.value_name(feed), value.dtype(), value.shape()});
    request.feeds.push_back(value);
  }
  const auto program = instance(mine, *programs.cache, specs);
  if (stay && device_blocks_) request.results = device_blocks_->take(program->result_bytes());
  StepResult made = program->run(std::move(request), wait);
  for (std::size_t i = 0; i < wanted.size(); ++i) known.emplace(wanted[i], std::move(made.fetches[i]));
}

std::vector<Tensor> SubgraphRunner::run(int thread, std::uint64_t step, const Values& feeds,
                                        const WaitContext& wait) {
  TextNodes::Known known;
  for (const auto& [name, value] : feeds) known.emplace(graph_.parse_value(name), value);
  const TextNodes& text_nodes = text(known);
  if (!on_device() || !text_nodes.empty())
    for (auto& [value, tensor] : known) tensor = on_host(tensor, step_.device());
  if (!text_nodes.empty())
    for (;;) {
      std::vector<ValueRef> missing = text_nodes.advance(known);
      if (missing.empty()) break;
      add_siblings(graph_, missing);
      compute(thread, step, missing, false, known, wait);
    }
  std::vector<ValueRef> wanted;
  for (const ValueRef value : fetches_)
    if (!known.contains(value) && std::find(wanted.begin(), wanted.end(), value) == wanted.end())
      wanted.push_back(value);
  if (!wanted.empty()) compute(thread, step, wanted, true, known, wait);
  std::vector<Tensor> results;
  for (const ValueRef value : fetches_) results.push_back(known.at(value));
  return results;
}

}  // namespace braid
