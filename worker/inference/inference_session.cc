#include "worker/inference/inference_session.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "engine/exec/program_cache.h"
#include "engine/exec/tune.h"
#include "engine/ops/state/variable_init.h"
#include "engine/program/program.h"
#include "engine/staging/graph_stage.h"
#include "worker/step/unset_variables.h"

namespace braid::worker {
namespace {

constexpr std::size_t kProgramsKept = 8;
constexpr std::uint64_t kScratchBytes = 256;
constexpr int kWarmUpRuns = 3;  // of a device: launched, captured, replayed

InferenceOptions checked(InferenceOptions options) {
  if (options.groups < 1 || options.groups > 64)
    throw InvalidArgument(fmt::format("stream groups: from 1 to 64, got {}", options.groups));
  if (options.launch_threads < 1)
    throw InvalidArgument(fmt::format("launch threads: at least 1, got {}", options.launch_threads));
  options.compile.steps_in_flight = 1;
  // Graphs come with streams for training; on one stream they mean nothing.
  StreamOptions& streams = options.compile.streams;
  if (streams.count == 1 && streams.policy == StreamPolicy::Auto) streams.policy = StreamPolicy::None;
  return options;
}

std::vector<ValueRef> values_named(const Graph& graph, const std::vector<std::string>& names,
                                   const char* what) {
  std::vector<ValueRef> values;
  for (const std::string& name : names) {
    const ValueRef value = graph.parse_value(name);
    if (value.output < 0)
      throw InvalidArgument(fmt::format("{} '{}' is a control edge, not a value", what, name));
    values.push_back(value);
  }
  return values;
}

bool writes_variable(const Graph& graph, const Node& node) {
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const Access access = handle_access(*node.op, i);
    if (graph.info(node.inputs[i]).dtype == DType::Resource &&
        (access == Access::Write || access == Access::ReadWrite))
      return true;
  }
  return false;
}

/// What runs for the outputs.
GraphPart part_for(const Graph& graph, const std::vector<std::string>& inputs,
                   const std::vector<std::string>& outputs) {
  const std::vector<ValueRef> given = values_named(graph, inputs, "input");
  for (std::size_t i = 0; i < given.size(); ++i)
    if (std::find(given.begin(), given.begin() + static_cast<std::ptrdiff_t>(i), given[i]) !=
        given.begin() + static_cast<std::ptrdiff_t>(i))
      throw InvalidArgument(fmt::format("input '{}' is given twice", inputs[i]));
  return part_above(graph, values_named(graph, outputs, "output"), {}, given);
}

/// Throws: InvalidArgument, as the session's constructor does.
void check_graph(const Graph& graph, const std::vector<std::string>& inputs,
                 const std::vector<std::string>& outputs) {
  if (outputs.empty()) throw InvalidArgument("no output is named");
  const std::string missing = missing_inputs(graph, inputs, outputs);
  if (!missing.empty())
    throw InvalidArgument(fmt::format("no input for {}, which the outputs need", missing));
  for (const NodeId id : part_for(graph, inputs, outputs).nodes)
    if (writes_variable(graph, graph.node(id)))
      throw InvalidArgument(place_of(graph.node(id)) + " writes a variable, which all stream groups share");
}

/// Of a step's temporaries, where the program runs.
std::uint64_t arena_bytes(const Program& program) {
  return program.domain == Domain::Device ? program.stats.device_arena_bytes : program.stats.arena_bytes;
}

}  // namespace

std::string missing_inputs(const Graph& graph, const std::vector<std::string>& inputs,
                           const std::vector<std::string>& outputs) {
  std::string missing;
  for (const ValueRef placeholder : part_for(graph, inputs, outputs).placeholders)
    missing += (missing.empty() ? "'" : ", '") + graph.value_name(placeholder) + "'";
  return missing;
}

struct InferenceSession::Entry {
  std::vector<FeedSpec> feeds;
  std::shared_ptr<const Program> program;
  std::weak_ptr<Instance> first;  // whose constants the others take; guarded by prepare_mu_
};

struct InferenceSession::Bound {
  std::shared_ptr<Entry> entry;
  std::shared_ptr<Instance> instance;
};

struct InferenceSession::Group {
  std::list<Bound> bound;   // the one used last first
  std::uint64_t bytes = 0;  // of their temporaries
};

InferenceSession::InferenceSession(Graph graph, std::vector<std::string> inputs,
                                   std::vector<std::string> outputs, const InferenceOptions& options,
                                   Runtime& runtime)
    : graph_(std::move(graph)),
      inputs_(std::move(inputs)),
      outputs_(std::move(outputs)),
      options_(checked(options)),
      runtime_(runtime),
      groups_(options_.groups, options_.queue_capacity) {
  check_graph(graph_, inputs_, outputs_);
  if (!options_.first_value && !options_.untrained) check_variables();
  for (int i = 0; i < options_.groups; ++i) bound_.push_back(std::make_unique<Group>());
  switch (options_.launch) {
    case LaunchThreads::Pools:
      for (const GroupSettings::Pool& pool : options_.pools)
        pools_.push_back(std::make_unique<LaunchPool>(pool.threads, pool.name));
      break;
    case LaunchThreads::Private:
      for (int i = 0; i < options_.groups; ++i)
        pools_.push_back(std::make_unique<LaunchPool>(options_.launch_threads));
      break;
    case LaunchThreads::Shared:
      pools_.push_back(std::make_unique<LaunchPool>(options_.launch_threads));
      break;
  }
  for (const std::string& name : runtime_.variables().names()) initialized_.insert(name);
  if (runtime_.device()) device_scratch_ = runtime_.device()->allocate(kScratchBytes, "stream groups");
}

InferenceSession::~InferenceSession() = default;

void InferenceSession::check_variables() const {
  const std::vector<std::string> names = runtime_.variables().names();
  std::set<std::string> set(names.begin(), names.end());
  const std::vector<std::string> unset = take_unset_variables(graph_, outputs_, {}, inputs_, set);
  if (!unset.empty())
    throw InvalidArgument(unset_text(unset) +
                          "; give --checkpoint DIR, or --untrained for their initial values");
}

// ----------------------------------------------------------------------------------------------- programs

std::shared_ptr<InferenceSession::Entry> InferenceSession::program_for(const std::vector<Tensor>& feeds) {
  if (feeds.size() != inputs_.size())
    throw InvalidArgument(fmt::format("a request needs {} inputs, got {}", inputs_.size(), feeds.size()));
  const auto find = [&]() -> std::shared_ptr<Entry> {
    const std::lock_guard lock(mu_);
    const auto found = std::find_if(programs_.begin(), programs_.end(), [&](const auto& entry) {
      return std::equal(feeds.begin(), feeds.end(), entry->feeds.begin(),
                        [](const Tensor& feed, const FeedSpec& spec) {
                          return feed.dtype() == spec.dtype && feed.shape() == spec.shape;
                        });
    });
    if (found == programs_.end()) return nullptr;
    programs_.splice(programs_.begin(), programs_, found);
    return programs_.front();
  };
  if (auto entry = find()) return entry;
  const std::lock_guard preparing(prepare_mu_);
  if (auto entry = find()) return entry;  // another thread was faster
  std::vector<FeedSpec> specs;
  for (std::size_t i = 0; i < feeds.size(); ++i)
    specs.push_back({inputs_[i], feeds[i].dtype(), feeds[i].shape()});
  auto entry = compile_for(specs, feeds);
  const std::lock_guard lock(mu_);
  programs_.push_front(entry);
  if (programs_.size() > kProgramsKept) programs_.pop_back();
  return entry;
}

std::shared_ptr<InferenceSession::Entry> InferenceSession::compile_for(const std::vector<FeedSpec>& feeds,
                                                                       const std::vector<Tensor>& values) {
  const CompileRequest request{feeds, outputs_, {}};
  CompileOptions options = options_.compile;
  if (options_.measure_streams && options.streams.policy == StreamPolicy::Auto && options.streams.count > 1)
    options.streams = tune_streams(graph_, request, options, values, runtime_).apply(options.streams);
  auto entry = std::make_shared<Entry>();
  entry->feeds = feeds;
  entry->program = compile_to_fit(graph_, request, options, runtime_.variables());
  return entry;
}

void InferenceSession::initialize_variables(const Program& program) {
  std::set<std::string> used;
  for (const ProgramVariable& variable : program.variables) {
    used.insert(variable.name);
    used.insert(variable.members.begin(), variable.members.end());
  }
  for (const VariableInfo& variable : list_variables(graph_)) {
    if (!used.contains(variable.name) || initialized_.contains(variable.name)) continue;
    if (options_.first_value) {
      runtime_.variables().write(variable.name, options_.first_value(graph_, variable));
    } else {
      Tensor value(variable.dtype, variable.shape);
      initialize_variable(graph_.node(variable.handle), options_.seed, value);
      runtime_.variables().write(variable.name, value);
    }
    initialized_.insert(variable.name);
  }
}

// ------------------------------------------------------------------------------------------------- groups

/// What the group has used least goes, where that helps.
void InferenceSession::make_room(Group& group, int index, std::uint64_t bytes) {
  if (options_.memory_limit == 0) return;
  const bool shared = options_.share_memory_limit;
  const std::uint64_t limit =
      shared ? options_.memory_limit : options_.memory_limit / static_cast<std::uint64_t>(options_.groups);
  const auto used = [&] { return shared ? bound_bytes_ : group.bytes; };
  while (used() + bytes > limit) {
    if (group.bound.empty())
      throw OutOfMemory(fmt::format(
          "stream group {}: no room for {} bytes of a step's temporaries: {} {} "
          "bytes, and {} are taken",
          index, bytes, shared ? "the groups' limit is" : "its part of the limit is", limit, used()));
    const std::uint64_t freed = arena_bytes(*group.bound.back().entry->program);
    group.bound.pop_back();
    group.bytes -= freed;
    bound_bytes_ -= freed;
  }
}

Instance& InferenceSession::instance_of(Group& group, int index, const std::shared_ptr<Entry>& entry) {
  const auto found = std::find_if(group.bound.begin(), group.bound.end(),
                                  [&](const Bound& bound) { return bound.entry == entry; });
  if (found != group.bound.end()) {
    group.bound.splice(group.bound.begin(), group.bound, found);
    return *group.bound.front().instance;
  }
  const std::lock_guard preparing(prepare_mu_);
  const std::uint64_t bytes = arena_bytes(*entry->program);
  make_room(group, index, bytes);
  const std::shared_ptr<Instance> first = entry->first.lock();
  InstanceOptions options = options_.instance;
  options.stream_prefix = fmt::format("group{}/", index);
  options.constants_of = first.get();
  // Kernels are prepared for the thread's current device, and this thread may have had none to do with yet.
  if (Accelerator* device = runtime_.device())
    device->fill_zero(device_scratch_.get(), kScratchBytes, device->stream("bind"));
  auto instance = std::make_shared<Instance>(entry->program, runtime_, options);
  initialize_variables(*entry->program);
  if (!first) entry->first = instance;
  group.bound.push_front({entry, std::move(instance)});
  group.bytes += bytes;
  bound_bytes_ += bytes;
  if (group.bound.size() > kProgramsKept) {
    const std::uint64_t freed = arena_bytes(*group.bound.back().entry->program);
    group.bytes -= freed;
    bound_bytes_ -= freed;
    group.bound.pop_back();
  }
  return *group.bound.front().instance;
}

std::vector<Tensor> InferenceSession::run_on(int index, const InferenceRequest& request,
                                             const WaitContext& wait) {
  Instance& instance =
      instance_of(*bound_[static_cast<std::size_t>(index)], index, program_for(request.feeds));
  StepRequest step;
  step.params.step = requests_.fetch_add(1, std::memory_order_relaxed);
  step.params.seed = options_.seed;
  step.feeds = request.feeds;
  return instance.run(std::move(step), wait).fetches;
}

LaunchPool* InferenceSession::pool_of(int group, const std::optional<int>& asked) {
  const int count = static_cast<int>(pools_.size());
  if (asked && options_.launch != LaunchThreads::Pools)
    throw InvalidArgument(
        fmt::format("launch pool {} does not exist: groups have private or shared launch threads", *asked));
  if (asked && (*asked < 0 || *asked >= count))
    throw InvalidArgument(
        fmt::format("launch pool {} does not exist: there {} {}", *asked, count == 1 ? "is" : "are", count));
  if (count == 0) return nullptr;
  return pools_[static_cast<std::size_t>(asked ? *asked : group % count)].get();
}

std::vector<Tensor> InferenceSession::run(InferenceRequest request, const WaitContext& wait) {
  pool_of(0, request.pool);  // refused before it waits
  const StreamGroups::Lease lease = groups_.acquire(wait);
  std::vector<Tensor> outputs;
  const auto work = [&] { outputs = run_on(lease.group(), request, wait); };
  if (LaunchPool* pool = pool_of(lease.group(), request.pool))
    pool->run(work, wait);
  else
    work();
  return outputs;
}

void InferenceSession::warm_up(const InferenceRequest& request, const WaitContext& wait) {
  std::vector<StreamGroups::Lease> all;
  for (int i = 0; i < options_.groups; ++i) all.push_back(groups_.acquire(wait));
  for (const StreamGroups::Lease& lease : all)
    for (int i = 0; i < kWarmUpRuns; ++i) run_on(lease.group(), request, wait);
}

std::vector<std::uint64_t> InferenceSession::pool_runs() const {
  std::vector<std::uint64_t> runs;
  for (const auto& pool : pools_) runs.push_back(pool->runs());
  return runs;
}

std::shared_ptr<const Program> InferenceSession::program() const {
  const std::lock_guard lock(mu_);
  return programs_.empty() ? nullptr : programs_.front()->program;
}

}  // namespace braid::worker
