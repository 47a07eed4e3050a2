// `braid infer`: a graph under load, requests spread over stream groups that share its weights.
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <map>

#include "cli/ckpt_values.h"
#include "cli/commands.h"
#include "engine/program/options.h"
#include "worker/inference/infer_command.h"

namespace braid::cli {
namespace {

using worker::InferCommand;
using worker::LaunchThreads;

struct InferOptions {
  InferCommand command;
  std::vector<std::string> set;
  std::string config, device, policy, batch_siblings, checkpoint;
  bool merge_streams = false, split_memory = false, ignore_scopes = false;
};

int run_infer(InferOptions options) {
  std::vector<std::string>& overrides = options.command.job_overrides;
  if (!options.policy.empty()) overrides.push_back("streams.policy=" + options.policy);
  if (!options.batch_siblings.empty())
    overrides.push_back("streams.batch_siblings=" + options.batch_siblings);
  if (options.ignore_scopes) overrides.push_back("streams.ignore_scopes=true");
  if (options.merge_streams) overrides.push_back("streams.merge_copies=true");
  if (!options.device.empty()) overrides.push_back("runtime.device=" + options.device);
  overrides.insert(overrides.end(), options.set.begin(), options.set.end());
  if (options.split_memory) options.command.share_memory_limit = false;
  if (!options.checkpoint.empty()) options.command.checkpoint = checkpoint_at(options.checkpoint);
  return worker::run_infer(options.command,
                           read_process_settings(options.config, worker::SettingsFor::Inference));
}

void add_load(CLI::App& infer, InferCommand& command) {
  infer.add_option("--batch", command.batch, "Rows of a request, for dimensions that the graph leaves open")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  infer.add_option("--iters", command.requests, "Requests of each client")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  infer
      .add_option("--threads", command.clients, "Clients, a thread each, that send one request after another")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  infer
      .add_option("--timeout", command.timeout_seconds,
                  "Deadline of a request in seconds, including queue time")
      ->check(CLI::Range(1e-6, 1e7))
      ->capture_default_str();
  infer.add_option("--queue", command.queue_capacity, "Requests that may wait for a group; more are refused")
      ->capture_default_str();
  infer
      .add_option("--max-id", command.max_id,
                  "Random integer inputs are below this; at most the rows of the smallest table")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  infer.add_option("--seed", command.seed, "Seed for random inputs and initial variables")
      ->capture_default_str();
  infer.add_flag("--check", command.check, "Compare every answer with a single group's, bit by bit");
  infer.add_option("--out", command.output_directory, "Directory for the answers, <output>.npy each");
}

void add_groups(CLI::App& infer, InferOptions& options) {
  static const std::map<std::string, LaunchThreads> launch{{"pools", LaunchThreads::Pools},
                                                           {"private", LaunchThreads::Private},
                                                           {"shared", LaunchThreads::Shared}};
  InferCommand& command = options.command;
  infer
      .add_option("--groups", command.groups, "Stream groups, each serving one request at a time; default 1")
      ->check(CLI::Range(1, 64));
  infer.add_option("--streams", command.streams, "Compute streams inside a group; default 1")
      ->check(CLI::Range(1, 64));
  infer.add_option("--policy", options.policy, "Who gives nodes their streams inside a group")
      ->check(CLI::IsMember(stream_policy_names()));
  infer
      .add_option("--batch-siblings", options.batch_siblings,
                  "Run independent nodes of one kind and shape as one")
      ->check(CLI::IsMember({"OFF", "WITHIN_SCOPES", "ACROSS_SCOPES"}));
  infer.add_flag("--ignore-scopes", options.ignore_scopes, "Ignore stream ids of nodes (_stream_id)");
  infer.add_flag("--merge-streams", options.merge_streams,
                 "On a device: run a group's copies on the stream that launches its steps");
  infer.add_option("--pools", command.pools, "Launch pools of one thread: group i takes pool i mod P")
      ->check(CLI::Range(1, 64));
  infer.add_option("--pool", command.request_pool,
                   "The launch pool that runs all requests, whatever the group");
  infer
      .add_option("--launch", command.launch,
                  "Who launches requests. pools: launch pools, or the clients; private: threads of each "
                  "group; shared: "
                  "threads of all groups")
      ->transform(CLI::CheckedTransformer(launch).description(""))
      ->transform(CLI::IsMember({"pools", "private", "shared"}).description("pools|private|shared"));
  infer
      .add_option("--launch-threads", command.launch_threads,
                  "Number of launch threads with private or shared; default 1")
      ->check(CLI::Range(1, 256));
  infer.add_flag("--split-memory", options.split_memory,
                 "Split runtime.device_memory_limit equally between groups, instead of sharing it");
}

}  // namespace

void add_infer(CLI::App& app, Action& action) {
  auto options = std::make_shared<InferOptions>();
  CLI::App* infer = app.add_subcommand(
      "infer",
      "Run a graph's prediction for several clients at once, over stream groups that share its weights.\n"
      "Prints requests/s, latencies and how busy each group was; the last line is 'result: {JSON}'.");
  InferCommand& command = options->command;
  infer
      ->add_option(
          "--graph", command.graph,
          "GraphDef, binary or text, e.g. of `braid graph export --inference`, an ONNX model, or the folder "
          "of a SavedModel")
      ->check(CLI::ExistingPath)
      ->required();
  infer
      ->add_option(
          "--input", command.inputs,
          "name=file.npy, cut into batches; name=-1,13 (a shape, -1: the batch) or name for random values.\n"
          "May be repeated; without any, all inputs that the outputs need are random")
      ->allow_extra_args(false);
  add_op_library_option(*infer);
  infer->add_option("--output", command.outputs, "Output tensor name; may be repeated")
      ->allow_extra_args(false)
      ->required();
  CLI::Option* checkpoint = add_checkpoint_option(*infer, options->checkpoint);
  add_untrained_flag(*infer, command.untrained, *checkpoint);
  add_load(*infer, command);
  add_groups(*infer, *options);
  add_device_option(*infer, options->device);
  add_config_option(*infer, options->config);
  infer->add_option("--set", options->set, "Set a field of streams or runtime as in a job: a.b=value")
      ->allow_extra_args(false);
  infer->callback([options, &action] { action = [options] { return run_infer(*options); }; });
}

}  // namespace braid::cli
