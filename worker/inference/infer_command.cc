#include "worker/inference/infer_command.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/cpu.h"
#include "base/error.h"
#include "base/files.h"
#include "base/formats/npy.h"
#include "base/log.h"
#include "engine/exec/placement_log.h"
#include "engine/import/import.h"
#include "engine/import/onnx/any_graph.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"
#include "proto/job.pb.h"
#include "worker/checkpoint/stored_variables.h"
#include "worker/inference/inference_inputs.h"
#include "worker/inference/inference_session.h"
#include "worker/inference/request_load.h"
#include "worker/job/job.h"
#include "worker/job/unused_fields.h"
#include "worker/model/initial_values.h"
#include "worker/process/device.h"
#include "worker/step/training_program.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {
namespace {

/// Compiling, measuring candidates and loading a device's libraries come before the first request.
constexpr std::chrono::minutes kWarmUpTimeout{10};

using Answers = std::vector<std::vector<Tensor>>;

proto::Job job_of(const InferCommand& command, const Settings& settings) {
  proto::Job job = settings_job(settings);
  if (command.streams) set_job_field(job, fmt::format("streams.count={}", *command.streams));
  for (const std::string& assignment : command.job_overrides) {
    if (!assignment.starts_with("streams.") && !assignment.starts_with("runtime."))
      throw InvalidArgument("--set " + assignment + ": --set takes fields of streams and runtime here");
    set_job_field(job, assignment);
  }
  for (const std::string& setting : unused_fields(job)) log_warning("{}", setting);
  fill_job_defaults(job);
  check_execution(job);
  resolve_device(job, {});
  for (const std::string& setting : unused_device_fields(job, SettingsFor::Inference))
    log_warning("{}", setting);
  return job;
}

InferenceOptions options_of(const InferCommand& command, const GroupSettings& settings,
                            const proto::Job& job) {
  InferenceOptions options;
  options.groups = command.groups.value_or(settings.groups.value_or(1));
  options.queue_capacity = command.queue_capacity;
  options.compile = training_compile_options(job);
  options.measure_streams = job.streams().measure();
  options.instance = instance_options(job);
  options.launch = command.launch.value_or(settings.launch.value_or(LaunchThreads::Pools));
  options.launch_threads = command.launch_threads.value_or(settings.launch_threads.value_or(1));
  if (options.launch == LaunchThreads::Pools && (command.launch_threads || settings.launch_threads))
    log_warning("{} has no effect: it counts the threads of --launch private and shared",
                command.launch_threads ? "--launch-threads" : "TF_GPU_THREAD_COUNT");
  options.pools = settings.pools;
  if (command.pools) options.pools.assign(static_cast<std::size_t>(*command.pools), {});
  if (options.launch != LaunchThreads::Pools && !options.pools.empty()) {
    if (command.pools) throw InvalidArgument("--pools does not go with --launch private or shared");
    log_warning("session_inter_op_thread_pool has no effect: groups have private or shared launch threads");
    options.pools.clear();
  }
  options.memory_limit = job.runtime().device_memory_limit();
  options.share_memory_limit =
      command.share_memory_limit.value_or(settings.share_memory_limit.value_or(true));
  if (!options.share_memory_limit && options.memory_limit == 0)
    log_warning("{} has no effect: runtime.device_memory_limit is not set",
                command.share_memory_limit ? "--split-memory" : "TF_GPU_STREAM_GROUP_SHARE_MEM_POOL=false");
  options.seed = command.seed;
  options.untrained = command.untrained;
  if (command.checkpoint)
    options.first_value = [stored = std::make_shared<const StoredVariables>(*command.checkpoint)](
                              const Graph& graph, const VariableInfo& variable) {
      return stored->value(graph, variable);
    };
  if (!command.checkpoint && !command.untrained)
    if (auto saved = saved_variables(command.graph); !saved.empty())
      options.first_value = [saved = std::move(saved)](const Graph&, const VariableInfo& variable) {
        const auto at = saved.find(variable.name);
        if (at == saved.end())
          throw InvalidArgument("the SavedModel has no value of variable '" + variable.name + "'");
        return at->second;
      };
  return options;
}

/// What an ONNX model is translated for.
OnnxInputShapes known_shapes(const std::vector<InferenceInput>& inputs, std::int64_t batch) {
  OnnxInputShapes shapes;
  for (const InferenceInput& input : inputs) {
    if (!input.shape) continue;
    Shape shape = *input.shape;
    for (int axis = 0; axis < shape.rank(); ++axis)
      if (shape[axis] < 0) shape.set_dim(axis, batch);
    shapes.emplace(input.name, shape);
  }
  return shapes;
}

Answers expected_answers(const Graph& graph, const std::vector<std::string>& inputs,
                         const InferCommand& command, InferenceOptions options, Runtime& runtime,
                         const std::vector<std::vector<Tensor>>& feeds) {
  options.groups = 1;
  options.launch = LaunchThreads::Pools;
  options.pools.clear();
  InferenceSession single(graph, inputs, command.outputs, options, runtime);
  Answers answers;
  for (const auto& feed : feeds)
    answers.push_back(single.run({feed}, WaitContext::with_timeout(kWarmUpTimeout)));
  return answers;
}

/// --out is an answer to every batch, and requests were too few for that.
[[noreturn]] void refuse_missing_answers(const InferCommand& command, const Answers& answers) {
  const auto answered =
      std::count_if(answers.begin(), answers.end(), [](const auto& a) { return !a.empty(); });
  const std::size_t clients = static_cast<std::size_t>(command.clients);
  throw InvalidArgument(fmt::format("--out would cover {} of {} batches: use --iters {}", answered,
                                    answers.size(), (answers.size() + clients - 1) / clients));
}

/// "<output>.npy" for each, the answers one after another along the first axis where they have one.
void write_answers(const InferCommand& command, const Answers& answers) {
  make_directories(command.output_directory);
  for (std::size_t o = 0; o < command.outputs.size(); ++o) {
    std::vector<std::byte> bytes;
    std::int64_t rows = 0;
    const Tensor* last = nullptr;
    for (const auto& answer : answers) {
      if (answer.empty()) refuse_missing_answers(command, answers);
      last = &answer[o];
      rows += last->shape().rank() > 0 ? last->shape()[0] : 1;
      bytes.insert(bytes.end(), last->as_bytes().begin(), last->as_bytes().end());
    }
    if (last->dtype() == DType::String)
      throw InvalidArgument("--out: '" + command.outputs[o] + "' holds text");
    std::vector<std::int64_t> dims(last->shape().dims().begin(), last->shape().dims().end());
    if (dims.empty()) dims.push_back(0);
    dims[0] = rows;
    std::string name = command.outputs[o];
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c == '/' || c == ':'; }, '_');
    write_file_atomically(std::filesystem::path(command.output_directory) / (name + ".npy"),
                          format_npy(last->dtype(), dims, bytes));
  }
}

void warm_up(InferenceSession& session, const std::vector<Tensor>& feed,
             const std::vector<InferenceInput>& inputs, std::int64_t max_id) {
  try {
    session.warm_up({feed}, WaitContext::with_timeout(kWarmUpTimeout));
  } catch (const InvalidArgument& e) {
    const bool all_given =
        std::all_of(inputs.begin(), inputs.end(), [](const InferenceInput& i) { return !i.file.empty(); });
    if (all_given) throw;
    throw InvalidArgument(
        fmt::format("{}; inputs without a file are random, integers below --max-id {}", e.message(), max_id));
  }
}

}  // namespace

int run_infer(const InferCommand& command, const Settings& settings) {
  if (command.outputs.empty()) throw InvalidArgument("name an output: --output NAME");
  if (command.batch < 1 || command.clients < 1 || command.requests < 1 || command.max_id < 1)
    throw InvalidArgument("--batch, --threads, --iters and --max-id must be at least 1");
  register_strategy_ops();
  ImportOptions import;
  import.roots = command.outputs;
  std::vector<InferenceInput> inputs;
  for (const std::string& text : command.inputs) {
    inputs.push_back(parse_inference_input(text));
    import.roots.push_back(inputs.back().name);
  }
  const Graph graph =
      import_graph(read_any_graph(command.graph, known_shapes(inputs, command.batch)), command.graph, import);
  if (inputs.empty()) inputs = placeholders_of(graph, command.outputs);
  std::vector<std::string> names;
  for (const InferenceInput& input : inputs) names.push_back(input.name);
  if (const std::string missing = missing_inputs(graph, names, command.outputs); !missing.empty())
    throw InvalidArgument("no --input for " + missing +
                          ", which the outputs need: give NAME (random values), NAME=SHAPE or NAME=FILE.npy");
  const auto feeds = make_feeds(graph, inputs, {command.batch, command.max_id, command.seed});

  const proto::Job job = job_of(command, settings);
  const InferenceOptions options = options_of(command, settings.groups, job);
  RuntimeOptions runtime_options;
  runtime_options.device = open_device(job, {});
  runtime_options.device_graphs = job.runtime().graphs();
  runtime_options.device_check = job.runtime().check_kernels();
  // Groups run at the same time: a kernel takes no more than its group's part of the cores.
  const int threads = static_cast<int>(job.runtime().intra_op_threads());
  runtime_options.intra_op_threads = threads > 0 ? threads : std::max(1, usable_cores() / options.groups);
  Runtime runtime(runtime_options);
  Answers expected;
  if (command.check) expected = expected_answers(graph, names, command, options, runtime, feeds);
  InferenceSession session(graph, names, command.outputs, options, runtime);
  warm_up(session, feeds[0], inputs, command.max_id);
  const std::shared_ptr<const Program> program = session.program();
  log_notes(*program);
  if (job.runtime().log_device_placement())
    for (const std::string& line : placement_log(*program)) log_info("{}", line);

  LoadOptions load;
  load.clients = command.clients;
  load.requests = command.requests;
  load.timeout = std::chrono::nanoseconds(static_cast<std::int64_t>(command.timeout_seconds * 1e9));
  load.pool = command.request_pool;
  const LoadResult result = run_load(session, feeds, load, expected);
  if (!command.output_directory.empty()) write_answers(command, result.answers);
  fmt::print("{} on {}: {} group{}, {} client{}, batch {}\n", command.graph,
             runtime.device() ? runtime.device()->description() : "the CPU", options.groups,
             options.groups == 1 ? "" : "s", command.clients, command.clients == 1 ? "" : "s", command.batch);
  fmt::print("{}result: {}\n", format_load(result, command.batch),
             load_json(result, command.batch, options, command.clients));
  std::fflush(stdout);
  return result.late + result.refused + result.different == 0 ? kExitSuccess : kExitFailed;
}

}  // namespace braid::worker
