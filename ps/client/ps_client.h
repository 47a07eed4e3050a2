// A worker's (or an evaluator's) end of the parameter servers. Splits each pull and push over the servers,
// one request a server; sends gradients from the caller's memory and lands values in it; retries what a lost
// connection interrupted with the same sequence number, so that a push applies once; and keeps saying that
// the worker is alive.
//
// Thread rule: safe from any thread. `done` callbacks are called exactly once, on I/O threads, and must not
// block; until then the caller's memory stays where it is and unchanged. Throws (all blocking calls):
// Unavailable naming server index and address, DeadlineExceeded, Cancelled, InvalidArgument.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/checkpoint.h"
#include "base/error.h"
#include "base/optim.h"
#include "base/wait_context.h"
#include "comm/transport/transport.h"
#include "ps/table_set.h"

namespace braid::ps {

class ShardPlan;

/// A whole dense table. `table`: its place in TableSet::dense.
struct DensePull {
  int table = 0;
  std::span<float> out;  // [elements]
};

/// Rows of a sparse table. `table`: its place in TableSet::sparse.
struct SparsePull {
  int table = 0;
  std::span<const std::int64_t> keys;  // repetitions travel once
  float* rows = nullptr;               // [keys, dim] f32, row-major
  bool unique = false;                 // the caller knows that no key occurs twice; spares the look
};

/// Distinct keys of some tables of one dim, by server and table, as order_keys() gives them
/// (ps/client/ordered_keys.h): requests take them as they lie there.
struct OrderedKeys {
  std::span<const int> tables;                // their places in TableSet::sparse, each once
  const std::int64_t* keys = nullptr;         // those of server 0's tables in their order, of server 1's, ...
  std::span<const std::int64_t> counts = {};  // [servers, tables]
};

/// Rows that came of a pull of what has changed, where they arrived. Good as long as `memory` is.
struct ChangedRows {
  struct Row {
    std::uint32_t key = 0;  // its place among the pull's keys
    const float* values = nullptr;
  };
  struct OfServer {
    std::vector<Row> rows;  // in any order
    std::shared_ptr<const std::byte> memory;
  };
  std::vector<OfServer> servers;
};

/// Rows by such keys: rows [sum of counts, dim] f32, in the order of the keys.
struct OrderedPull {
  OrderedKeys keys;
  float* rows = nullptr;
  /// Set, by key, of all groups or of none: the caller has a row with its slots as it has updated it in step
  /// known - 1 (modulo 2^32), and gets it if others have changed it in that step too or since; 0: it has not,
  /// and gets it. What comes is told in `changed`, and nothing is written to `rows` (BSP).
  const std::uint32_t* known = nullptr;
  ChangedRows* changed = nullptr;
};
struct OrderedPush {
  OrderedKeys keys;
  const float* gradients = nullptr;
};

/// What a pull says where all workers are to end, and nobody was asked to stop.
inline constexpr float kFinishVote = 1.0F / (1 << 16);

struct PullRequest {
  std::vector<DensePull> dense;
  std::vector<SparsePull> sparse;  // none together with `ordered`
  std::uint64_t min_version =
      0;               // BSP: the pull waits until this many rounds are applied to the tables it names
  bool insert = true;  // false: keys without a row give their initial values and stay without (evaluation)
  /// [1] f32: 1 when a push of a round below min_version voted to stop (BSP), or a server is to end;
  /// kFinishVote when such a push (ASP: any) voted to finish; else 0.
  /// All servers are asked then, also those that have none of the values.
  float* stop_vote = nullptr;
  std::vector<OrderedPull> ordered = {};
  /// Not 0: pulls the ordered rows at once, as they are, and again what a round below min_version has changed
  /// when all of these are applied (BSP). The number tells such pulls of this client that are under way
  /// apart. ASP, and where most of such rows were pulled again lately (ps/client/ahead_choice.h): as without.
  std::uint64_t ahead = 0;
  bool slots = false;      // a row is its values and slots; where the tables are declared as cached
  bool names_all = false;  // the pull is of all the tables of `ordered`, also where they have no keys in it
};

struct DensePush {
  int table = 0;                    // its place in TableSet::dense
  std::span<const float> gradient;  // [elements], all of the table's
};

struct SparsePush {
  int table = 0;  // its place in TableSet::sparse
  std::span<const std::int64_t> keys;
  const float* gradients = nullptr;  // [keys, dim] f32; rows of one key are added in order of position
  bool unique = false;
};

/// A part of a step's gradients. In BSP each worker pushes each table once a step (a sparse one even without
/// keys), in as many sequences as it likes; round `step` of a table is applied when all workers have pushed
/// it.
struct PushRequest {
  std::uint64_t step = 0;
  std::uint32_t sequence = 0;  // different for each push of the step
  UpdateParams params;         // BSP: equal on all workers; grad_scale multiplies the sum over workers
  std::uint32_t examples = 0;  // behind these gradients; counted
  std::vector<DensePush> dense;
  std::vector<SparsePush> sparse;
  bool votes_to_stop = false;             // pulls of the same tables learn it, see PullRequest
  bool votes_to_finish = false;           // the same
  std::vector<OrderedPush> ordered = {};  // none together with `sparse`
};

struct ServerStats {
  int server = 0;
  std::string address;
  std::uint64_t version = 0;  // rounds applied
  bool started = false;
  std::map<std::string, std::uint64_t> counters;
};

/// What came of the rows that were pulled ahead.
struct AheadCounts {
  std::uint64_t rows = 0;
  std::uint64_t repaired = 0;  // of these, pulled again
  std::uint64_t unknown = 0;   // pulls of one server that it did not know any more, and that were made again
};

/// What the servers answered to this client's pushes, each counted once a server.
struct PushCounts {
  std::uint64_t applied = 0;
  std::uint64_t duplicate = 0;
  std::uint64_t dropped = 0;
  std::uint64_t retried = 0;  // sent again after a lost connection
  std::uint64_t late = 0;     // TIMED: in a later round than its own
};

class PsClient {
 public:
  struct Options {
    std::vector<std::string> servers;  // gRPC addresses, in the order of the cluster spec
    int worker = 0;                    // kObserver (-1): pulls only
    int workers = 1;
    std::string job;
    std::uint64_t incarnation = 0;  // equal on all workers; raised when the whole job starts again
    std::chrono::milliseconds deadline{30000};  // of heartbeats and retries; calls have their own
    bool same_host_socket = true;               // prefer the server's Unix socket when it is of this host
    int connections = 1;                        // data connections a server
    comm::Security security{};
  };
  using Done = std::function<void(ErrorPtr)>;

  /// Registers with all servers. Waits for those that are not up yet and names them when the deadline comes.
  static std::unique_ptr<PsClient> connect(Options options, const WaitContext& wait);
  ~PsClient();  // what is in flight completes with Cancelled
  PsClient(const PsClient&) = delete;
  PsClient& operator=(const PsClient&) = delete;

  /// Every worker calls it, with equal sets. REQUIRES: before the calls below.
  void create_tables(const TableSet& set, const WaitContext& wait);
  const TableSet& tables() const;
  int servers() const;
  const ShardPlan& plan() const;

  /// The chief gives the initial values of each dense table; with the last one the job starts.
  void set_dense(std::string_view name, std::span<const float> values, const WaitContext& wait);
  /// Whether all servers have their initial values already, from a chief before this one; it need not set
  /// them.
  bool started(const WaitContext& wait);
  /// Waits until the chief has set or restored everything; the chief of a set without dense tables starts the
  /// job here. Result: rounds applied to every table (BSP), the step to begin with. A worker process that
  /// takes the place of a lost one makes that step again: what the other has pushed counts, and is a
  /// duplicate.
  std::uint64_t wait_initialized(const WaitContext& wait);

  /// Fills the request's spans. `done` gets null, or the error; until then they belong to the client.
  void pull_async(PullRequest request, Done done, const WaitContext& wait);
  void pull(PullRequest request, const WaitContext& wait);
  /// `done` is called when every server has taken its part, or answered that it has it already or drops it,
  /// which push_counts() tells apart.
  void push_async(PushRequest request, Done done, const WaitContext& wait);
  void push(PushRequest request, const WaitContext& wait);
  /// Rows whose home this worker is (TableSet::cached, ASP) go back to the servers, with their slots.
  /// `rows.gradients`: [keys, width + 1], the last number the low half of the step that used the row last, as
  /// it is. Within a server and table keys may lie in any order, each once. leave() waits for it.
  void write_rows_async(std::vector<OrderedPush> rows, Done done, const WaitContext& wait);
  /// A whole dense table as it is now, [elements], whatever the round.
  void read_dense(std::string_view name, std::span<float> out, const WaitContext& wait);

  /// The chief: the job cannot begin. The other workers get `why` from the servers in the place of any
  /// answer.
  void refuse(const ErrorRecord& why, const WaitContext& wait);
  /// The chief: each server writes its shard into `directory`, which all of them see; `run` is the id of the
  /// run that it is of. BSP: waits until `step` rounds are applied, and the shards are of exactly that state.
  /// Result: for the manifest.
  std::vector<ShardInfo> checkpoint(const std::filesystem::path& directory, std::uint64_t step,
                                    const WaitContext& wait, const std::string& run = "");
  /// The chief: the tables of a checkpoint, written by any number of servers, replace what is there; the job
  /// is started. Result: its step.
  std::uint64_t restore(const std::filesystem::path& directory, const WaitContext& wait);

  /// On: pulls and pushes are made on trial, for their time: on tables of their own, without waiting for
  /// rounds or values. REQUIRES: create_tables(); nothing is under way.
  void set_trial(bool on);
  /// Of all servers, in their order.
  std::vector<ServerStats> stats(const WaitContext& wait);
  /// Since connect().
  PushCounts push_counts() const;
  AheadCounts ahead_counts() const;

  /// This worker pushes no more: waits for its pushes under way, then rounds stop waiting for it.
  void leave(const WaitContext& wait);
  /// Ends the servers. `job_terminated`: by SIGTERM, after a checkpoint; they tell whoever starts them again.
  void shutdown(const WaitContext& wait, bool job_terminated = false);
  /// This worker is asked to stop. Before the job has its initial values all others end, too, with Cancelled;
  /// later this changes nothing.
  void stop_before_start(const WaitContext& wait);
  /// After an error: whether a server is lost, that is, silent or another instance than at the registration.
  /// The others are told, so that no process of the job stays behind. Result: "server 0 (10.0.0.7:2222)",
  /// empty when all answer. Throws nothing.
  std::string report_lost_server(const WaitContext& wait);

 private:
  struct Impl;
  explicit PsClient(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid::ps
