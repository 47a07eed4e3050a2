// What `braid infer` and examples/multistream_inference do: loads a graph, makes a session over stream groups
// from flags and settings, puts it under load, and prints what came of it. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/checkpoint.h"
#include "worker/job/settings.h"

namespace braid::worker {

/// Absent: the settings decide, or the default.
struct InferCommand {
  std::string graph;                 // GraphDef, ONNX model or folder of a SavedModel
  std::vector<std::string> inputs;   // parse_inference_input(); none: the placeholders that the outputs need
  std::vector<std::string> outputs;  // value names
  std::int64_t batch = 1;
  std::uint64_t requests = 100;  // of each client
  int clients = 1;
  std::optional<int> groups;               // default 1
  std::optional<int> streams;              // compute streams inside a group
  std::vector<std::string> job_overrides;  // streams.* and runtime.* of a job: "streams.policy=COST"
  std::optional<LaunchThreads> launch;
  std::optional<int> launch_threads;
  std::optional<int> pools;  // that many launch pools of one thread
  std::optional<int> request_pool;
  std::optional<bool> share_memory_limit;
  std::uint64_t queue_capacity = 1024;
  double timeout_seconds = 60;  // of each request
  std::int64_t max_id = 100;
  std::uint64_t seed = 1;
  std::optional<CheckpointInfo> checkpoint;  // the values of variables
  bool untrained = false;        // without a checkpoint they begin as their nodes say; else they are refused
  bool check = false;            // every answer against a single group's
  std::string output_directory;  // the answers as .npy files
};

/// The exit code: 0 when every request was answered, and as a single group answers where that was to be
/// checked. Throws: InvalidArgument, and what a request throws.
int run_infer(const InferCommand& command, const Settings& settings);

}  // namespace braid::worker
