// check_job: what a job says that cannot be meant, refused by field before anything is read or started. What
// concerns one field stands in the table (fields.cc), and what fields of the input say together in
// check_input.cc; here is what several others say together.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include "engine/device/sm_shares.h"
#include "proto/job.pb.h"
#include "worker/job/check_input.h"
#include "worker/job/elastic.h"
#include "worker/job/job.h"
#include "worker/job/job_checker.h"
#include "worker/job/mesh.h"
#include "worker/job/optimizers.h"

namespace braid::worker {
namespace {

/// What can be checked before there is anything to stage: the rest of check_stage_options() needs the pools.
void check_staging(const proto::Job& job, const JobChecker& check) {
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

void check_strategy(const proto::Strategy& strategy, const JobChecker& check) {
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

/// Of strategy.shard PARAMETERS, which has the whole step's graph before it.
void check_spread_variables(const proto::Job& job, const JobChecker& check) {
  if (job.strategy().shard() != proto::Strategy::PARAMETERS || job.strategy().average_every_steps() > 0)
    return;
  const auto refuse = [&](bool used, const char* what) {
    check.require(!used, std::string("strategy.shard PARAMETERS does not go with ") + what);
  };
  refuse(job.runtime().recompute().memory_bytes() > 0,
         "runtime.recompute.memory_bytes, which is of a step that has all variables: use "
         "runtime.recompute.scope");
  refuse(job.staging().auto_stage(), "staging.auto_stage");
  refuse(job.model().graph().gradients() == proto::TrainedGraph::KEEP,
         "model.graph.gradients KEEP: what a backward pass reads is seen in gradients that Braid makes; use "
         "REDO");
}

/// How workers share what they learn: what several fields say together.
void check_methods(const proto::Job& job, const JobChecker& check) {
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
                "a checkpoint, after a step that all know: set checkpoint.every_steps");
  check_spread_variables(job, check);
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
void check_pipeline(const proto::Job& job, const JobChecker& check) {
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

void check_evaluation(const proto::Job& job, const JobChecker& check) {
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

void check_weights(const proto::Model& model, const JobChecker& check) {
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
void check_model(const proto::Job& job, const JobChecker& check) {
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

/// Of optimizers that need all of a variable, in whose place a strategy may have parts or servers.
void check_whole_updates(const proto::Job& job, const OptimizerSpec& spec, const std::string& place,
                         const JobChecker& check) {
  if (is_elementwise(spec)) return;
  const proto::Strategy& strategy = job.strategy();
  const bool codes = spec.kind == OptimizerKind::Adam8Bit;
  const auto refuse = [&](bool used, const std::string& what) {
    check.require(!used,
                  place + ".kind " + std::string(optimizer_name(spec.kind)) + " does not go with " + what);
  };
  const auto kind = strategy.kind();
  refuse(kind == proto::Strategy::PS || (kind == proto::Strategy::PS_ALLREDUCE && !codes),
         "strategy.kind " + proto::Strategy::Kind_Name(kind) +
             ", whose servers update elements one by one: use ADAM, or ADAGRAD with row_wise");
  refuse(kind == proto::Strategy::TENSOR || kind == proto::Strategy::EXPERTS,
         "strategy.kind " + proto::Strategy::Kind_Name(kind) +
             ", whose workers have parts of variables: use ADAM");
  refuse(strategy.shard() != proto::Strategy::NOTHING,
         "strategy.shard, whose workers have parts of variables: either alone makes states small");
  refuse(
      codes && strategy.average_every_steps() > 0,
      "strategy.average_every_steps: codes of 8 bits of several workers have no mean; use ADAM or ADAFACTOR");
  refuse(!codes && job.runtime().precision() == proto::Runtime::FP16,
         "runtime.precision FP16, which leaves out elements that overflow: use BF16");
  refuse(!codes && (spec.clip_value > 0 || spec.l1 > 0 || spec.l2 > 0),
         "clip_value, l1 and l2: it bounds updates by clip_threshold, and has weight_decay");
}

void check_offload(const proto::Job& job, const JobChecker& check) {
  const proto::Offload& away = job.runtime().offload();
  check.require(away.scope().empty() || away.memory_bytes() == 0,
                "runtime.offload.scope and memory_bytes are both set: either says what is offloaded");
  check.require(away.memory_bytes() == 0 || job.runtime().recompute().memory_bytes() == 0,
                "runtime.offload.memory_bytes and runtime.recompute.memory_bytes are both set: either "
                "chooses; say the other by its scope");
  if (!away.optimizer_states()) return;
  const auto refuse = [&](bool used, const std::string& what) {
    check.require(!used, "runtime.offload.optimizer_states does not go with " + what);
  };
  const auto kind = job.strategy().kind();
  refuse(
      kind == proto::Strategy::PIPELINE || kind == proto::Strategy::TENSOR ||
          kind == proto::Strategy::EXPERTS,
      "strategy.kind " + proto::Strategy::Kind_Name(kind) + ", whose workers have states of their own parts");
  refuse(job.strategy().shard() != proto::Strategy::NOTHING,
         "strategy.shard, which spreads states over the workers");
  refuse(job.strategy().average_every_steps() > 0,
         "strategy.average_every_steps, whose means read all states");
}

void check_groups(const proto::Job& job, const JobChecker& check) {
  for (int g = 0; g < job.optimizer().group_size(); ++g) {
    const std::string place = fmt::format("optimizer.group[{}]", g);
    check.require(!job.optimizer().group(g).match().empty(), place + ".match is missing");
    check.fields_of_group(job.optimizer().group(g), place);
  }
  const Optimizers all(job);  // refuses patterns that are none
  for (int g = 0; g <= job.optimizer().group_size(); ++g) {
    const OptimizerSpec& spec = all.spec(g);
    const std::string place = g == 0 ? "optimizer" : fmt::format("optimizer.group[{}]", g - 1);
    check_whole_updates(job, spec, place, check);
    const bool from_zero = spec.initial_accumulator == 0;
    check.require(!from_zero || spec.kind != OptimizerKind::Adagrad || spec.adagrad_epsilon > 0,
                  place + ".initial_accumulator 0 needs an epsilon: a gradient of 0 divides 0 by 0");
    check.require(!from_zero || spec.kind != OptimizerKind::Ftrl,
                  place + ".initial_accumulator must be positive for FTRL");
  }
}

}  // namespace

void check_execution(const proto::Job& job) {
  const JobChecker check(job);
  check.fields("streams.");
  check.fields("runtime.");
  check.require(static_cast<std::uint32_t>(job.streams().priorities_size()) <= job.streams().count(),
                "streams.priorities are more than streams.count");
  parse_sm_shares(
      std::vector<std::string>(job.streams().partition().begin(), job.streams().partition().end()));
  visible_devices(job);
}

/// "--set checkpoint.directory=~/runs" would make a directory of the name ~ where the command was typed.
void check_home(const proto::Job& job, const JobChecker& check) {
  const proto::Metrics& metrics = job.metrics();
  for (const auto& [field, path] : {std::pair{"checkpoint.directory", job.checkpoint().directory()},
                                    {"run_directory", job.run_directory()},
                                    {"metrics.trace_file", metrics.trace_file()},
                                    {"metrics.steps_file", metrics.steps_file()},
                                    {"metrics.tensorboard_dir", metrics.tensorboard_dir()}})
    check.require(
        path != "~" && !path.starts_with("~/"),
        fmt::format("{} '{}': ~ is the home directory only where a shell reads it, at the beginning of a "
                    "word; on a command line write $HOME, in a job the whole path, or ./~ for a directory of "
                    "this name",
                    field, path));
}

void check_job(const proto::Job& job) {
  const JobChecker check(job);
  check.fields("");
  check_home(job, check);
  check.require(job.steps() > 0 || job.epochs() > 0, "one of steps and epochs must be positive");
  check_input(job, check);
  check_staging(job, check);
  check_execution(job);
  check_strategy(job.strategy(), check);
  check_methods(job, check);
  check_pipeline(job, check);
  const std::string no_mesh = objection_to_mesh(job);
  check.require(no_mesh.empty(), no_mesh);
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
  check_offload(job, check);
  check.require(
      job.checkpoint().keep_best() == 0 || (job.evaluation().enabled() && job.evaluation().every_steps() > 0),
      "checkpoint.keep_best needs evaluation.every_steps: it goes by the evaluation's metric");
}

}  // namespace braid::worker
