#include "worker/run/built_step.h"

#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "engine/exec/initial_variables.h"
#include "engine/exec/placement_log.h"
#include "engine/exec/plan_report.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"
#include "proto/job.pb.h"
#include "worker/run/slow_start.h"
#include "worker/step/stream_tuning.h"
#include "worker/step/training_program.h"
#include "worker/strategies/step_services.h"
#include "worker/watch/monitor.h"

namespace braid::worker {
namespace {

void log_placement(const Program& program, const Peers& peers) {
  DeviceName process;
  if (peers.world > 1) {
    process.job = "worker";
    process.task = peers.rank;
  }
  for (const std::string& line : placement_log(program, process)) log_info("{}", line);
}

void log_lines(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) log_info("{}", line);
}

template <class Feeds>
std::vector<std::string> names_of(const Feeds& feeds) {
  std::vector<std::string> names;
  for (const auto& feed : feeds) names.push_back(feed.name);
  return names;
}

void initialize_variables(const Graph& graph, const std::map<std::string, Tensor>& initial,
                          std::uint64_t seed, Strategy& strategy, Runtime& runtime) {
  for (const VariableInfo& variable : list_variables(graph)) {
    if (!runtime.variables().contains(variable.name)) continue;
    const auto given = initial.find(strategy.model_name(variable.name));
    if (given == initial.end())
      initialize_variable(runtime, graph, variable, seed);
    else if (!strategy.takes_initial_value(variable.name, given->second))
      runtime.variables().write(variable.name, given->second);
  }
}

/// Before trials, which are fed with it.
void fit_first_batch(Batcher& batcher) {
  try {
    batcher.make(0);
  } catch (const InvalidArgument&) {
    if (!batcher.outgrown()) throw;
    batcher.grow();
  }
}

}  // namespace

BuiltStep::BuiltStep(const RunContext& run, const RunInput& from, const WaitContext& first_wait,
                     bool keeps_variables)
    : strategy(make_strategy(run.job, run.runtime, run.peers)),
      stages(stage_session(run.job)),
      run_(run),
      from_(from) {
  const proto::Job& job = run.job;
  Runtime& runtime = run.runtime;
  if (auto* services = runtime.services().find<StepServices>()) services->total_steps = from.total_steps;
  std::vector<std::string> columns = from.model.columns;
  const auto staging = [&](const Graph& graph, const std::vector<std::string>& feeds) {
    return std::make_unique<InputStaging>(job, stages, graph, *from.batcher, columns, feeds, runtime);
  };
  const auto first_feeds = [&](const Graph& graph, const CompileRequest& request) {
    const StepFeeds feeds(graph, names_of(request.feeds));
    const Batch batch = staging(graph, feeds.batch())->make({});
    return feeds.of(batch, batch);
  };
  grows_ = room_grows(job, run.peers.world);
  if (grows_ && job.streams().policy() == proto::Streams::AUTO) fit_first_batch(*from.batcher);
  std::optional<SlowStart> slow("compiling the step");
  strategy->prepare(run.resumes(), first_wait);
  strategy->look_at_batches(
      [&](const Graph& graph, const std::vector<std::string>& values, std::uint64_t batches) {
        std::vector<std::vector<Tensor>> all;
        const auto ahead = staging(graph, values);
        for (std::uint64_t batch = 0; batch < batches; ++batch)
          all.push_back(ahead->make({.ticket = batch, .thread = 0, .stop = {}}).tensors);
        return all;
      });
  const StreamTuning tuning{job, run.peers, *strategy, runtime, first_feeds, run.resumes(), first_wait};
  TrainingProgram made = make_training_program(
      job, from.model, *from.batcher, from.share, *strategy,
      [&](const Graph& graph, const CompileRequest& request, const CompileOptions& options) {
        return tuned_streams(tuning, graph, request, options);
      });
  log_notes(*made.program);
  if (run.peers.leader()) log_lines(strategy->describe(*made.program));
  if (job.runtime().log_device_placement()) log_placement(*made.program, run.peers);
  if (ProcessPage* page = run.monitor.page()) page->set_plan(step_json(*made.program, *strategy));
  training = std::move(made.training);
  options_ = std::move(made.options);
  plan_hash = braid::plan_hash(*made.program);
  agreed_hash = made.agreed_hash;
  steps_in_flight = made.program->steps_in_flight;
  std::erase_if(columns, [&](const std::string& name) { return training.graph.find(name) == kNoNode; });
  if (columns != from.model.columns) from.batcher->keep_columns(columns);
  feeds = StepFeeds(training.graph, names_of(made.program->feeds));
  input = staging(training.graph, feeds.batch());
  if (from.taken) input->take_from(*from.taken);
  instance = std::make_unique<Instance>(std::move(made.program), runtime, instance_options(job));
  if (made.before_first) before_first = std::make_unique<Instance>(std::move(made.before_first), runtime);
  slow.emplace("the first values of variables");
  if (!keeps_variables)
    initialize_variables(training.graph, from.model.initial, job.seed(), *strategy, runtime);
}

void BuiltStep::grow() {
  log_warning("input: more ids than a step had room for: it is prepared for more: {}", from_.batcher->grow());
  auto program = compile_again(run_.job, from_.model, *from_.batcher, from_.share, training, options_,
                               run_.runtime.variables());
  if (ProcessPage* page = run_.monitor.page()) page->set_plan(step_json(*program, *strategy));
  steps_in_flight = program->steps_in_flight;
  input->use(training.graph, names_of(program->feeds));
  instance = std::make_unique<Instance>(std::move(program), run_.runtime, instance_options(run_.job));
}

}  // namespace braid::worker
