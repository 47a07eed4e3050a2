#include "worker/session/graph_session.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

#include "base/cpu.h"
#include "base/error.h"
#include "engine/exec/runtime.h"
#include "engine/ir/op.h"
#include "engine/ops/state/variable_init.h"
#include "engine/staging/stage_marks.h"
#include "worker/step/unset_variables.h"

namespace braid::worker {
namespace {

constexpr std::chrono::milliseconds kPollTime{100};

RuntimeOptions runtime_options(const GraphSessionOptions& options) {
  RuntimeOptions result;
  result.intra_op_threads =
      options.intra_op_threads > 0 ? options.intra_op_threads : std::max(1, usable_cores());
  return result;
}

/// What one kind of run needs beside what it is fed with.
struct Prepared {
  std::vector<int> stages;           // that it takes a batch from
  std::vector<std::size_t> sources;  // that it reads a record of
  std::unique_ptr<StagedSession> step;
  bool checked = false;  // all variables that it reads have values
};

using Key = std::tuple<std::vector<std::string>, std::vector<std::string>, std::vector<std::string>>;

}  // namespace

struct GraphSession::Impl {
  explicit Impl(GraphSessionOptions o) : options(std::move(o)), runtime(runtime_options(options)) {
    options.compile.steps_in_flight = 1;
    if (options.peers) options.peers->provide(runtime.services());
  }

  Prepared& prepare(const Graph& graph, const GraphRun& asked);
  void give_values(const Graph& graph, const GraphRun& asked);
  void create(const Graph& graph, const VariableInfo& variable);
  std::vector<RecordSource> sources_of(const Graph& graph, const std::vector<ValueRef>& outputs) const;
  void start(const Graph& graph);
  Batch take(std::size_t stage, const GraphRun& asked);
  std::vector<ValueRef> given(const Graph& graph, const GraphRun& asked) const;

  // Set once.
  GraphSessionOptions options;
  Runtime runtime;

  std::mutex mu;
  // Guarded by mu.
  std::vector<RecordSource> sources;
  std::map<Key, Prepared> runs;
  std::set<std::string> set;  // variables with values
  std::uint64_t runs_done = 0;
  std::map<std::size_t, Batch> taken;  // of stages, by a run that did not come to its step
  std::unique_ptr<StagedSession> stages;
  bool started = false;

  std::atomic<StagedSession*> begun = nullptr;  // `stages`, for who does not hold mu
};

std::vector<ValueRef> GraphSession::Impl::given(const Graph& graph, const GraphRun& asked) const {
  std::vector<ValueRef> values;
  for (const auto& [name, tensor] : asked.feeds) values.push_back(graph.parse_value(name));
  if (stages)
    for (const GraphStage& stage : stages->cut().stages)
      values.insert(values.end(), stage.outputs.begin(), stage.outputs.end());
  for (const RecordSource& source : sources)
    for (const std::string& name : source.placeholders)
      if (graph.find(name) != kNoNode) values.push_back(graph.parse_value(name));
  return values;
}

std::vector<RecordSource> GraphSession::Impl::sources_of(const Graph& graph,
                                                         const std::vector<ValueRef>& outputs) const {
  std::set<std::string> needed;
  for (const ValueRef value : part_above(graph, outputs, {}, {}).placeholders)
    needed.insert(graph.value_name(value));
  std::vector<RecordSource> result;
  for (const RecordSource& source : sources)
    if (std::any_of(source.placeholders.begin(), source.placeholders.end(),
                    [&](const std::string& name) { return needed.contains(name); }))
      result.push_back(source);
  return result;
}

/// The stages are cut once, where a run first needs the graph's.
void GraphSession::Impl::start(const Graph& graph) {
  if (!stages) {
    std::vector<GraphStage> marked = stages_of(graph);
    if (marked.empty()) return;
    std::vector<std::string> outputs;
    std::vector<ValueRef> values;
    for (const GraphStage& stage : marked)
      for (const ValueRef value : stage.outputs) {
        outputs.push_back(graph.value_name(value));
        values.push_back(value);
      }
    StagedSessionOptions staged{options.compile, options.stages, options.seed, {}};
    stages = std::make_unique<StagedSession>(graph, std::move(marked), outputs, std::vector<std::string>{},
                                             sources_of(graph, values), std::move(staged), runtime);
    begun = stages.get();
  }
  if (!started) stages->start(0);
  started = true;
}

Prepared& GraphSession::Impl::prepare(const Graph& graph, const GraphRun& asked) {
  std::vector<std::string> fed;
  for (const auto& [name, tensor] : asked.feeds) fed.push_back(name);
  Key key{asked.fetches, asked.targets, fed};
  if (const auto at = runs.find(key); at != runs.end()) return at->second;
  std::vector<ValueRef> roots;
  std::vector<NodeId> nodes;
  for (const std::string& name : asked.fetches) roots.push_back(graph.parse_value(name));
  for (const std::string& name : asked.targets) nodes.push_back(node_named(graph, name));
  if (!stages && !stages_of(graph).empty()) start(graph);
  const GraphPart part = part_above(graph, roots, nodes, given(graph, asked));
  const std::set<ValueRef> taken_values(part.taken.begin(), part.taken.end());
  Prepared prepared;
  if (stages)
    for (std::size_t s = 0; s < stages->cut().stages.size(); ++s) {
      const auto& outputs = stages->cut().stages[s].outputs;
      if (std::any_of(outputs.begin(), outputs.end(), [&](ValueRef v) { return taken_values.contains(v); }))
        prepared.stages.push_back(static_cast<int>(s));
    }
  for (std::size_t s = 0; s < sources.size(); ++s)
    for (const std::string& name : sources[s].placeholders)
      if (graph.find(name) != kNoNode && taken_values.contains(graph.parse_value(name))) {
        prepared.sources.push_back(s);
        break;
      }
  for (const ValueRef value : part.placeholders)
    throw InvalidArgument("placeholder '" + graph.value_name(value) + "' (" +
                          std::string(dtype_name(graph.info(value).dtype)) + " " +
                          graph.info(value).shape.to_string() + ") is not fed");
  StagedSessionOptions plain{options.compile, options.stages, options.seed, {}};
  prepared.step =
      std::make_unique<StagedSession>(graph, std::vector<GraphStage>{}, asked.fetches, asked.targets,
                                      std::vector<RecordSource>{}, std::move(plain), runtime);
  return runs.emplace(std::move(key), std::move(prepared)).first->second;
}

void GraphSession::Impl::create(const Graph& graph, const VariableInfo& variable) {
  Tensor& memory = runtime.variables().get_or_create(variable.name, variable.dtype, variable.shape);
  if (set.contains(variable.name) || !graph.node(variable.handle).attrs.has("_init_kind")) return;
  initialize_variable(graph.node(variable.handle), options.seed, memory);
  set.insert(variable.name);
}

/// Variables that the run uses come into being, and those that nobody has set and their nodes do not say keep
/// it from running.
void GraphSession::Impl::give_values(const Graph& graph, const GraphRun& asked) {
  std::vector<ValueRef> roots, known = given(graph, asked);
  std::vector<NodeId> nodes;
  for (const std::string& name : asked.fetches) roots.push_back(graph.parse_value(name));
  for (const std::string& name : asked.targets) nodes.push_back(node_named(graph, name));
  const GraphPart part = part_above(graph, roots, nodes, known);
  const std::set<NodeId> used(part.nodes.begin(), part.nodes.end());
  for (const VariableInfo& variable : list_variables(graph))
    if (used.contains(variable.handle)) create(graph, variable);
  std::vector<std::string> names;
  for (const ValueRef value : known) names.push_back(graph.value_name(value));
  std::set<std::string> after = set;
  const auto unset = take_unset_variables(graph, asked.fetches, asked.targets, names, after);
  if (!unset.empty())
    throw InvalidArgument(unset_text(unset) + "; run their initializers first, or restore them");
  set = std::move(after);
}

Batch GraphSession::Impl::take(std::size_t stage, const GraphRun& asked) {
  const auto deadline = std::chrono::steady_clock::now() + options.timeout;
  while (true) {
    try {
      return stages->stage(stage).take(WaitContext::with_timeout(asked.poll ? kPollTime : options.timeout));
    } catch (const DeadlineExceeded&) {
      if (!asked.poll || std::chrono::steady_clock::now() >= deadline || !stages->stage(stage).running())
        throw;
      asked.poll();
    }
  }
}

GraphSession::GraphSession(GraphSessionOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}

GraphSession::~GraphSession() { close(); }

void GraphSession::add_source(RecordSource source) {
  std::lock_guard lock(impl_->mu);
  if (impl_->stages) throw InvalidArgument("a source comes too late: the stages have begun");
  impl_->sources.push_back(std::move(source));
}

std::vector<Tensor> GraphSession::run(const Graph& graph, const GraphRun& asked) {
  std::lock_guard lock(impl_->mu);
  Impl& self = *impl_;
  Prepared& prepared = self.prepare(graph, asked);
  if (!prepared.checked) self.give_values(graph, asked);
  prepared.checked = true;
  SubgraphRunner::Values feeds = asked.feeds;
  for (const int stage : prepared.stages) {
    const auto s = static_cast<std::size_t>(stage);
    if (!self.taken.contains(s)) self.taken.emplace(s, self.take(s, asked));
  }
  for (const int stage : prepared.stages) {
    const auto s = static_cast<std::size_t>(stage);
    const auto& outputs = self.stages->cut().stages[s].outputs;
    const Batch batch = std::move(self.taken.extract(s).mapped());
    for (std::size_t i = 0; i < outputs.size(); ++i)
      feeds.emplace_back(graph.value_name(outputs[i]), batch.tensors[i]);
  }
  for (const std::size_t source : prepared.sources) {
    const Batch record = self.sources[source].read(self.runs_done);
    for (std::size_t i = 0; i < self.sources[source].placeholders.size(); ++i)
      feeds.emplace_back(self.sources[source].placeholders[i], record.tensors.at(i));
  }
  StepParams params;
  params.step = self.runs_done;
  params.seed = self.options.seed;
  ++self.runs_done;
  return prepared.step->run(params, feeds, WaitContext::with_timeout(self.options.timeout)).fetches;
}

void GraphSession::start_stages(const Graph& graph) {
  std::lock_guard lock(impl_->mu);
  impl_->start(graph);
}

void GraphSession::close() {
  // Without the lock, as a run may hold it that waits for a stage.
  if (StagedSession* const begun = impl_->begun) begun->cancel();
  std::lock_guard lock(impl_->mu);
  if (impl_->stages) impl_->stages->stop();
  impl_->started = false;
}

std::vector<std::string> GraphSession::variables() const {
  std::lock_guard lock(impl_->mu);
  return {impl_->set.begin(), impl_->set.end()};
}

std::optional<Tensor> GraphSession::value(const std::string& variable) const {
  std::lock_guard lock(impl_->mu);
  if (!impl_->set.contains(variable)) return std::nullopt;
  auto value = impl_->runtime.variables().read(variable);
  return value ? std::optional(value->clone()) : std::nullopt;
}

void GraphSession::assign(const Graph& graph, const std::string& variable, const Tensor& value) {
  std::lock_guard lock(impl_->mu);
  for (const VariableInfo& known : list_variables(graph)) {
    if (known.name != variable) continue;
    if (value.dtype() != known.dtype || value.shape() != known.shape)
      throw InvalidArgument("variable '" + variable + "' is " + std::string(dtype_name(known.dtype)) + " " +
                            known.shape.to_string() + ", the value " +
                            std::string(dtype_name(value.dtype())) + " " + value.shape().to_string());
    impl_->create(graph, known);
    impl_->runtime.variables().write(variable, value);
    impl_->set.insert(variable);
    return;
  }
  throw InvalidArgument("the graph has no variable '" + variable + "'");
}

}  // namespace braid::worker
