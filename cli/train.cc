// `braid train`: runs the role that the cluster spec names. The same command line in every process.
#include <fmt/core.h>
#include <CLI/CLI.hpp>
#include <limits>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/graph_job.h"
#include "cli/step_flags.h"
#include "launch/cluster_spec.h"
#include "proto/job.pb.h"
#include "worker/job/job.h"
#include "worker/job/unused_fields.h"
#include "worker/roles/cluster_report.h"
#include "worker/roles/roles.h"

namespace braid::cli {
namespace {

struct TrainOptions {
  std::string job;
  GraphJobFlags graph;
  std::vector<std::string> set;
  std::string data_dir;
  CLI::Option* op_libraries = nullptr;
  std::string device;
  std::string config;
  std::string run_directory;
  StepFlags step;
  bool resume = false;
  bool accept_changes = false;
  bool overwrite = false;
  bool print_job = false;
  bool print_cluster = false;
  launch::LaunchFlags cluster;
};

proto::Job load(const TrainOptions& options, const std::vector<std::string>& overrides,
                const std::vector<std::string>& settings) {
  const bool is_graph = !options.graph.graph.file.empty();
  if (is_graph != options.job.empty())
    throw InvalidArgument("braid train needs --job FILE, or --graph FILE with --loss and --data");
  if (!is_graph) return worker::load_job(options.job, overrides, settings);
  if (options.graph.data.empty())
    throw InvalidArgument("--graph needs --data FILE, or a job with model.graph");
  return worker::load_job_text(graph_job_text(options.graph), "--graph " + options.graph.graph.file,
                               overrides, settings);
}

int run_train(const TrainOptions& options) {
  std::vector<std::string> overrides = options.set;
  for (std::string& field : options.step.overrides()) overrides.push_back(std::move(field));
  if (!options.run_directory.empty()) overrides.push_back("run_directory=" + options.run_directory);
  if (!options.device.empty()) overrides.push_back("runtime.device=" + options.device);
  const std::vector<std::string> settings =
      job_settings(read_process_settings(options.config, worker::SettingsFor::Training));
  proto::Job job = load(options, overrides, settings);
  for (const std::string& library : options.op_libraries->results())
    job.mutable_runtime()->add_op_libraries(library);
  if (options.print_job) {
    worker::clear_unused_defaults(job);
    fmt::print("{}", job.DebugString());
    return kExitSuccess;
  }
  worker::RoleOptions role;
  role.cluster = launch::resolve_cluster(launch::process_environment(), options.cluster);
  if (options.print_cluster) {
    fmt::print("{}\n", worker::cluster_report(job, role.cluster));
    return kExitSuccess;
  }
  role.start = options.resume ? RunStart::Resume : options.overwrite ? RunStart::Overwrite : RunStart::New;
  role.accepts_changes = options.accept_changes;
  role.data_dir = data_directory(options.data_dir);
  return worker::run_role(job, role);
}

}  // namespace

void add_device_option(CLI::App& command, std::string& device) {
  command
      .add_option("--device", device,
                  "Where to compute. auto: CUDA where this build has it and a device is visible")
      ->transform(CLI::IsMember({"CUDA", "CPU", "AUTO"}, CLI::ignore_case).description("cuda|cpu|auto"));
}

namespace {

/// A graph in place of a job.
void add_graph_options(CLI::App& train, GraphJobFlags& graph) {
  train
      .add_option(
          "--graph", graph.graph.file,
          "Instead of --job: a graph of TensorFlow, Keras or ONNX, with --loss and --data; --print-job "
          "prints the\njob that comes of it")
      ->check(CLI::ExistingPath);
  train.add_option("--data", graph.data, "With --graph: a CSV, TSV or TFRecord file");
  train.add_option("--test-data", graph.test, "With --graph: such a file to evaluate on");
  train.add_option("--label", graph.label, "With --graph: the column of the file with the truth");
  train.add_option("--batch", graph.batch, "With --graph: rows of a step")->check(CLI::PositiveNumber);
  add_graph_model_flags(train, graph.graph);
}

/// Who this process is.
void add_cluster_options(CLI::App& train, launch::LaunchFlags& cluster) {
  train.add_option("--cluster", cluster.cluster,
                   "Tasks: 'chief=h:1;worker=h:2,h:3;ps=h:4', or TF_CONFIG's cluster object");
  train.add_option("--task", cluster.task, "This process's task: 'worker:1'");
  train.add_option("--join", cluster.join,
                   "The leader of an elastic job, 'host:port', that this process is to be a worker of");
  train
      .add_option("--ps-ranks", cluster.ps_ranks,
                  "Under mpirun, srun or torchrun: the last K ranks become parameter servers")
      ->check(CLI::Range(0, std::numeric_limits<int>::max()));
  train.add_option("--port", cluster.port, "Port of rank 0 under srun and torchrun; 0 picks a free one")
      ->check(CLI::Range(0, 65535));
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  auto options = std::make_shared<TrainOptions>();
  CLI::App* train =
      app.add_subcommand("train",
                         "Train a model. The role of this process (chief, worker, ps, evaluator) comes from "
                         "--cluster and --task, TF_CONFIG, or the\n"
                         "launcher's variables (mpirun, srun, torchrun); without any of these it trains "
                         "alone. The last line is 'result: {JSON}'.");
  train->add_option("--job", options->job, "Job file, text protobuf (proto/job.proto)");
  add_graph_options(*train, options->graph);
  train->add_option("--set", options->set, "Override a field of the job: a.b=value; may be repeated")
      ->allow_extra_args(false);
  train->add_option("--data-dir", options->data_dir,
                    "Where input files are; default: $BRAID_DATA, otherwise the current directory");
  train->add_option("--run-dir", options->run_directory,
                    "Keep all that the run leaves in this directory, runs/NAME: job, log, metrics.jsonl, "
                    "checkpoints, trace and\nTensorBoard's files. A run that is there is not touched "
                    "without --resume or --overwrite");
  options->op_libraries = add_op_library_option(*train);
  add_device_option(*train, options->device);
  add_config_option(*train, options->config);
  add_step_flags(*train, options->step);
  CLI::Option* const resume =
      train->add_flag("--resume", options->resume,
                      "Resume from the newest complete checkpoint in checkpoint.directory; without one, "
                      "begin at step 0");
  train
      ->add_flag(
          "--accept-changes", options->accept_changes,
          "With --resume: go on although seed, input, model or optimizer differ from the checkpoint's, "
          "which is refused otherwise")
      ->needs(resume);
  train
      ->add_flag(
          "--overwrite", options->overwrite,
          "Begin a new run in a checkpoint.directory that has checkpoints. They are removed once the\nnew "
          "run has a complete one. Without this flag or --resume such a directory is refused")
      ->excludes(resume);
  train->add_flag("--print-job", options->print_job,
                  "Print the resolved job, with defaults and overrides, and exit");
  train->add_flag("--print-cluster", options->print_cluster,
                  "Print who this process is, its peers, and the cores, NUMA nodes and GPU that it is bound "
                  "to, and exit");
  add_cluster_options(*train, options->cluster);
  train->callback([options, &action] { action = [options] { return run_train(*options); }; });
}

}  // namespace braid::cli
