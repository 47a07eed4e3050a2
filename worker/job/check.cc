// check_job: what a job says that cannot be meant, refused by field before anything is read or started. What
// concerns one field stands in the table (fields.cc); here is what several say together.
#include <fmt/format.h>
#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "engine/input/files/kafka.h"
#include "proto/job.pb.h"
#include "worker/job/elastic.h"
#include "worker/job/field_path.h"
#include "worker/job/fields.h"
#include "worker/job/job.h"
#include "worker/job/mesh.h"
#include "worker/job/optimizers.h"

namespace braid::worker {
namespace {

/// Refuses in the name of the job, where it has one.
class Checker {
 public:
  explicit Checker(const proto::Job& job) : job_(job) {}

  void require(bool good, const std::string& what) const {
    if (!good) throw InvalidArgument((job_.name().empty() ? "" : "job '" + job_.name() + "': ") + what);
  }

  /// What the table says of the fields that begin so.
  void fields(std::string_view prefix) const {
    for (const JobField& field : job_fields())
      if (!field.is_of_column() && field.path().starts_with(prefix)) check(field);
  }

  /// What it says of the ranges of an optimizer's fields holds for those of a group.
  void fields_of_group(const proto::OptimizerGroup& group, const std::string& place) const {
    constexpr std::string_view kPrefix = "optimizer.";
    for (const JobField& field : job_fields()) {
      if (!field.range() || !field.path().starts_with(kPrefix)) continue;
      const std::string name = field.path().substr(kPrefix.size());
      if (!group.GetDescriptor()->FindFieldByName(name)) continue;
      for (const double value : numbers_at(group, name))
        in_range(fmt::format("{}.{}", place, name), *field.range(), value);
    }
  }

  /// The same of a column of the schema.
  void fields_of_column(const proto::Column& column) const {
    constexpr std::string_view kPrefix = "input.columns.";
    for (const JobField& field : job_fields()) {
      if (!field.range() || !field.is_of_column()) continue;
      const std::string name = field.path().substr(kPrefix.size());
      if (!is_set(column, name)) continue;
      for (const double value : numbers_at(column, name))
        in_range(fmt::format("input.columns: {} of column '{}'", name, column.name()), *field.range(), value);
    }
  }

 private:
  void check(const JobField& field) const {
    if (!is_set(job_, field.path())) {
      require(!field.is_needed(), field.path() + " is missing" + known(field.path()));
      if (const Reason& reason = field.needed_because())
        if (const std::string why = reason({job_}); !why.empty())
          require(false, why + " needs " + field.path());
      return;
    }
    if (!field.range()) return;
    for (const double value : numbers_at(job_, field.path())) in_range(field.path(), *field.range(), value);
  }

  void in_range(const std::string& path, const Range& range, double value) const {
    const bool no_number = std::isinf(range.most) && !std::isfinite(value);
    require(!no_number, fmt::format("{} must be finite, got {}", path, value));
    require(range.contains(value), fmt::format("{} {}, got {}", path, range.says, value));
  }

  /// " (IDX, CSV or CRITEO)" of an enum.
  std::string known(const std::string& path) const {
    const std::vector<std::string> names = enum_names(job_, path);
    std::string text;
    for (std::size_t i = 0; i < names.size(); ++i)
      text += (i == 0 ? "" : i + 1 == names.size() ? " or " : ", ") + names[i];
    return text.empty() ? "" : " (" + text + ")";
  }

  const proto::Job& job_;
};

/// input.shard DYNAMIC is of use where workers need not wait for each other.
void check_dynamic_shard(const proto::Job& job, const Checker& check) {
  if (job.input().shard() != proto::Input::DYNAMIC) return;
  const proto::Strategy& strategy = job.strategy();
  const bool alone = strategy.kind() == proto::Strategy::LOCAL;
  const std::string kind = proto::Strategy::Kind_Name(strategy.kind());
  check.require(
      alone || strategy.kind() == proto::Strategy::PS,
      "input.shard DYNAMIC gives fast workers more batches than slow ones, but under strategy.kind " + kind +
          " all workers make each step together: use PS with consistency ASP");
  check.require(
      alone || strategy.consistency() == proto::Strategy::ASP,
      "input.shard DYNAMIC gives fast workers more batches than slow ones, but under strategy.consistency " +
          proto::Strategy::Consistency_Name(strategy.consistency()) +
          " workers wait for each other: use ASP");
  check.require(!job.input().carry_remainder(),
                "input.shard DYNAMIC ends each epoch with a whole batch: it takes no input.carry_remainder");
  check.require(!job.input().has_follow(),
                "input.shard DYNAMIC is for files that are all there: it takes no input.follow");
}

void check_kafka(const proto::Job& job, const Checker& check) {
  const proto::Input& input = job.input();
  const proto::Input::Format format = input.format();
  for (const std::string& name : input.test_files())
    check.require(!is_kafka(name), "input.test_files: kafka:// has no end: take test rows from files");
  const bool any = std::ranges::any_of(input.train_files(), is_kafka);
  check.require(any || (input.follow().begin() == proto::Follow::EARLIEST && input.follow().records() == 0),
                "input.follow.begin and records are for kafka:// in train_files");
  if (!any) return;
  for (const std::string& name : input.train_files()) {
    try {
      kafka_name(name);
    } catch (const InvalidArgument& error) {
      check.require(false, "input.train_files: " + error.message());
    }
  }
  check.require(input.has_follow(), "input.train_files: kafka:// needs input.follow { }");
  check.require(
      format == proto::Input::CSV || format == proto::Input::CRITEO || format == proto::Input::TFRECORD ||
          format == proto::Input::TEXT,
      "input.train_files: values of kafka:// are CSV, CRITEO, TEXT or TFRECORD (a tf.train.Example)");
  check.require(!input.csv().header(),
                "input.csv.header: values of kafka:// are records, whose fields are in the schema's order");
}

void check_input(const proto::Job& job, const Checker& check) {
  const proto::Input& input = job.input();
  for (const proto::Column* column : columns_of(job)) {
    check.fields_of_column(*column);
    check.require(!column->has_scale() || (std::isfinite(column->scale()) && column->scale() != 0),
                  fmt::format("input.columns: scale of column '{}' must be finite and not 0, got {}",
                              column->name(), column->scale()));
  }
  check.require(input.shard() != proto::Input::FILES || job.steps() > 0,
                "input.shard FILES needs steps: the workers' files may differ in length");
  check_dynamic_shard(job, check);
  check_kafka(job, check);
  check.require(input.shard() == proto::Input::ALL || input.shard() == proto::Input::DYNAMIC ||
                    (input.format() != proto::Input::IDX && input.format() != proto::Input::SYNTHETIC &&
                     input.format() != proto::Input::GENERATOR),
                "input.shard is for CSV, CRITEO, NPY, TFRECORD, PARQUET, TEXT and MLPERF_DLRM");
  check.require(input.read() != proto::Input::STREAM || input.shard() != proto::Input::ROWS,
                "input.shard ROWS is for rows in memory: with input.read STREAM workers share "
                "input.stream.virtual_shards");
  if (input.has_follow()) {
    check.require(
        job.steps() > 0,
        "input.follow needs steps, the most that the job may have: nobody knows how many rows will come");
    check.require(can_stream(input),
                  "input.follow is for CSV, CRITEO, TFRECORD, PARQUET, TEXT and MLPERF_DLRM");
    check.require(input.train_files_size() == 1,
                  "input.follow takes one name in train_files: a directory, a pattern in one, or kafka://");
    check.require(input.read() != proto::Input::MEMORY && input.shard() == proto::Input::ALL &&
                      input.shuffle_buffer() == 0 && !input.carry_remainder(),
                  "input.follow streams its rows to all workers: it takes no input.read MEMORY, shard, "
                  "shuffle_buffer and carry_remainder");
    check.require(
        !has_servers(job),
        "input.follow is not for strategy.kind PS and PS_ALLREDUCE, whose workers may start again one "
        "by one, and would then disagree on the files");
  }
  check.require(input.read() != proto::Input::STREAM || can_stream(input),
                "input.read STREAM is for CSV, CRITEO, TFRECORD, PARQUET, TEXT and MLPERF_DLRM, not " +
                    proto::Input::Format_Name(input.format()));
}

/// What can be checked before there is anything to stage: the rest of check_stage_options() needs the pools.
void check_staging(const proto::Job& job, const Checker& check) {
  const proto::Staging& staging = job.staging();
  check.require(staging.capacity() >= proto::Staging::AUTO,
                fmt::format("staging.capacity must be at least 1 or AUTO, got {}",
                            static_cast<int>(staging.capacity())));
  check.require(staging.num_threads() >= proto::Staging::AUTO,
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

void check_strategy(const proto::Strategy& strategy, const Checker& check) {
  const proto::Tls& tls = strategy.tls();
  const int given = !tls.certificate_file().empty() + !tls.key_file().empty() + !tls.ca_file().empty();
  check.require(given == 0 || given == 3, "strategy.tls needs certificate_file, key_file and ca_file");
  const bool timed = strategy.consistency() == proto::Strategy::TIMED;
  check.require(strategy.kind() != proto::Strategy::PS_ALLREDUCE || !timed,
                "strategy.consistency TIMED goes on without late workers, and the all-reduce of PS_ALLREDUCE "
                "waits for them: use PS, or BSP, ASP or SSP");
  check.require(
      strategy.ps().cache_rows() == 0 || !timed,
      "strategy.ps.cache_rows: under TIMED a worker does not know what became of its gradients: use "
      "BSP, ASP or SSP");
}

/// How workers share what they learn: what several fields say together.
void check_methods(const proto::Job& job, const Checker& check) {
  const proto::Strategy& strategy = job.strategy();
  if (!is_all_reduce(job)) return;
  check.require(strategy.kind() != proto::Strategy::MIRRORED || strategy.backend() != proto::Strategy::MPI,
                "strategy.kind MIRRORED: ranks of MPI are processes, and replicas are threads of one: leave "
                "strategy.backend out, or use ALLREDUCE");
  const bool compresses = strategy.compression().kind() != proto::Compression::NONE;
  check.require(!compresses || strategy.reduction() == proto::Strategy::MEAN ||
                    strategy.reduction() == proto::Strategy::SUM ||
                    strategy.reduction() == proto::Strategy::WORKER_MEAN,
                "strategy.compression is for sums: strategy.reduction " +
                    proto::Strategy::Reduction_Name(strategy.reduction()) +
                    " looks at each worker's elements");
  const bool waits_for_clock = !job.checkpoint().directory().empty() && job.checkpoint().every_seconds() > 0;
  const bool shards = strategy.shard() != proto::Strategy::NOTHING;
  check.require(!shards || strategy.reduction() <= proto::Strategy::WORKER_MEAN,
                "strategy.shard is for sums, not for strategy.reduction " +
                    proto::Strategy::Reduction_Name(strategy.reduction()));
  check.require(!shards || !compresses || strategy.shard() == proto::Strategy::OPTIMIZER,
                "strategy.compression needs whole gradients: strategy.shard OPTIMIZER, or none");
  check.require(!(compresses || shards) || !waits_for_clock,
                "checkpoint.every_seconds: with strategy.compression or strategy.shard all workers meet for "
                "a checkpoint, after "
                "a step that all know: set checkpoint.every_steps");
  const std::uint64_t every = strategy.average_every_steps();
  if (every == 0) return;
  check.require(
      !waits_for_clock,
      "checkpoint.every_seconds: with strategy.average_every_steps checkpoints are at means, after a "
      "step that all know: set checkpoint.every_steps");
  const auto at_means = [&](const char* field, std::uint64_t steps) {
    check.require(
        steps % every == 0,
        fmt::format("{} is {}, which must be a multiple of strategy.average_every_steps, {}: between "
                    "these the workers' variables differ",
                    field, steps, every));
  };
  if (!job.checkpoint().directory().empty())
    at_means("checkpoint.every_steps", job.checkpoint().every_steps());
  at_means("evaluation.every_steps", job.evaluation().every_steps());
}

/// What needs the rows, the gradients or the graph of a whole step on each worker.
void check_pipeline(const proto::Job& job, const Checker& check) {
  if (job.strategy().kind() != proto::Strategy::PIPELINE) return;
  const std::int64_t parts = job.strategy().pipeline().micro_batches();
  const std::int64_t rows = job.input().global_batch_size();
  check.require(
      rows % parts == 0,
      fmt::format(
          "strategy.pipeline.micro_batches is {}: a batch of {} rows (input.global_batch_size) is not "
          "cut into so many equal parts",
          parts, rows));
  for (int s = 0; s < job.strategy().pipeline().stage_size(); ++s)
    check.require(!job.strategy().pipeline().stage(s).match().empty(),
                  fmt::format("strategy.pipeline.stage[{}].match is missing", s));
  const auto refuse = [&](bool used, const char* what) {
    check.require(!used, std::string("strategy.kind PIPELINE does not go with ") + what);
  };
  refuse(job.optimizer().accumulate_steps() > 1,
         "optimizer.accumulate_steps: strategy.pipeline.micro_batches are the parts whose gradients add up");
  refuse(job.optimizer().clip_worker_norm() > 0,
         "optimizer.clip_worker_norm: no worker has all of a gradient; use optimizer.clip_norm");
  refuse(job.input().shard() != proto::Input::ALL, "input.shard: all workers read the same rows");
  refuse(job.input().has_follow(), "input.follow: workers could disagree on the files");
  refuse(job.runtime().precision() == proto::Runtime::FP16,
         "runtime.precision FP16, whose loss scale looks at all gradients: use BF16");
  refuse(job.runtime().recompute().memory_bytes() > 0,
         "runtime.recompute.memory_bytes, which is of a whole step: use runtime.recompute.scope");
  refuse(job.staging().auto_stage(), "staging.auto_stage");
  refuse(job.model().graph().gradients() == proto::TrainedGraph::KEEP,
         "model.graph.gradients KEEP: it needs gradients that Braid makes; use REDO");
  refuse(
      job.streams().count() > 1 && job.streams().policy() == proto::Streams::AUTO && job.streams().measure(),
      "streams.measure: workers have different steps; AUTO goes by modelled costs there");
  refuse(!job.checkpoint().directory().empty() && job.checkpoint().every_seconds() > 0,
         "checkpoint.every_seconds: all workers write a checkpoint together, after a step that all know; set "
         "checkpoint.every_steps");
}

void check_evaluation(const proto::Job& job, const Checker& check) {
  const proto::Evaluation& evaluation = job.evaluation();
  const bool may_stop = evaluation.early_stopping().patience() > 0 || evaluation.has_target();
  const char* const field =
      evaluation.has_target() ? "evaluation.target" : "evaluation.early_stopping.patience";
  check.require(!may_stop || (evaluation.enabled() && evaluation.every_steps() > 0),
                fmt::format("{} needs evaluation.every_steps: it goes by evaluations", field));
  const proto::Input& input = job.input();
  const bool has_test = input.format() == proto::Input::SYNTHETIC ||
                        (input.format() == proto::Input::GENERATOR ? input.generator().test_rows() > 0
                                                                   : !input.test_files().empty());
  check.require(!may_stop || has_test,
                fmt::format("{} needs test data: {}", field,
                            input.format() == proto::Input::GENERATOR ? "input.generator.test_rows"
                                                                      : "input.test_files"));
}

void check_weights(const proto::Model& model, const Checker& check) {
  const auto& weights = model.class_weights();
  check.require(
      weights.empty() || std::any_of(weights.begin(), weights.end(), [](double w) { return w > 0; }),
      "model.class_weights are all 0");
}

/// "4100" or "4100-4110".
bool are_ports(std::string_view text) {
  const auto port = [](std::string_view part) {
    int value = 0;
    const auto parsed = std::from_chars(part.data(), part.data() + part.size(), value);
    return parsed.ec == std::errc{} && parsed.ptr == part.data() + part.size() && value <= 65535 ? value : 0;
  };
  const auto dash = text.find('-');
  const int first = port(text.substr(0, dash));
  return first > 0 && (dash == std::string_view::npos || port(text.substr(dash + 1)) >= first);
}

/// Of a graph as the model: what can be said before its file is read.
void check_model(const proto::Job& job, const Checker& check) {
  const proto::Model& model = job.model();
  check.require(!model.name().empty() || model.has_graph(), "model.name is missing, and so is model.graph");
  if (!model.has_graph()) return;
  const proto::TrainedGraph& graph = model.graph();
  check.require(model.name().empty(), "model.name and model.graph are both set: a job has one model");
  check.require(!graph.file().empty(), "model.graph.file is missing");
  check.require(graph.loss().empty() == graph.has_attach(),
                graph.has_attach() ? "model.graph.loss and model.graph.attach are both set"
                                   : "model.graph.loss is missing: a value of the graph, or attach { kind: "
                                     "SIGMOID prediction: \"...\" label: \"...\" }");
  check.require(!graph.has_attach() || !graph.attach().prediction().empty() || !graph.prediction().empty(),
                "model.graph.attach.prediction is missing");
  const bool keeps = graph.gradients() == proto::TrainedGraph::KEEP;
  const proto::Recompute& again = job.runtime().recompute();
  check.require(!keeps || (again.scope().empty() && again.memory_bytes() == 0),
                "runtime.recompute needs gradients that Braid makes: model.graph.gradients REDO");
  check.require(!keeps || !graph.train_op().empty(), "model.graph.gradients KEEP needs model.graph.train_op");
  check.require(!keeps || job.optimizer().accumulate_steps() <= 1,
                "optimizer.accumulate_steps needs gradients that Braid makes: model.graph.gradients REDO");
  check.require(graph.initial() != proto::TrainedGraph::FILE || !graph.initial_file().empty() ||
                    std::filesystem::is_directory(graph.file()),
                "model.graph.initial FILE needs model.graph.initial_file");
  for (int f = 0; f < graph.feeds_size(); ++f) {
    const proto::GraphFeed& feed = graph.feeds(f);
    const std::string place = fmt::format("model.graph.feeds[{}]", f);
    check.require(!feed.value().empty(), place + ".value is missing");
    check.require(feed.column().empty() != feed.constant().empty(),
                  place + " ('" + feed.value() + "') needs one of column and constant");
    check.require(feed.eval().empty() || feed.column().empty(), place + ".eval is for constants");
  }
}

void check_groups(const proto::Job& job, const Checker& check) {
  for (int g = 0; g < job.optimizer().group_size(); ++g) {
    const std::string place = fmt::format("optimizer.group[{}]", g);
    check.require(!job.optimizer().group(g).match().empty(), place + ".match is missing");
    check.fields_of_group(job.optimizer().group(g), place);
  }
  const Optimizers all(job);  // refuses patterns that are none
  for (int g = 0; g <= job.optimizer().group_size(); ++g) {
    const OptimizerSpec& spec = all.spec(g);
    const std::string place = g == 0 ? "optimizer" : fmt::format("optimizer.group[{}]", g - 1);
    const bool from_zero = spec.initial_accumulator == 0;
    check.require(!from_zero || spec.kind != OptimizerKind::Adagrad || spec.adagrad_epsilon > 0,
                  place + ".initial_accumulator 0 needs an epsilon: a gradient of 0 divides 0 by 0");
    check.require(!from_zero || spec.kind != OptimizerKind::Ftrl,
                  place + ".initial_accumulator must be positive for FTRL");
  }
}

}  // namespace

bool can_stream(const proto::Input& input) {
  const proto::Input::Format format = input.format();
  return format == proto::Input::CSV || format == proto::Input::CRITEO || format == proto::Input::TFRECORD ||
         format == proto::Input::PARQUET || format == proto::Input::TEXT ||
         format == proto::Input::MLPERF_DLRM;
}

void check_execution(const proto::Job& job) {
  const Checker check(job);
  check.fields("streams.");
  check.fields("runtime.");
  check.require(static_cast<std::uint32_t>(job.streams().priorities_size()) <= job.streams().count(),
                "streams.priorities are more than streams.count");
  visible_devices(job);
}

void check_job(const proto::Job& job) {
  const Checker check(job);
  check.fields("");
  check.require(job.steps() > 0 || job.epochs() > 0, "one of steps and epochs must be positive");
  check_input(job, check);
  check_staging(job, check);
  check_execution(job);
  check_strategy(job.strategy(), check);
  check_methods(job, check);
  check_pipeline(job, check);
  const std::string no_tensor = objection_to_tensor(job);
  check.require(no_tensor.empty(), no_tensor);
  const std::string no_elastic = objection_to_elastic(job);
  check.require(no_elastic.empty(), no_elastic);
  const std::string& ports = job.strategy().data_ports();
  check.require(
      ports.empty() || are_ports(ports),
      "strategy.data_ports '" + ports + "' is neither a port, such as 4100, nor a range, 4100-4110");
  check.require(job.runtime().recompute().scope().empty() || job.runtime().recompute().memory_bytes() == 0,
                "runtime.recompute.scope and memory_bytes are both set: either says what is computed again");
  check_evaluation(job, check);
  check_model(job, check);
  check_weights(job.model(), check);
  check_groups(job, check);
  check.require(
      job.checkpoint().keep_best() == 0 || (job.evaluation().enabled() && job.evaluation().every_steps() > 0),
      "checkpoint.keep_best needs evaluation.every_steps: it goes by the evaluation's metric");
}

}  // namespace braid::worker
