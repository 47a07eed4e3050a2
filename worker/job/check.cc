// check_job: what a job says that cannot be meant, refused by field before anything is read or started.
#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/thread_limit.h"
#include "proto/job.pb.h"
#include "worker/job/job.h"

namespace braid::worker {
namespace {

/// Far below what clocks count, and for a deadline far above the beat by which servers know who is alive.
constexpr double kMostSeconds = 1e7;

/// Refuses in the name of the job, where it has one.
class Checker {
 public:
  explicit Checker(const proto::Job& job) : job_(job) {}

  void require(bool good, const std::string& what) const {
    if (!good) throw InvalidArgument((job_.name().empty() ? "" : "job '" + job_.name() + "': ") + what);
  }
  void require_not_negative(const char* field, double value) const {
    require_finite(field, value);
    require(value >= 0, fmt::format("{} must not be negative, got {}", field, value));
  }
  void require_positive(const char* field, double value) const {
    require_finite(field, value);
    require(value > 0, fmt::format("{} must be positive, got {}", field, value));
  }
  /// In [0, 1).
  void require_share(const char* field, double value) const {
    require(value >= 0 && value < 1, fmt::format("{} must be in [0, 1), got {}", field, value));
  }
  void require_seconds(const char* field, double seconds, double least) const {
    require(seconds >= least && seconds <= kMostSeconds,
            fmt::format("{} must be from {} to {:.0f}, got {}", field, least, kMostSeconds, seconds));
  }

 private:
  void require_finite(const char* field, double value) const {
    require(std::isfinite(value), fmt::format("{} must be finite, got {}", field, value));
  }

  const proto::Job& job_;
};

void check_model(const proto::Model& model, const Checker& check) {
  check.require(!model.name().empty(), "model.name is missing");
  for (const std::int64_t width : model.hidden())
    check.require(width > 0, fmt::format("model.hidden must be positive, got {}", width));
  check.require_not_negative("model.embedding_dim", static_cast<double>(model.embedding_dim()));
  check.require_not_negative("model.hash_buckets", static_cast<double>(model.hash_buckets()));
  check.require_not_negative("model.classes", static_cast<double>(model.classes()));
  check.require_not_negative("model.embedding_init", model.embedding_init());
  check.require_not_negative("model.experts", static_cast<double>(model.experts()));
  check.require_share("model.dropout", model.dropout());
}

void check_input(const proto::Job& job, const Checker& check) {
  const proto::Input& input = job.input();
  check.require(input.format() != proto::Input::FORMAT_UNSPECIFIED,
                "input.format is missing (IDX, CSV, CRITEO, TFRECORD, TEXT, GENERATOR or SYNTHETIC)");
  check.require(input.global_batch_size() > 0, "input.global_batch_size must be positive");
  check.require_not_negative("input.shuffle_buffer", static_cast<double>(input.shuffle_buffer()));
  check.require_not_negative("input.max_bad_records", static_cast<double>(input.max_bad_records()));
  check.require(input.shard() != proto::Input::FILES || job.steps() > 0,
                "input.shard FILES needs steps: the workers' files may differ in length");
  check.require(input.shard() == proto::Input::ALL ||
                    (input.format() != proto::Input::IDX && input.format() != proto::Input::SYNTHETIC &&
                     input.format() != proto::Input::GENERATOR),
                "input.shard is for CSV, CRITEO, TFRECORD and TEXT");
  check.require(input.format() != proto::Input::GENERATOR || input.generator().rows() > 0,
                "input.format GENERATOR needs input.generator.rows");
  check.require_not_negative("input.generator.test_rows", static_cast<double>(input.generator().test_rows()));
}

/// What can be checked before there is anything to stage: the rest of check_stage_options() needs the pools.
void check_staging(const proto::Job& job, const Checker& check) {
  const proto::Staging& staging = job.staging();
  check.require(staging.capacity() == proto::Staging::AUTO || staging.capacity() >= 1,
                fmt::format("staging.capacity must be at least 1 or AUTO, got {}",
                            static_cast<int>(staging.capacity())));
  check.require(staging.num_threads() == proto::Staging::AUTO || staging.num_threads() >= 1,
                fmt::format("staging.num_threads must be at least 1 or AUTO, got {}",
                            static_cast<int>(staging.num_threads())));
  const int pools = staging.session_stage_subgraph_thread_pool_size();
  const int pool = staging.stage_subgraph_thread_pool_id();
  if (staging.use_stage_subgraph_thread_pool()) {
    check.require(pools > 0,
                  "staging.use_stage_subgraph_thread_pool is set, but no session_stage_subgraph_thread_pool "
                  "is declared");
    check.require(
        pool >= 0 && pool < pools,
        fmt::format("staging.stage_subgraph_thread_pool_id must be in [0, {}], got {}", pools - 1, pool));
  }
  check.require(pool == 0 || staging.use_stage_subgraph_thread_pool(),
                fmt::format("staging.stage_subgraph_thread_pool_id is {}, but use_stage_subgraph_thread_pool "
                            "is not set",
                            pool));
  check.require(staging.mark_target_nodes().empty() || staging.auto_stage(),
                "staging.mark_target_nodes is set, but auto_stage is not");
  const int stream = staging.stage_subgraph_stream_id();
  check.require(
      stream == 0 || staging.stage_multi_stream(),
      fmt::format("staging.stage_subgraph_stream_id is {}, but stage_multi_stream is not set", stream));
  check.require(stream >= 0 && (stream == 0 || static_cast<std::uint32_t>(stream) < job.streams().count()),
                fmt::format("staging.stage_subgraph_stream_id must be in [0, {}], got {}",
                            job.streams().count() - 1, stream));
}

void check_streams(const proto::Streams& streams, const Checker& check) {
  check.require(streams.count() <= 64, "streams.count must be at most 64");
  check.require(static_cast<std::uint32_t>(streams.priorities_size()) <= streams.count(),
                "streams.priorities are more than streams.count");
  for (const int priority : streams.priorities())
    check.require(priority >= 0 && priority <= 5, "streams.priorities must be from 0 to 5");
  check.require_seconds("streams.measure_seconds", streams.measure_seconds(), 0);
}

void check_strategy(const proto::Strategy& strategy, const Checker& check) {
  check.require_seconds("strategy.deadline_seconds", strategy.deadline_seconds(), 0.01);
  check.require_seconds("strategy.start_deadline_seconds", strategy.start_deadline_seconds(), 0.01);
  check.require_not_negative("strategy.bucket_bytes", static_cast<double>(strategy.bucket_bytes()));
  const proto::Tls& tls = strategy.tls();
  const int given = !tls.certificate_file().empty() + !tls.key_file().empty() + !tls.ca_file().empty();
  check.require(given == 0 || given == 3, "strategy.tls needs certificate_file, key_file and ca_file");
  check.require(
      strategy.consistency() == proto::Strategy::BSP || strategy.consistency() == proto::Strategy::ASP,
      "strategy.consistency " + proto::Strategy::Consistency_Name(strategy.consistency()) +
          " is not available in this build; BSP and ASP are");
}

void check_updates(const proto::Job& job, const Checker& check) {
  const proto::Optimizer& optimizer = job.optimizer();
  check.require_positive("optimizer.learning_rate", optimizer.learning_rate());
  check.require_share("optimizer.momentum", optimizer.momentum());
  check.require_share("optimizer.beta1", optimizer.beta1());
  check.require_share("optimizer.beta2", optimizer.beta2());
  check.require_positive("optimizer.epsilon", optimizer.epsilon());
  check.require_positive("optimizer.initial_accumulator", optimizer.initial_accumulator());
  check.require_not_negative("optimizer.weight_decay", optimizer.weight_decay());
  const proto::Schedule& schedule = job.schedule();
  check.require_not_negative("schedule.end_factor", schedule.end_factor());
  if (schedule.kind() != proto::Schedule::STEP_DECAY) return;
  check.require(schedule.every() > 0, "schedule.kind STEP_DECAY needs schedule.every");
  check.require_positive("schedule.factor", schedule.factor());
}

}  // namespace

void check_execution(const proto::Job& job) {
  const Checker check(job);
  check_streams(job.streams(), check);
  check.require(job.runtime().steps_in_flight() <= 8, "runtime.steps_in_flight must be at most 8");
  check.require(job.runtime().intra_op_threads() <= kMostThreads,
                fmt::format("runtime.intra_op_threads must be at most {}, got {}", kMostThreads,
                            job.runtime().intra_op_threads()));
  check.require(job.runtime().device_memory_fraction() >= 0 && job.runtime().device_memory_fraction() <= 1,
                "runtime.device_memory_fraction must be between 0 and 1");
  visible_devices(job);
}

void check_job(const proto::Job& job) {
  const Checker check(job);
  check_model(job.model(), check);
  check.require_not_negative("epochs", job.epochs());
  check.require(job.steps() > 0 || job.epochs() > 0, "one of steps and epochs must be positive");
  check_input(job, check);
  check_staging(job, check);
  check_execution(job);
  check_strategy(job.strategy(), check);
  check_updates(job, check);
  check.require(job.evaluation().batch_size() > 0,
                fmt::format("evaluation.batch_size must be positive, got {}", job.evaluation().batch_size()));
  check.require_seconds("evaluation.patience_seconds", job.evaluation().patience_seconds(), 0.01);
  check.require_seconds("checkpoint.every_seconds", job.checkpoint().every_seconds(), 0);
  check.require(job.checkpoint().keep_best() == 0 ||
                    (!job.evaluation().disabled() && job.evaluation().every_steps() > 0),
                "checkpoint.keep_best needs evaluation.every_steps: it goes by the evaluation's metric");
  check.require_seconds("metrics.sample_every_seconds", job.metrics().sample_every_seconds(), 0);
  check.require_seconds("metrics.progress_seconds", job.metrics().progress_seconds(), 0);
  check.require(job.metrics().sample_window_seconds() >= 0 && job.metrics().sample_window_seconds() <= 1,
                "metrics.sample_window_seconds must be between 0 and 1");
}

}  // namespace braid::worker
