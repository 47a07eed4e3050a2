// `braid graph run`: runs any GraphDef once on .npy arrays. Shapes that depend on the feeds' values are
// computed first (engine/graph/specialize.h). Variables have the values of a checkpoint, or those that the
// nodes which `--init` names assign before; a run that reads others is refused, unless `--untrained` asks for
// their first values, which the builder's attributes say, else zeros. Queues and readers inside the graph
// give their first elements (queue_runners.h).
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "base/cpu.h"
#include "base/error.h"
#include "base/files.h"
#include "base/formats/npy.h"
#include "base/log.h"
#include "cli/ckpt_values.h"
#include "cli/fed_values.h"
#include "cli/graph_tools.h"
#include "cli/output_file.h"
#include "cli/queue_runners.h"
#include "cli/step_flags.h"
#include "engine/compile/compile.h"
#include "engine/exec/instance.h"
#include "engine/graph/specialize.h"
#include "engine/import/import.h"
#include "engine/import/onnx/any_graph.h"
#include "engine/ops/common/format_tensor.h"
#include "engine/ops/state/variable_init.h"
#include "engine/program/program.h"
#include "proto/graph.pb.h"
#include "proto/job.pb.h"
#include "worker/checkpoint/stored_variables.h"
#include "worker/input/npy_tensor.h"
#include "worker/job/job.h"
#include "worker/job/unused_fields.h"
#include "worker/model/initial_values.h"
#include "worker/step/unset_variables.h"

namespace braid::cli {
namespace {

struct RunOptions {
  std::string file;
  std::vector<std::string> feeds;
  std::vector<std::string> fetches, outs;
  std::vector<std::pair<std::string, std::string>> outputs;  // fetch and the file behind it, or none
  std::vector<std::string> inits;
  std::string config, checkpoint;
  bool untrained = false;
  bool streams_given = false;
  int streams = 1;
  int threads = 0;
  StepFlags flags;
  CompileOptions compile;  // with what flags and settings say
  std::uint64_t seed = 1;
  double timeout_seconds = 3600;
};

/// "name=file"; names have no '='.
std::pair<std::string, std::string> split_feed(const std::string& text) {
  const std::size_t at = text.find('=');
  if (at == 0 || at == std::string::npos || at + 1 == text.size())
    throw InvalidArgument("--feed " + text + ": expected name=file.npy");
  std::string name = text.substr(0, at);
  if (name.ends_with(":0")) name.resize(name.size() - 2);
  return {std::move(name), text.substr(at + 1)};
}

/// What a run's graphs share: memory, and which variables have their first values.
struct Session {
  Runtime runtime;
  std::optional<worker::StoredVariables> stored;
  std::map<std::string, Tensor> saved;  // the values that a SavedModel brings
  std::set<std::string> initialized;
  std::set<std::string> assigned;  // that a run has set
};

/// Gives the variables that the program has made their first values, each once.
void initialize(const Program& program, std::uint64_t seed, Session& session) {
  for (NodeId id = 0; id < program.graph.size(); ++id) {
    const Node& node = program.graph.node(id);
    if (node.removed || node.op->name != "VarHandleOp") continue;
    const VariableInfo info = variable_of(program.graph, {id, 0});
    if (!session.initialized.insert(info.name).second) continue;
    if (session.stored)
      session.runtime.variables().write(info.name, session.stored->value(program.graph, info));
    else if (const auto own = session.saved.find(info.name); own != session.saved.end())
      session.runtime.variables().write(info.name, own->second);
    else
      initialize_variable(node, seed, *session.runtime.variables().find(info.name));
  }
}

void refuse_unset(const Graph& graph, const RunOptions& options, const Feeds& feeds,
                  const std::vector<std::string>& fetches, const std::vector<std::string>& targets,
                  Session& session) {
  std::vector<std::string> given;
  for (const auto& [name, tensor] : feeds) given.push_back(name);
  const std::vector<std::string> unset =
      worker::take_unset_variables(graph, fetches, targets, given, session.assigned);
  if (unset.empty()) return;
  throw InvalidArgument(options.file + ": " + worker::unset_text(unset) +
                        "; give --checkpoint DIR or --init NODE, or --untrained for their initial values");
}

std::vector<Tensor> run_once(const Graph& graph, const RunOptions& options, const Feeds& feeds,
                             const std::vector<std::string>& fetches, const std::vector<std::string>& targets,
                             Session& session) {
  const Graph fitted = specialize(graph, feeds, fetches, targets);
  if (!session.stored && !options.untrained) refuse_unset(fitted, options, feeds, fetches, targets, session);
  CompileRequest request{{}, fetches, targets};
  StepRequest step;
  step.params.seed = options.seed;
  for (const auto& [name, tensor] : feeds) {
    request.feeds.push_back({name, tensor.dtype(), tensor.shape()});
    step.feeds.push_back(tensor);
  }
  Instance instance(compile(fitted, request, options.compile), session.runtime);
  for (const Note& note : instance.program().notes)
    if (note.severity == Severity::Warning) log_warning("{}: {}", note.pass, note.text);
  if (options.flags.log_device_placement) log_placement(instance.program());
  initialize(instance.program(), options.seed, session);
  const auto timeout = std::chrono::milliseconds(static_cast<std::int64_t>(options.timeout_seconds * 1000));
  return instance.run(std::move(step), WaitContext::with_timeout(timeout)).fetches;
}

/// What queues hold is computed by graphs of their own.
std::vector<Tensor> evaluate(const GraphDef& def, const RunOptions& options,
                             const std::vector<std::string>& names, Session& session) {
  const Graph graph = specialize(import_graph(def, options.file, {.roots = names}), {}, names, {});
  std::vector<Tensor> values(names.size());
  std::vector<std::string> unknown;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (const Tensor* known = graph.known_value(graph.parse_value(names[i])))
      values[i] = *known;
    else
      unknown.push_back(names[i]);
  }
  if (unknown.empty()) return values;
  std::vector<Tensor> computed = run_once(graph, options, {}, unknown, {}, session);
  std::size_t next = 0;
  for (Tensor& value : values)
    if (!value.defined()) value = std::move(computed[next++]);
  return values;
}

struct LoadedGraph {
  Graph graph;
  std::vector<std::string> fetches, inits;  // under their names in the graph
};

/// Renames feeds too, where the graph that is run has other names for them.
LoadedGraph load(const RunOptions& options, Feeds& feeds, Session& session) {
  LoadedGraph loaded;
  for (const auto& [fetch, out] : options.outputs) loaded.fetches.push_back(fetch);
  loaded.inits = options.inits;
  ImportOptions import{.roots = loaded.fetches};
  import.roots.insert(import.roots.end(), loaded.inits.begin(), loaded.inits.end());
  std::map<std::string, Shape> shapes;
  for (const auto& [name, tensor] : feeds) shapes.emplace(name, tensor.shape());
  GraphDef def = read_any_graph(options.file, shapes);
  const auto rename = [&](const std::map<std::string, std::string>& renamed) {
    for (std::vector<std::string>* names : {&import.roots, &loaded.fetches, &loaded.inits})
      for (std::string& name : *names)
        if (const auto at = renamed.find(name); at != renamed.end()) name = at->second;
  };
  rename(put_placeholders(def, feeds));
  for (const auto& [name, tensor] : feeds) import.roots.push_back(name);
  rename(run_queues(def, import.roots, options.seed,
                    [&](const GraphDef& graph, const std::vector<std::string>& names) {
                      return evaluate(graph, options, names, session);
                    }));
  loaded.graph = import_graph(def, options.file, import);
  return loaded;
}

void give(const std::string& name, const std::string& file, const Tensor& value) {
  fmt::print("{}: {} {}", name, dtype_name(value.dtype()), value.shape().to_string());
  if (!file.empty()) {
    write_file_atomically(file, format_npy(value.dtype(), value.shape().dims(), value.as_bytes()));
    fmt::print(" -> {}\n", file);
    return;
  }
  constexpr std::int64_t kShown = 8;
  const bool half = value.dtype() == DType::Float16 || value.dtype() == DType::BFloat16;
  fmt::print(" [{}]\n", half ? "..." : format_elements(value.dtype(), value.raw(), value.elements(), kShown));
}

/// What neither a flag nor a default has decided, from the ConfigProto and the environment.
void apply_settings(RunOptions& options) {
  proto::Job job = worker::settings_job(read_process_settings(options.config, worker::SettingsFor::Training));
  if (options.streams_given) job.mutable_streams()->set_count(static_cast<std::uint32_t>(options.streams));
  for (const std::string& field : options.flags.overrides()) worker::set_job_field(job, field);
  for (const std::string& setting : worker::unused_fields(job)) log_warning("{}", setting);
  worker::fill_job_defaults(job);
  options.flags.log_device_placement = job.runtime().log_device_placement();
  options.compile.streams = worker::stream_options(job);
  options.compile.steps_in_flight = 1;
  options.compile.soft_placement = job.runtime().soft_placement();
  options.compile.check_numerics = job.runtime().check_numerics();
  options.compile.precision = worker::precision_of(job);
  if (options.threads == 0) options.threads = static_cast<int>(job.runtime().intra_op_threads());
}

int run_graph(const RunOptions& options) {
  if (options.outputs.empty()) throw InvalidArgument("braid graph run needs --fetch NAME");
  Feeds feeds;
  for (const std::string& text : options.feeds) {
    auto [name, file] = split_feed(text);
    if (!feeds.emplace(name, worker::read_npy_tensor(file)).second)
      throw InvalidArgument("--feed " + name + " is given twice");
  }
  const int threads = options.threads > 0 ? options.threads : usable_cores();
  RuntimeOptions runtime_options;
  runtime_options.intra_op_threads = std::max(threads, 1);
  Session session{Runtime(runtime_options), {}, {}, {}, {}};
  if (!options.checkpoint.empty()) {
    session.stored.emplace(checkpoint_at(options.checkpoint));
  } else if (!options.untrained && options.inits.empty()) {
    session.saved = worker::saved_variables(options.file);
    for (const auto& [name, value] : session.saved) session.assigned.insert(name);
  }
  const LoadedGraph loaded = load(options, feeds, session);
  const Graph& graph = loaded.graph;
  for (auto& [name, tensor] : feeds) {
    const DType dtype = graph.info(graph.parse_value(name)).dtype;
    tensor = worker::converted(tensor, dtype, "--feed " + name);
  }
  for (const std::string& init : loaded.inits) run_once(graph, options, feeds, {}, {init}, session);
  const std::vector<Tensor> values = run_once(graph, options, feeds, loaded.fetches, {}, session);
  for (std::size_t i = 0; i < values.size(); ++i)
    give(options.outputs[i].first, options.outputs[i].second, values[i]);
  return kExitSuccess;
}

/// Each --out belongs to the --fetch before it.
void pair_outputs(const CLI::App& command, RunOptions& options) {
  std::size_t fetch = 0, out = 0;
  for (const CLI::Option* option : command.parse_order()) {
    const std::string name = option->get_name();
    if (name == "--fetch") options.outputs.emplace_back(options.fetches.at(fetch++), std::string());
    if (name != "--out") continue;
    const std::string& file = options.outs.at(out++);
    if (options.outputs.empty() || !options.outputs.back().second.empty())
      throw InvalidArgument("--out " + file + ": put it after the --fetch that it belongs to");
    check_output_file("--out", file);
    options.outputs.back().second = file;
  }
}

}  // namespace

void add_graph_run(CLI::App& graph, Action& action) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* sub = graph.add_subcommand(
      "run",
      "Run a graph once on .npy arrays, e.g. braid graph run model.pb --feed x=x.npy --fetch y --out y.npy");
  sub->add_option("FILE", options->file, "GraphDef, binary or text, or an ONNX model")
      ->check(CLI::ExistingPath)
      ->required();
  add_op_library_option(*sub);
  const auto one_at_a_time = [](CLI::Option* option) {
    option->expected(1)->take_all()->trigger_on_parse(false);
    return option;
  };
  one_at_a_time(sub->add_option("--feed", options->feeds, "name=file.npy; may be repeated"));
  one_at_a_time(
      sub->add_option("--fetch", options->fetches, "A value to compute, name or name:1; may be repeated"));
  one_at_a_time(sub->add_option("--out", options->outs,
                                "File for the value of the --fetch before it; without "
                                "one its first elements are printed"));
  one_at_a_time(sub->add_option("--init", options->inits,
                                "A node to run first, such as one that assigns the "
                                "variables; may be repeated"));
  CLI::Option* checkpoint = add_checkpoint_option(*sub, options->checkpoint);
  add_untrained_flag(*sub, options->untrained, *checkpoint);
  sub->add_option("--streams", options->streams, "Compute streams")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  add_config_option(*sub, options->config);
  add_step_flags(*sub, options->flags);
  sub->add_option("--threads", options->threads, "Threads inside ops; default: one for each usable core");
  sub->add_option("--seed", options->seed, "Of random ops and initial values")->capture_default_str();
  sub->add_option("--timeout", options->timeout_seconds, "Seconds that the run may take")
      ->check(CLI::Range(1e-3, 1e7))
      ->capture_default_str();
  sub->callback([options, sub, &action] {
    action = [options, sub] {
      pair_outputs(*sub, *options);
      options->streams_given = sub->count("--streams") > 0;
      apply_settings(*options);
      return run_graph(*options);
    };
  });
}

}  // namespace braid::cli
