// `braid graph`: looks at GraphDef files and at the programs that are compiled from them.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>

#include "base/cpu.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/graph_tools.h"
#include "cli/output_file.h"
#include "cli/queue_nodes.h"
#include "cli/step_flags.h"
#include "engine/compile/compile.h"
#include "engine/compile/passes.h"
#include "engine/device/sm_shares.h"
#include "engine/exec/plan_dot.h"
#include "engine/exec/plan_report.h"
#include "engine/exec/tune.h"
#include "engine/import/check.h"
#include "engine/import/import.h"
#include "engine/import/onnx/any_graph.h"
#include "engine/ir/op.h"
#include "proto/graph.pb.h"
#include "proto/job.pb.h"
#include "worker/input/data.h"
#include "worker/input/job_model.h"
#include "worker/job/job.h"
#include "worker/job/text_proto.h"
#include "worker/job/unused_fields.h"
#include "worker/process/device.h"
#include "worker/process/op_libraries.h"
#include "worker/step/training_program.h"
#include "worker/strategies/step_services.h"
#include "worker/strategies/strategy.h"
#include "worker/strategies/table_costs.h"

namespace braid::cli {
namespace {

struct GraphOptions {
  std::string file;
  int streams = 1;
  std::string policy = "AUTO";
  std::int64_t batch = 32;
  std::vector<std::string> fetches;
  std::string job;
  std::vector<std::string> set;
  std::string data_dir;
  bool streams_given = false, policy_given = false;
  std::optional<std::string> rules;
  std::string batch_siblings;
  bool forward_propagation = false, keep_all_events = false, measure = false;
  bool ignore_scopes = false, scopes_win = false;
  int steps_in_flight = 2;
  int workers = 1;
  std::string card;
  bool json = false;
  std::optional<std::string> dot;
  std::string device;
  std::string config;
  StepFlags step;
  bool train = false;  // check as the model of a job
  GraphModelFlags model;
};

int show(const GraphOptions& options) {
  const GraphDef graph = read_any_graph(options.file);
  std::map<std::string, int> ops;
  for (const NodeDef& node : graph.node()) {
    fmt::print("{:<48} {}", node.name(), node.op());
    for (const auto& input : node.input()) fmt::print(" {}", input);
    if (!node.device().empty()) fmt::print("  @{}", node.device());
    if (auto it = node.attr().find("_stream_id"); it != node.attr().end())
      fmt::print("  stream {}", it->second.i());
    fmt::print("\n");
    ++ops[node.op()];
  }
  fmt::print("{} nodes, {} ops\n", graph.node_size(), ops.size());
  return kExitSuccess;
}

/// What of an ONNX model has no translation.
int check_onnx(const OnnxImport& model) {
  for (const OnnxProblem& problem : model.problems)
    fmt::print("[{}] node '{}': {}\n", problem.op, problem.node, problem.reason);
  fmt::print("{} of {} nodes cannot be translated\n", model.problems.size(), model.nodes);
  return kExitBadInput;
}

int check(const GraphOptions& options) {
  if (options.train) {
    GraphModelFlags flags = options.model;
    flags.file = options.file;
    return check_graph_for_training(flags, options.batch);
  }
  if (is_onnx(options.file))
    if (const OnnxImport model = try_import_onnx(options.file); !model.problems.empty())
      return check_onnx(model);
  GraphDef graph = read_any_graph(options.file);
  const int nodes = graph.node_size();
  const std::set<std::string> queues = set_queues_aside(graph);
  GraphCheck result = check_graph(graph);
  result.nodes = nodes;
  std::size_t aside = 0;
  for (CheckFinding& finding : result.findings)
    aside += std::erase_if(finding.nodes, [&](const std::string& name) { return queues.contains(name); });
  std::erase_if(result.findings, [](const CheckFinding& finding) { return finding.nodes.empty(); });
  fmt::print("{}", format_check(result));
  if (aside > 0)
    fmt::print("{} nodes of queues and readers: only `braid graph run` does what they do\n", aside);
  return result.ok() ? kExitSuccess : kExitBadInput;
}

/// Values that nothing reads: what a graph computes.
std::vector<std::string> loose_ends(const Graph& graph) {
  std::vector<bool> used(static_cast<std::size_t>(graph.size()), false);
  for (NodeId id = 0; id < graph.size(); ++id)
    if (!graph.node(id).removed)
      for (const ValueRef& input : graph.node(id).inputs) used[static_cast<std::size_t>(input.node)] = true;
  std::vector<std::string> ends;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (!node.removed && !used[static_cast<std::size_t>(id)] && !node.outputs.empty() &&
        node.op->name != "VarHandleOp")
      ends.push_back(node.name);
  }
  return ends;
}

/// What AUTO finds on scratch data, with the threads and the time that a job alone on this host has; other
/// policies stay.
StreamOptions measured(const proto::Job& job, const Graph& graph, const CompileRequest& request,
                       const CompileOptions& options) {
  if (options.streams.policy != StreamPolicy::Auto) {
    log_warning("--measure has no effect: only policy AUTO on several streams measures");
    return options.streams;
  }
  RuntimeOptions runtime_options;
  const int threads = static_cast<int>(job.runtime().intra_op_threads());
  runtime_options.intra_op_threads = threads > 0 ? threads : usable_cores();
  runtime_options.device = worker::open_device(job, {});
  Runtime runtime(runtime_options);
  auto services = std::make_shared<worker::StepServices>();  // what waits for peers is not run
  services->stop = std::make_shared<worker::StopFlag>();
  runtime.services().provide<worker::StepServices>(services);
  TuneOptions tune;
  tune.seed = job.seed();
  tune.budget = std::chrono::milliseconds(static_cast<std::int64_t>(1e3 * job.streams().measure_seconds()));
  return tune_streams(graph, request, options, {}, runtime, tune).apply(options.streams);
}

/// A program of a device can be planned where there is none, but not without its kernels: all nodes would be
/// on the CPU.
void resolve_planned_device(proto::Job& job) {
  worker::resolve_device(job, {});
  if (job.runtime().device() == proto::Runtime::CUDA && !OpRegistry::global().require("MatMul").cuda)
    throw InvalidArgument(
        "this build has no CUDA kernels, so it has no plan for a device: configure with -DBRAID_CUDA=ON, or "
        "set --device cpu");
}

/// What streams cost in memory is seen against it.
std::shared_ptr<const Program> compile_for_one_stream(const Graph& graph, const CompileRequest& request,
                                                      CompileOptions options) {
  options.streams.count = 1;
  options.streams.policy = StreamPolicy::None;
  return compile(graph, request, options);
}

/// Which multiprocessors the device's streams have; how many these are is known where the device is.
std::string partition_text(const proto::Job& job, const Program& program) {
  const auto& said = job.streams().partition();
  std::vector<std::string> streams{"launch"};
  for (const ProgramStream& stream : program.streams)
    if (stream.domain == Domain::Device) streams.push_back(stream.name);
  return shares_text(parse_sm_shares(std::vector<std::string>(said.begin(), said.end())), streams);
}

int report(const GraphOptions& options, const proto::Job& job, const Program& program,
           const Program& one_stream) {
  if (options.dot) write_file_atomically(*options.dot, plan_dot(program));
  if (job.runtime().log_device_placement()) log_placement(program);
  fmt::print("{}", plan_report(program, &one_stream));
  if (program.domain == Domain::Device) fmt::print("{}", partition_text(job, program));
  return kExitSuccess;
}

/// The step of a worker that has this card, planned by a process that has none: its kernels may not be in
/// this build, so nodes are the host's, in regions as a GPU has them.
void plan_for_card(const std::string& card, proto::Job& job, worker::Peers& peers) {
  if (card.empty()) return;
  if (job.strategy().kind() != proto::Strategy::HYBRID)
    throw InvalidArgument("--card is of plans of tables: it needs strategy.kind HYBRID");
  peers.card = card;
  if (card == "CPU") return;
  job.mutable_strategy()->set_backend(proto::Strategy::NCCL);
  if (!job.runtime().has_fusion()) job.mutable_runtime()->set_fusion(true);
}

/// What the flags say, as fields of a job.
std::vector<std::string> stream_overrides(const GraphOptions& options) {
  std::vector<std::string> overrides = options.step.overrides();
  if (options.streams_given) overrides.push_back("streams.count=" + std::to_string(options.streams));
  if (options.policy_given) overrides.push_back("streams.policy=" + options.policy);
  if (options.rules) overrides.push_back("streams.rules_file=" + worker::text_value(*options.rules));
  if (!options.batch_siblings.empty())
    overrides.push_back("streams.batch_siblings=" + options.batch_siblings);
  if (options.forward_propagation) overrides.push_back("streams.forward_propagation=true");
  if (options.keep_all_events) overrides.push_back("streams.keep_all_events=true");
  if (options.ignore_scopes) overrides.push_back("streams.ignore_scopes=true");
  if (options.scopes_win) overrides.push_back("streams.scopes_win=true");
  if (!options.device.empty()) overrides.push_back("runtime.device=" + options.device);
  return overrides;
}

/// The program of one training step of a job, as the first worker would run it.
int plan_job(const GraphOptions& options) {
  std::vector<std::string> overrides = options.set;
  for (std::string& assignment : stream_overrides(options)) overrides.push_back(std::move(assignment));
  proto::Job job =
      worker::load_job(options.job, overrides,
                       job_settings(read_process_settings(options.config, worker::SettingsFor::Training)));
  if (job.strategy().kind() == proto::Strategy::LOCAL && options.workers > 1)
    throw InvalidArgument("--workers: strategy.kind is LOCAL, which has one worker");
  worker::load_op_libraries(job);
  resolve_planned_device(job);
  const worker::JobData data = worker::load_data(job, data_directory(options.data_dir), false,
                                                 {0, worker::row_reader(job, 0, options.workers).world});
  const ModelGraph model = worker::job_model(job, *data.train);
  const std::unique_ptr<Batcher> batches =
      worker::make_batcher(job, data, model.columns, worker::training_batches(job, 0, options.workers));
  const Batcher& batcher = *batches;
  Runtime runtime({});
  worker::Peers peers;
  peers.world = options.workers;
  plan_for_card(options.card, job, peers);
  const auto strategy = worker::make_strategy(job, runtime, peers);
  std::shared_ptr<const Program> one_stream;
  const auto choose = [&](const Graph& graph, const CompileRequest& request,
                          const CompileOptions& compile_options) {
    one_stream = compile_for_one_stream(graph, request, compile_options);
    return options.measure && job.streams().measure() ? measured(job, graph, request, compile_options)
                                                      : compile_options.streams;
  };
  const worker::TrainingProgram made = worker::make_training_program(
      job, model, batcher, worker::batch_share(job, 0, options.workers), *strategy, choose);
  if (options.json) {
    fmt::print("{}\n", worker::step_json(*made.program, *strategy));
    return kExitSuccess;
  }
  fmt::print("{}", strategy->describe(*made.program));
  return report(options, job, *made.program, *one_stream);
}

int plan(const GraphOptions& options) {
  if (options.rules && options.rules->empty()) throw InvalidArgument("--rules needs a file name");
  if (options.dot) check_output_file("--dot", *options.dot);
  if (!options.job.empty()) return plan_job(options);
  if (options.file.empty()) throw InvalidArgument("braid graph plan needs a GraphDef FILE or --job");
  const Graph graph = import_graph(read_any_graph(options.file), options.file);
  proto::Job job = worker::settings_job(read_process_settings(options.config, worker::SettingsFor::Training));
  for (const std::string& assignment : stream_overrides(options)) worker::set_job_field(job, assignment);
  worker::set_job_field(job, "runtime.steps_in_flight=" + std::to_string(options.steps_in_flight));
  for (const std::string& setting : worker::unused_fields(job)) log_warning("{}", setting);
  worker::fill_job_defaults(job);
  resolve_planned_device(job);
  CompileOptions compile_options = worker::training_compile_options(job);
  CompileRequest request;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.removed || node.op->name != "Placeholder") continue;
    Shape shape = node.outputs[0].shape;
    if (!shape.has_rank())
      throw InvalidArgument("placeholder '" + node.name +
                            "' has no shape: a plan needs the rank of every input");
    for (int axis = 0; axis < shape.rank(); ++axis)
      if (shape[axis] == Shape::kUnknown) shape.set_dim(axis, options.batch);
    request.feeds.push_back({node.name, node.outputs[0].dtype, shape});
  }
  request.fetches = options.fetches.empty() ? loose_ends(graph) : options.fetches;
  if (options.measure) compile_options.streams = measured(job, graph, request, compile_options);
  return report(options, job, *compile(graph, request, compile_options),
                *compile_for_one_stream(graph, request, compile_options));
}

/// What `plan` takes with a job in place of a file.
void add_plan_of_job(CLI::App& sub, CLI::Option& job, GraphOptions& options) {
  add_options_of_job(sub, job, options.set, options.data_dir);
  sub.add_option("--workers", options.workers,
                 "With --job: number of workers; the step is that of one of them (PS, ALLREDUCE,\n"
                 "HYBRID, PIPELINE, TENSOR, EXPERTS)")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str()
      ->needs(&job);
  sub.add_option("--card", options.card,
                 "With HYBRID: plan the tables for workers with this GPU each, 8 on a host, as if\n"
                 "strategy.backend were NCCL; no GPU is needed, and other nodes are the host's")
      ->check(CLI::IsMember(worker::known_cards()))
      ->needs(&job);
  sub.add_flag("--json", options.json,
               "With --job: one JSON object, as a worker's /plan.json (docs/user/status.md)")
      ->needs(&job);
}

/// How `plan` compiles.
void add_plan_streams(CLI::App& sub, GraphOptions& options) {
  sub.add_option("--streams", options.streams, "Compute streams")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  sub.add_option("--policy", options.policy, "Who gives nodes their streams (docs/user/streams.md)")
      ->check(CLI::IsMember(stream_policy_names()))
      ->capture_default_str();
  sub.add_option("--rules", options.rules, "Streams by node name: a file with lines id:regex,regex");
  sub.add_option("--batch-siblings", options.batch_siblings,
                 "Independent nodes of one kind and shape as one, where that is cheaper: OFF, WITHIN_SCOPES\n"
                 "(the default: nodes on streams of their own stay apart) or ACROSS_SCOPES")
      ->check(CLI::IsMember({"OFF", "WITHIN_SCOPES", "ACROSS_SCOPES"}));
  sub.add_flag("--forward-propagation", options.forward_propagation,
               "A node without a stream takes that of most of its inputs");
  sub.add_flag("--ignore-scopes", options.ignore_scopes,
               "Stream ids that are written on nodes (_stream_id) mean nothing");
  sub.add_flag("--scopes-win", options.scopes_win,
               "A node keeps the stream id that it has where a rule of --rules names another");
  sub.add_flag("--keep-all-events", options.keep_all_events, "Remove no wait, for comparison");
  add_device_option(sub, options.device);
  add_config_option(sub, options.config);
  add_step_flags(sub, options.step);
  sub.add_flag("--measure", options.measure, "AUTO times its candidates on scratch data, as a job does");
  sub.add_option("--dot", options.dot, "Also write a drawing for Graphviz, coloured by stream");
}

/// What `plan` takes with a file, where a job says it by itself.
void add_plan_of_file(CLI::App& sub, CLI::Option& job, GraphOptions& options) {
  sub.add_option("--steps-in-flight", options.steps_in_flight, "With FILE: steps that may overlap")
      ->check(CLI::Range(1, 8))
      ->capture_default_str()
      ->excludes(&job);
  sub.add_option("--batch", options.batch, "With FILE: stands for unknown dimensions of placeholders")
      ->check(CLI::PositiveNumber)
      ->capture_default_str()
      ->excludes(&job);
  sub.add_option("--fetch", options.fetches, "With FILE: values to compute; default: all that nothing reads")
      ->excludes(&job);
}

}  // namespace

void add_graph(CLI::App& app, Action& action) {
  auto options = std::make_shared<GraphOptions>();
  CLI::App* graph =
      app.add_subcommand("graph", "Look at GraphDef files (.pb, .pbtxt), plan them and run them");
  const auto add = [&](const char* name, const char* text, int (*run)(const GraphOptions&)) {
    CLI::App* sub = graph->add_subcommand(name, text);
    add_op_library_option(*sub);
    sub->callback([options, run, sub, &action] {
      options->streams_given = sub->get_option_no_throw("--streams") && sub->count("--streams") > 0;
      options->policy_given = sub->get_option_no_throw("--policy") && sub->count("--policy") > 0;
      action = [options, run] {
        worker::register_strategy_ops();
        return run(*options);
      };
    });
    return sub;
  };
  const auto add_file = [&](CLI::App* sub) {
    return sub->add_option("FILE", options->file, "GraphDef, binary or text, or an ONNX model")
        ->check(CLI::ExistingPath);
  };
  add_file(add("show", "List the nodes: name, op, inputs, device, stream", show))->required();
  CLI::App* check_command =
      add("check", "List all problems that prevent loading; exit code 2 if there are any", check);
  add_file(check_command)->required();
  check_command->add_flag("--train", options->train,
                          "Also what a job would train, feed and run, or all that prevents training");
  check_command->add_option("--batch", options->batch, "With --train: rows of a step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  add_graph_model_flags(*check_command, options->model);
  auto markdown = std::make_shared<bool>(false);
  CLI::App* list = graph->add_subcommand("passes", "List the compiler's passes in their order");
  list->add_flag("--markdown", *markdown, "Print Markdown, as in docs/design/passes.md");
  list->callback([markdown, &action] {
    action = [markdown] {
      fmt::print("{}", passes_text(*markdown));
      return kExitSuccess;
    };
  });
  add_graph_run(*graph, action);
  add_graph_stats(*graph, action);
  add_graph_export(*graph, action);
  add_graph_import(*graph, action);
  CLI::App* sub = add(
      "plan", "Compile, and show the streams of all nodes, waits issued and removed, predicted time, memory",
      plan);
  CLI::Option* job =
      sub->add_option("--job", options->job, "Instead of FILE: the whole training step of a job")
          ->excludes(add_file(sub));
  add_plan_of_job(*sub, *job, *options);
  add_plan_streams(*sub, *options);
  add_plan_of_file(*sub, *job, *options);
}

}  // namespace braid::cli
