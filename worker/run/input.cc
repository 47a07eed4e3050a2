#include "worker/run/input.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "base/log.h"
#include "engine/input/files/data_file.h"
#include "proto/job.pb.h"
#include "worker/evaluation/shared_evaluation.h"
#include "worker/input/data_stream.h"
#include "worker/input/input_files.h"
#include "worker/input/input_staging.h"
#include "worker/input/job_model.h"
#include "worker/process/stop_signal.h"
#include "worker/run/batch_queue.h"
#include "worker/run/hooks.h"
#include "worker/run/replicas.h"
#include "worker/step/training_program.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {

namespace {

/// A later checkpoint has all files of an earlier one, also one that is damaged.
std::vector<TakenFile> files_of_checkpoint(const RunContext& run, const std::optional<CheckpointRun>& id) {
  if (!run.resumes() || !run.peers.leader() || !id || run.job.checkpoint().directory().empty()) return {};
  const std::vector<CheckpointInfo> all = CheckpointStore(run.job.checkpoint().directory()).list(*id);
  if (all.empty()) return {};
  const auto found = all.back().meta.attributes.find(kInputFiles);
  return found == all.back().meta.attributes.end() ? std::vector<TakenFile>{} : taken_files(found->second);
}

/// What this replica reads, all others of its process do.
bool reads_alike(const RunContext& run) {
  return run.options.replicas && run.job.input().shard() == proto::Input::ALL &&
         !run.job.input().has_follow();
}

void check_towers(const ModelGraph& model, int replicas) {
  if (model.towers == 0 || model.towers == replicas) return;
  throw InvalidArgument(fmt::format(
      "the graph has towers for {0} GPUs, and there {2} {1} {3}: set strategy.mirrored.devices: {0}",
      model.towers, replicas, replicas == 1 ? "is" : "are", replicas == 1 ? "replica" : "replicas"));
}

/// Whether the workers measure together: they can, and all have the test files.
bool shares_test_rows(const RunContext& run, const WaitContext& wait) {
  if (run.options.hooks || !run.peers.communicator || !may_share_evaluation(run.job, run.peers.world))
    return false;
  if (reads_files(run.job) && run.job.input().test_files().empty()) return false;
  std::string missing;
  try {
    if (reads_files(run.job))
      for (const std::filesystem::path& file : test_files(run.job, run.options.data_dir)) stamp_of(file);
  } catch (const InvalidArgument& error) {
    missing = error.message();
  }
  const bool shares = all_agree(missing.empty(), *run.peers.communicator, wait);
  if (!missing.empty() && !run.peers.leader())
    log_warning("evaluation: the leader measures alone, as this worker has no test files: {}", missing);
  if (shares && run.peers.leader()) log_info("evaluation: {} workers share the test rows", run.peers.world);
  return shares;
}

/// Whether workers share a batch by the work that its rows make (input.equal_work): where one of `columns` is
/// ragged. Streamed rows only where the job says so, as each worker then reads all of them.
bool shares_equal_work(const proto::Job& job, const JobData& data, const std::vector<std::string>& columns) {
  const proto::Input& input = job.input();
  if (!(input.has_equal_work() ? input.equal_work() : data.stream == nullptr)) return false;
  return std::ranges::any_of(columns, [&](const std::string& name) {
    const TableColumn* const column = data.train->find(name);
    return column && column->ragged();
  });
}

}  // namespace

RunInput load_rows(const RunContext& run, const std::optional<CheckpointRun>& id, const WaitContext& wait) {
  const Peers& peers = run.peers;
  const RowReader reader = row_reader(run.job, peers.rank, peers.world);
  RunInput input;
  input.shares_test = shares_test_rows(run, wait);
  const bool evaluates = (peers.leader() || input.shares_test) && run.job.evaluation().enabled();
  const RunHooks* const hooks = run.options.hooks;
  if (hooks && hooks->train)
    input.data = {.train = hooks->train, .test = evaluates ? hooks->test : nullptr};
  else {
    const FollowRun follow{peers, run.stop, files_of_checkpoint(run, id)};
    const auto read = [&] {
      return load_data(run.job, run.options.data_dir, evaluates, {reader.rank, reader.world},
                       peers.leader() ? progress_mode() : ProgressMode::Off, &follow);
    };
    input.data =
        reads_alike(run) ? run.options.replicas->rows(run.options.replica, read, run.stop.token()) : read();
  }
  const bool shares_batches = run.job.input().shard() == proto::Input::ALL;
  input.model = job_model(run.job, *input.data.train, shares_batches ? reader.world : 1);
  check_towers(input.model, peers.world);
  check_labels(run.job, input.model, *input.data.train);
  if (input.data.test) check_labels(run.job, input.model, *input.data.test);
  input.data.stream = with_checked_labels(run.job, input.model, std::move(input.data.stream));
  if (hooks)
    for (const auto& [name, value] : hooks->initial) input.model.initial.insert_or_assign(name, value);
  input.total_steps = total_steps(run.job, *input.data.train);
  return input;
}

void share_rows(const RunContext& run, RunInput& input) {
  const Peers& peers = run.peers;
  input.share = batch_share(run.job, peers.rank, peers.world);
  BatchOptions batches = training_batches(run.job, peers.rank, peers.world);
  batches.allocate = batch_memory(run.runtime);
  batches.equal_work = shares_equal_work(run.job, input.data, input.model.columns);
  batches.work = input.model.row_work;
  if (peers.queue) {
    if (!input.share.even())
      throw InvalidArgument(fmt::format(
          "input.shard DYNAMIC has batches of global_batch_size / workers rows, but {} is no multiple of {}",
          input.share.global_rows, peers.world));
    input.taken = std::make_unique<TakenBatches>(
        peers.queue,
        TakenBatchesOptions{.worker = peers.rank,
                            .deadline = std::chrono::duration_cast<std::chrono::nanoseconds>(
                                std::chrono::duration<double>(run.job.strategy().deadline_seconds())),
                            .stop = run.stop.token()});
  }
  input.batcher = make_batcher(run.job, input.data, input.model.columns, batches, input.taken.get());
  if (input.taken) {
    const std::int64_t window = input.data.stream ? rows_of_unit(run.job) / batches.global_batch : 0;
    input.queue = batch_queue_plan(run.job, input.batcher->batches_per_epoch(), window, peers.world);
    input.total_steps = steps_of(input.queue);
  }
}

RunInput load_input(const RunContext& run, const std::optional<CheckpointRun>& id, const WaitContext& wait) {
  RunInput input = load_rows(run, id, wait);
  share_rows(run, input);
  return input;
}

}  // namespace braid::worker
