// What one process of a job tells about itself at a moment: the JSON document /status.json, which `braid
// top`, `braid doctor ADDR` and the page read. docs/user/status.md lists its fields; they are only added to.
//
// Totals count from the process's start. Shares and rates are of the latest few seconds (`window_seconds`):
// set_rates() makes them from the totals of two moments. What a role does not have is absent. Thread rule:
// plain records.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace braid::watch {

struct Stream {
  std::string name;   // "compute0"
  std::string cause;  // under which others wait for it; "stage": a thread that makes batches
  double busy_seconds = 0;
  std::map<std::string, double> wait_seconds;  // by cause
  std::uint64_t launches = 0, bytes = 0;
  double busy = 0;                     // share of the window, 0 to 1
  std::map<std::string, double> wait;  // the same, by cause
  double node_seconds = 0;             // mean time of a node in the window; 0: none ran
};

struct StageState {
  std::string name;
  int ready = 0, capacity = 0, threads = 0;
  double occupancy = 0;  // mean part of the capacity in use since the start
  std::uint64_t taken = 0, late = 0;
  double late_share = 0;  // of the window's takes
};

/// Files that are read while their rows are used.
struct InputReads {
  std::uint64_t bytes = 0, direct_bytes = 0;  // the latter past the page cache
  double seconds = 0;                         // in which at least one read was under way
};

struct GpuProcess {
  std::int64_t pid = 0;
  std::string name;
  std::optional<std::uint64_t> memory_bytes;
};

struct GpuStream {
  std::string name;
  double busy = 0;  // of the sampled windows since the start
  std::uint64_t pieces = 0;
};

struct Gpu {
  std::string name;
  std::optional<std::uint64_t> memory_used_bytes, memory_total_bytes;  // of all processes
  std::uint64_t memory_held_bytes = 0;                                 // this process
  std::uint64_t memory_limit_bytes = 0;                                // that this process may hold; 0: none
  std::optional<double> utilization;                                   // 0 to 1
  std::optional<double> power_watts, power_limit_watts, temperature_celsius;
  std::vector<GpuProcess> processes;
  // Of the sampled windows; empty when there was none.
  double sampled_seconds = 0, busy = 0, overlap = 0;
  std::vector<GpuStream> streams;
  // Batches' copies to the device in those windows, and the time of these in which kernels ran, too.
  std::uint64_t input_copies = 0, input_copy_bytes = 0;
  double input_copy_seconds = 0, input_copy_hidden_seconds = 0;
};

struct Server {
  int index = 0;
  std::uint64_t rows_made = 0;
  std::uint64_t pushes = 0, pulls = 0, stale_pushes = 0, rows_pushed = 0, rows_pulled = 0, rounds = 0;
  std::uint64_t bytes_received = 0, bytes_sent = 0, refused = 0;
  int parked_pulls = 0;  // that wait now
  double pushes_per_second = 0, pulls_per_second = 0, rows_per_second = 0, bytes_per_second = 0;
  double stale_share = 0;  // of the window's pushes
};

struct Checkpoints {
  std::uint64_t saved = 0;  // by this process
  std::uint64_t last_step = 0;
  double age_seconds = 0;       // since the last one was whole; of the start where there is none
  double duration_seconds = 0;  // of the last one
  double spent_seconds = 0;     // in all of them
};

struct ProcessUse {
  std::int64_t pid = 0;
  double cpu_seconds = 0, cores_used = 0;  // the latter in the window
  int cores = 0;                           // that it may use
  std::uint64_t resident_bytes = 0, memory_limit_bytes = 0;
  int threads = 0;
};

struct Network {
  std::uint64_t received_bytes = 0, sent_bytes = 0;
  double received_per_second = 0, sent_per_second = 0;
};

/// What a rule found (watch/rules.h).
struct Warning {
  std::string rule;    // "slow_input"
  std::string task;    // whom it is about; empty: the job
  std::string text;    // what is so, with numbers
  std::string advice;  // what to change
};

struct PeerAddress {
  std::string task;     // "worker 1"
  std::string address;  // "host:port" of its page
};

struct Status {
  static constexpr int kVersion = 1;

  std::string task;  // "worker 1", "ps 0"
  std::string role;  // "worker", "ps", "evaluator"
  std::string job;
  std::string host;
  std::string state = "starting";  // loading, training, evaluating, saving, serving, stopping, ended
  double time = 0;                 // Unix seconds
  double uptime_seconds = 0;
  double window_seconds = 0;
  bool leads = false;

  // Of who trains.
  bool trains = false;
  bool synchronous = true;  // workers wait for each other in every step
  std::uint64_t step = 0, target_steps = 0, steps_total = 0, examples_total = 0;
  double steps_per_second = 0, examples_per_second = 0;  // of this process's rows
  double step_seconds = 0;                               // mean in the window
  double step_seconds_total = 0;                         // of all steps, from first issue to last completion
  std::optional<double> loss, learning_rate;
  std::optional<std::uint64_t> skipped_steps;  // by a step whose gradients overflowed; of a scaled loss
  std::map<std::string, double> metrics;       // "auc", "click/auc": of the latest evaluation
  std::uint64_t metrics_step = 0;
  std::int64_t batch_rows = 0, global_batch_rows = 0;
  double idle_seconds_since_step = 0;  // since the last step ended
  double pause_seconds = 0;            // spent on evaluations and checkpoints between steps
  int stage_threads_set = 0;           // staging.num_threads of the job; 0: no stage
  double compute_busy_seconds = 0;     // any compute stream at work
  double compute_busy = 0, overlap = 1;

  std::vector<Stream> streams;
  std::vector<StageState> stages;
  std::optional<InputReads> input_reads;
  std::vector<Gpu> gpus;
  std::optional<Server> server;
  std::optional<Checkpoints> checkpoints;
  ProcessUse process;
  Network network;
  std::vector<Warning> warnings;
  std::vector<PeerAddress> peers;  // all tasks of the job whose pages this process knows, itself too
};

/// The shares and rates of `now` from what was counted since `earlier`.
void set_rates(Status& now, const Status& earlier);

std::string to_json(const Status& status);
/// Fields that are not there, or of another type, have their defaults. Throws: InvalidArgument for a text
/// that is no JSON object.
Status status_from_json(const std::string& text);

}  // namespace braid::watch
