// The table of fields. worker/job/fields.h says what the words of a line mean.
#include "worker/job/fields.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include "base/optim.h"
#include "base/thread_limit.h"
#include "proto/job.pb.h"
#include "worker/job/field_reasons.h"
#include "worker/job/job.h"

namespace braid::worker {
namespace {

using proto::Column;
using proto::Compression;
using proto::Input;
using proto::Optimizer;
using proto::Schedule;
using proto::Strategy;
using proto::Streams;

JobField field(const char* path) { return JobField(path); }
JobField column(const char* name) { return JobField(std::string("input.columns.") + name); }

/// A file or directory of a run: where the job does not say it, `name` in its run_directory.
JobField in_run_directory(const char* path, const char* name, std::string* (*text)(proto::Job&)) {
  return JobField(path).by_default("in run_directory", [name, text](proto::Job& job) {
    if (!job.run_directory().empty())
      *text(job) = (std::filesystem::path(job.run_directory()) / name).string();
  });
}

template <class... More>
void add(std::vector<JobField>& table, More&&... more) {
  (table.push_back(std::forward<More>(more)), ...);
}

void add_model(std::vector<JobField>& table) {
  add(table,  //
      field("model.name"),
      field("model.hidden").in(positive()).default_elsewhere("the model's own").idle(no_hidden_layers()),
      field("model.embedding_dim").in(not_negative()).idle(no_embeddings()),
      field("model.hash_buckets")
          .in(not_negative())
          .idle(no_tables_or_columns())
          .idle(columns_have_buckets()),
      field("model.classes").in(not_negative()).idle(no_classes()),
      field("model.sparse_tables").idle(no_embeddings()),
      field("model.embedding_init")
          .in(not_negative())
          .default_elsewhere("the model's own")
          .idle(no_embeddings()),
      field("model.experts").in(not_negative()).default_elsewhere("4").idle(no_experts()),
      field("model.tasks").default_elsewhere("of mmoe: click, purchase").idle(no_experts()),
      field("model.class_weights").in(not_negative()).default_elsewhere("all 1").idle(no_labels()),
      field("model.max_rows").in(not_negative()).by_default(0).idle(cuts_no_tables()),
      field("model.bottom").in(positive()).default_elsewhere("512, 256").idle(model_is_not("dlrm_v2")),
      field("model.cross_layers").in(not_negative()).default_elsewhere("3").idle(model_is_not("dlrm_v2")),
      field("model.cross_rank").in(not_negative()).default_elsewhere("512").idle(model_is_not("dlrm_v2")),
      field("model.layers").in(not_negative()).default_elsewhere("3").idle(model_is_not("hstu")),
      field("model.heads").in(not_negative()).default_elsewhere("4").idle(model_is_not("hstu")),
      field("model.mixture").idle(model_is_not("transformer")),
      field("model.mixture.experts").in(not_negative()),
      field("model.mixture.choices").by_default(2).in(positive()).idle(no_mixture()),
      field("model.mixture.capacity_factor").by_default(1.25).in(not_negative()).idle(no_mixture()),
      field("model.mixture.balance").by_default(0.01).in(not_negative()).idle(no_mixture()),
      field("model.mixture.groups").by_default(1).in(positive()).idle(no_mixture()),
      field("model.dropout").in(share()).idle(model_is_graph()));
}

void add_model_graph(std::vector<JobField>& table) {
  add(table,  //
      field("model.graph.file"),
      field("model.graph.inference_file").default_elsewhere("`file` with the eval values of feeds"),
      field("model.graph.loss"), field("model.graph.attach.kind"),
      field("model.graph.attach.prediction").default_elsewhere("model.graph.prediction"),
      field("model.graph.attach.label").default_elsewhere("\"label\""), field("model.graph.prediction"),
      field("model.graph.feeds"), field("model.graph.feeds.value"), field("model.graph.feeds.column"),
      field("model.graph.feeds.constant"), field("model.graph.feeds.eval").default_elsewhere("`constant`"),
      field("model.graph.label").default_elsewhere("\"label\", or that of attach"),
      field("model.graph.trainable").default_elsewhere("what the file says"), field("model.graph.frozen"),
      field("model.graph.promote").default_elsewhere("beside the parameters of an ONNX model"),
      field("model.graph.updates").default_elsewhere("UPDATE_OPS, or what assigns"),
      field("model.graph.gradients"), field("model.graph.train_op").idle(gradients_are_redone()),
      field("model.graph.initial"), field("model.graph.initial_file").idle(initial_is_graph()),
      field("model.graph.sparse").default_elsewhere("all that only gathers read"));
}

void add_input(std::vector<JobField>& table) {
  add(table,  //
      field("input.format").needed(), field("input.train_files").idle(reads_no_files()),
      field("input.test_files").idle(reads_no_files()),
      field("input.global_batch_size").needed().in(from_to(1, 1 << 30)),
      field("input.shuffle").by_default(true).was_not("no_shuffle"),
      field("input.csv.separator").default_elsewhere("\",\"").idle(format_is_not(Input::CSV)),
      field("input.csv.header").idle(format_is_not(Input::CSV)),
      field("input.csv.comment").idle(format_is_not(Input::CSV)),
      field("input.csv.columns")
          .idle(has_no_columns())
          .idle(when([](const FieldScope& at) { return !at.job.input().columns().empty(); },
                     "input.columns is set")),
      field("input.max_bad_records").in(not_negative()).idle(reads_no_files()).idle(has_no_bad_records()),
      field("input.columns").idle(has_no_columns()),
      field("input.shuffle_buffer")
          .in(not_negative())
          .idle(when(
              [](const FieldScope& at) { return at.job.input().has_shuffle() && !at.job.input().shuffle(); },
              "input.shuffle is false"))
          .idle(when([](const FieldScope& at) { return at.job.input().read() == Input::STREAM; },
                     "input.read is STREAM, which has input.stream.window_rows")),
      field("input.carry_remainder"), field("input.shard"),
      field("input.take_batches")
          .default_elsewhere("16")
          .in(positive())
          .idle(when([](const FieldScope& at) { return at.job.input().shard() != Input::DYNAMIC; },
                     "input.shard is not DYNAMIC"))
          .idle(when([](const FieldScope& at) { return at.job.strategy().kind() == Strategy::LOCAL; },
                     "strategy.kind is LOCAL")),
      field("input.generator").idle(format_is_not(Input::GENERATOR)),
      field("input.generator.rows")
          .needed_for(when([](const FieldScope& at) { return at.job.input().format() == Input::GENERATOR; },
                           "input.format GENERATOR"))
          .in(positive()),
      field("input.generator.test_rows").in(not_negative()),
      field("input.criteo").idle(format_is_not(Input::CRITEO)), field("input.criteo.dense"),
      field("input.read").idle(reads_no_files()), field("input.stream").idle(is_in_memory()),
      field("input.stream.from_bytes")
          .default_elsewhere("1 GiB")
          .in(positive())
          .idle(when([](const FieldScope& at) { return at.job.input().read() == Input::STREAM; },
                     "input.read is STREAM")),
      field("input.stream.window_rows").default_elsewhere("262144").in(positive()),
      field("input.stream.virtual_shards").default_elsewhere("16").in(from_to(1, 65536)),
      field("input.stream.block_bytes").default_elsewhere("1 MiB").in(at_least(64)),
      field("input.stream.memory_bytes").default_elsewhere("256 MiB").in(positive()),
      field("input.stream.threads").default_elsewhere("2").in(from_to(1, 256)),
      field("input.stream.index_directory"), field("input.stream.direct_reads"),
      field("input.equal_work").default_elsewhere("true, where rows are streamed false"),
      field("input.follow").idle(reads_no_files()),
      field("input.follow.poll_seconds").default_elsewhere("1").in(seconds(0.01)),
      field("input.follow.idle_seconds").default_elsewhere("3600").in(seconds(0.01)),
      field("input.follow.stop_file").default_elsewhere("\"_END\""), field("input.follow.begin"),
      field("input.follow.records").default_elsewhere("8192").in(from_to(1, 1 << 20)),
      field("input.statistics_file").idle(nothing_asks_for_statistics()));
}

void add_columns(std::vector<JobField>& table) {
  add(table,  //
      column("name"), column("kind"),
      column("buckets").default_elsewhere("model.hash_buckets").idle(has_no_buckets()),
      column("positive").idle(kind_is_not(Column::LABEL)), column("shift").idle(kind_is_not(Column::NUMERIC)),
      column("scale").default_elsewhere("1").idle(kind_is_not(Column::NUMERIC)),
      column("log1p").idle(kind_is_not(Column::NUMERIC)), column("missing").idle(has_no_missing_number()),
      column("vocabulary").idle(is_skipped()), column("vocabulary_file").idle(is_skipped()),
      column("length").default_elsewhere("1").idle(is_skipped()),
      column("list_separator").default_elsewhere("\"|\"").idle(is_skipped()).idle(is_no_list()),
      column("output")
          .default_elsewhere("\"dense\", \"sparse\", \"label\", \"weight\" by kind")
          .idle(is_skipped()),
      column("missing_word").idle(is_skipped()), column("ragged").idle(is_no_feature()),
      column("pooling").idle(is_no_list()), column("query").idle(has_no_attention()),
      column("weights").idle(is_not_ragged()), column("weight_separator").idle(is_not_ragged()),
      column("batch_ids").default_elsewhere("from the data").in(positive()).idle(is_not_ragged()),
      column("table").idle(kind_is_not(Column::CATEGORICAL)),
      column("embedding_dim")
          .default_elsewhere("model.embedding_dim")
          .in(positive())
          .idle(kind_is_not(Column::CATEGORICAL)),
      column("embedding_init")
          .default_elsewhere("model.embedding_init")
          .in(positive())
          .idle(kind_is_not(Column::CATEGORICAL)),
      column("field").default_elsewhere("`name`").idle(is_skipped()),
      column("cross").idle(kind_is_not(Column::CATEGORICAL)),
      column("borders").idle(kind_is_not(Column::CATEGORICAL)),
      column("quantiles").in(at_least(2)).idle(kind_is_not(Column::CATEGORICAL)),
      column("time_part").idle(is_no_feature()), column("scaling").idle(kind_is_not(Column::NUMERIC)),
      column("vocabulary_words").default_elsewhere("all").in(positive()).idle(has_no_vocabulary_file()));
}

void add_staging(std::vector<JobField>& table) {
  constexpr const char* kPool = "staging.session_stage_subgraph_thread_pool";
  add(table,  //
      field("staging.capacity").default_elsewhere("AUTO on a GPU, else 1").idle(not_staged()),
      field("staging.num_threads").default_elsewhere("AUTO on a GPU, else 1").idle(not_staged()),
      field("staging.enabled").by_default(true).was_not("disabled"),
      field("staging.timeout_millis").by_default(300000).idle(nothing_is_staged()),
      field("staging.on_timeout").idle(not_staged()),
      field("staging.use_stage_subgraph_thread_pool").idle(nothing_is_staged()),
      field("staging.stage_subgraph_thread_pool_id"),
      field(kPool).idle(nothing_is_staged()).idle(no_stage_pool()).tf("session_stage_subgraph_thread_pool"),
      JobField(std::string(kPool) + ".inter_op_threads_num").default_elsewhere("1"),
      JobField(std::string(kPool) + ".intra_op_threads_num").default_elsewhere("1"),
      JobField(std::string(kPool) + ".global_name"),
      field("staging.stage_multi_stream")
          .idle(stage_is_on_host())
          .idle(stage_only_reads())
          .idle_on_host_in_training(has_stage_stream())
          .tf("graph_options.optimizer_options.stage_multi_stream"),
      field("staging.stage_subgraph_stream_id")
          .idle(stage_only_reads())
          .idle_on_host_in_training(has_stage_stream()),
      field("staging.auto_stage"), field("staging.mark_target_nodes"));
}

void add_streams(std::vector<JobField>& table) {
  add(table,  //
      field("streams.count")
          .by_default(1)
          .in(at_most(64))
          .tf("graph_options.rewrite_options.multi_stream_opts")
          .tf("graph_options.rewrite_options.use_multi_stream")
          .tf("TF_GPU_STREAM_GROUP_COUNT"),
      field("streams.policy")
          .idle(one_stream_needs_no_policy())
          .tf("graph_options.rewrite_options.multi_stream_opts"),
      field("streams.keep_all_events").tf("TF_REDUCE_STREAM_WAIT"),
      field("streams.rules_file")
          .idle(policy_is_none())
          .idle(auto_has_one_stream())
          .tf("TF_STREAM_FROM_FILE"),
      field("streams.forward_propagation")
          .idle(policy_is_none())
          .idle(one_stream())
          .tf("TF_MULTI_STREAM_ALLOW_FORWARD_PROPAGATION"),
      field("streams.measure")
          .by_default("true, under PIPELINE false",
                      [](proto::Job& job) {
                        job.mutable_streams()->set_measure(job.strategy().kind() != Strategy::PIPELINE);
                      })
          .was_not("no_measuring")
          .idle(one_stream())
          .idle(policy_does_not_measure()),
      field("streams.measure_seconds")
          .by_default(1)
          .in(seconds(0))
          .idle(one_stream())
          .idle(policy_does_not_measure())
          .idle(measuring_is_off()),
      field("streams.batch_siblings").by_default("WITHIN_SCOPES"),
      field("streams.merge_copies").tf("TF_GPU_STREAM_MERGE"), field("streams.priorities").in(from_to(0, 5)),
      field("streams.memory_waits")
          .by_default(true)
          .was_not("no_memory_waits")
          .idle(policy_is_none())
          .idle(one_stream()),
      field("streams.ignore_scopes"), field("streams.partition").idle_on_host(),
      field("streams.scopes_win").idle(no_rules()).idle(scopes_are_ignored()));
}

void add_strategy(std::vector<JobField>& table) {
  add(table,  //
      field("strategy.kind"), field("strategy.consistency").idle(strategy_has_no_servers()),
      field("strategy.backend").idle(strategy_has_no_communicator()),
      field("strategy.bucket_bytes")
          .by_default(1 << 20, "1 MiB")
          .in(not_negative())
          .idle(strategy_is_local())
          .idle(strategy_is_one_pipeline()),
      field("strategy.deadline_seconds").by_default(60).in(seconds(0.01)).idle(strategy_is_local()),
      field("strategy.start_deadline_seconds").by_default(120).in(seconds(0.01)),
      field("strategy.server_idle_seconds")
          .by_default("300, or start_deadline_seconds if that is longer",
                      [](proto::Job& job) {
                        auto& strategy = *job.mutable_strategy();
                        strategy.set_server_idle_seconds(std::max(300.0, strategy.start_deadline_seconds()));
                      })
          .in(seconds(0.01))
          .idle(strategy_has_no_servers()));
}

void add_servers(std::vector<JobField>& table) {
  add(table,  //
      field("strategy.ps").idle(strategy_has_no_servers()), field("strategy.ps.pull_ahead"),
      field("strategy.ps.table_threads").in(from_to(0, 256)),
      field("strategy.ps.shared_memory").by_default(true),
      field("strategy.ps.cache_rows").in(from_to(0, 1 << 30)),
      field("strategy.ps.cache_age")
          .by_default(8)
          .in(at_most(1 << 20))
          .idle(when([](const FieldScope& at) { return at.job.strategy().ps().cache_rows() == 0; },
                     "strategy.ps.cache_rows is not set"))
          .idle(when(
              [](const FieldScope& at) {
                const auto its = at.job.strategy().consistency();
                return its != Strategy::ASP && its != Strategy::SSP;
              },
              "strategy.consistency is neither ASP nor SSP")));
}

/// Of the strategies that divide a model.
void add_shared_models(std::vector<JobField>& table) {
  add(table,  //
      field("strategy.hybrid").idle(strategy_is_not(Strategy::HYBRID)),
      field("strategy.hybrid.memory_bytes").in(not_negative()), field("strategy.hybrid.ids"),
      field("strategy.hybrid.table"), field("strategy.hybrid.table.match"),
      field("strategy.hybrid.table.plan"), field("strategy.hybrid.table.hot_rows").in(not_negative()),
      field("strategy.pipeline").idle(strategy_is_not(Strategy::PIPELINE)),
      field("strategy.pipeline.micro_batches").by_default(4).in(at_most(256)),
      field("strategy.pipeline.schedule"), field("strategy.pipeline.stage"),
      field("strategy.pipeline.stage.match"), field("strategy.mesh").idle(strategy_has_no_mesh()),
      field("strategy.mesh.data")
          .default_elsewhere("workers / tensor (experts, pipeline), or 1 where that is absent too")
          .in(at_most(65536)),
      field("strategy.mesh.tensor")
          .default_elsewhere("workers / data")
          .in(at_most(65536))
          .idle(strategy_is_not(Strategy::TENSOR)),
      field("strategy.mesh.experts")
          .default_elsewhere("workers / data")
          .in(at_most(65536))
          .idle(strategy_is_not(Strategy::EXPERTS)),
      field("strategy.mesh.pipeline")
          .default_elsewhere("workers / data")
          .in(at_most(65536))
          .idle(strategy_is_not(Strategy::PIPELINE)),
      field("strategy.experts").idle(strategy_is_not(Strategy::EXPERTS)), field("strategy.experts.match"),
      field("strategy.experts.automatic").by_default(true),
      field("strategy.tensor").idle(strategy_is_not(Strategy::TENSOR)), field("strategy.tensor.layer"),
      field("strategy.tensor.layer.match"), field("strategy.tensor.layer.split"),
      field("strategy.tensor.automatic").by_default(true),
      field("strategy.tensor.min_width").by_default(256).in(at_least(1)), field("strategy.tensor.sequence"),
      field("strategy.mirrored").idle(strategy_is_not(Strategy::MIRRORED)),
      field("strategy.mirrored.devices").in(from_to(0, 1024)));
}

/// How gradients meet.
void add_exchange(std::vector<JobField>& table) {
  add(table,  //
      field("strategy.wire").idle(strategy_has_no_communicator()).idle(strategy_is_one_pipeline()),
      field("strategy.reduction").idle(workers_all_reduce_nothing()).idle(workers_average()),
      field("strategy.trim")
          .by_default(1)
          .in(at_most(1 << 20))
          .idle(when(
              [](const FieldScope& at) { return at.job.strategy().reduction() != Strategy::TRIMMED_MEAN; },
              "strategy.reduction is not TRIMMED_MEAN")));
}

void add_late_gradients(std::vector<JobField>& table) {
  add(table,  //
      field("strategy.staleness").by_default(1).in(at_most(1 << 20)).idle(consistency_is_not(Strategy::SSP)),
      field("strategy.timed.timeout_millis")
          .by_default(100)
          .in(at_most(1 << 30))
          .idle(consistency_is_not(Strategy::TIMED)),
      field("strategy.timed.quorum").idle(consistency_is_not(Strategy::TIMED)),
      field("strategy.timed.late").idle(consistency_is_not(Strategy::TIMED)),
      field("strategy.timed.late_scale")
          .by_default(0.5)
          .in(positive())
          .idle(consistency_is_not(Strategy::TIMED)),
      field("strategy.timed.max_late_share")
          .by_default(1)
          .in(from_to(0, 1))
          .idle(consistency_is_not(Strategy::TIMED)));
}

void add_workers(std::vector<JobField>& table) {
  add(table,  //
      field("strategy.shard").idle(workers_all_reduce_nothing()).idle(workers_average()),
      field("strategy.shard_min_elements")
          .by_default(4096)
          .in(at_least(1))
          .idle(when([](const FieldScope& at) { return at.job.strategy().shard() != Strategy::PARAMETERS; },
                     "strategy.shard is not PARAMETERS")),
      field("strategy.sync_batch_norm").idle(workers_all_reduce_nothing()), field("strategy.elastic"),
      field("strategy.elastic.min_workers").default_elsewhere("1").in(from_to(0, 1024)),
      field("strategy.elastic.max_workers").in(from_to(0, 1024)),
      field("strategy.elastic.wait_seconds").default_elsewhere("120").in(seconds(0.01)),
      field("strategy.average_every_steps").idle(workers_all_reduce_nothing()),
      field("strategy.compression.kind").idle(workers_all_reduce_nothing()).idle(workers_average()),
      field("strategy.compression.block")
          .by_default(256)
          .in(from_to(1, 1 << 20))
          .idle(compression_is_not(Compression::INT8)),
      field("strategy.compression.keep")
          .by_default(0.01)
          .in(from_to(0, 1))
          .idle(compression_is_not(Compression::TOP_K)),
      field("strategy.compression.rank")
          .by_default(4)
          .in(from_to(1, 256))
          .idle(compression_is_not(Compression::POWER_SGD)));
}

void add_security(std::vector<JobField>& table) {
  add(table,  //
      field("strategy.token_file").idle(strategy_is_local()).idle(backend_is_mpi()),
      field("strategy.insecure").idle(strategy_is_local()).idle(backend_is_mpi()),
      field("strategy.data_ports").default_elsewhere("any").idle(strategy_is_local()).idle(backend_is_mpi()),
      field("strategy.tls").idle(strategy_is_local()).idle(backend_is_mpi()),
      field("strategy.tls.certificate_file"), field("strategy.tls.key_file"), field("strategy.tls.ca_file"));
}

void add_optimizer(std::vector<JobField>& table) {
  const Reason no_adam = optimizer_is_none_of({Optimizer::ADAM, Optimizer::ADAMW, Optimizer::ADAM_8BIT}),
               no_adafactor = optimizer_is_none_of({Optimizer::ADAFACTOR}),
               no_ftrl = optimizer_is_none_of({Optimizer::FTRL}),
               no_rmsprop = optimizer_is_none_of({Optimizer::RMSPROP});
  add(table,  //
      field("optimizer.kind").idle(graph_has_optimizers()),
      field("optimizer.learning_rate")
          .by_default("1 where model.graph.gradients is KEEP",
                      [](proto::Job& job) {
                        if (!graph_has_optimizers()({job}).empty())
                          job.mutable_optimizer()->set_learning_rate(1);
                      })
          .needed()
          .in(positive()),
      field("optimizer.momentum")
          .by_default("0.9, of RMSPROP 0",
                      [](proto::Job& job) {
                        Optimizer& optimizer = *job.mutable_optimizer();
                        optimizer.set_momentum(optimizer.kind() == Optimizer::RMSPROP ? 0.0F : 0.9F);
                      })
          .in(share())
          .idle(optimizer_is_none_of({Optimizer::MOMENTUM, Optimizer::RMSPROP})),
      field("optimizer.nesterov").idle(optimizer_is_none_of({Optimizer::MOMENTUM})),
      field("optimizer.beta1")
          .by_default("0.9, of ADAFACTOR 0",
                      [](proto::Job& job) {
                        Optimizer& optimizer = *job.mutable_optimizer();
                        optimizer.set_beta1(optimizer.kind() == Optimizer::ADAFACTOR ? 0.0F : 0.9F);
                      })
          .in(share())
          .idle(optimizer_is_none_of(
              {Optimizer::ADAM, Optimizer::ADAMW, Optimizer::ADAM_8BIT, Optimizer::ADAFACTOR})),
      field("optimizer.beta2").by_default(0.999).in(share()).idle(no_adam),
      field("optimizer.epsilon")
          .by_default("1e-7, of ADAGRAD 0, of ADAFACTOR 1e-30",
                      [](proto::Job& job) {
                        Optimizer& optimizer = *job.mutable_optimizer();
                        optimizer.set_epsilon(optimizer.kind() == Optimizer::ADAGRAD     ? 0.0F
                                              : optimizer.kind() == Optimizer::ADAFACTOR ? 1e-30F
                                                                                         : 1e-7F);
                      })
          .in(not_negative())
          .idle(optimizer_is_none_of({Optimizer::ADAM, Optimizer::ADAMW, Optimizer::ADAM_8BIT,
                                      Optimizer::RMSPROP, Optimizer::ADAGRAD, Optimizer::ADAFACTOR})),
      field("optimizer.initial_accumulator")
          .by_default("0.1, of RMSPROP 0",
                      [](proto::Job& job) {
                        Optimizer& optimizer = *job.mutable_optimizer();
                        optimizer.set_initial_accumulator(optimizer.kind() == Optimizer::RMSPROP ? 0.0F
                                                                                                 : 0.1F);
                      })
          .in(not_negative())
          .idle(optimizer_is_none_of({Optimizer::ADAGRAD, Optimizer::FTRL, Optimizer::RMSPROP})),
      field("optimizer.weight_decay")
          .by_default("0, of ADAMW 0.01",
                      [](proto::Job& job) {
                        Optimizer& optimizer = *job.mutable_optimizer();
                        optimizer.set_weight_decay(optimizer.kind() == Optimizer::ADAMW ? 0.01F : 0.0F);
                      })
          .in(not_negative()),
      field("optimizer.rho").by_default(0.9).in(share()).idle(no_rmsprop),
      field("optimizer.centered").idle(no_rmsprop),
      field("optimizer.learning_rate_power").by_default(-0.5).in(negative()).idle(no_ftrl),
      field("optimizer.l1").in(not_negative()), field("optimizer.l2").in(not_negative()),
      field("optimizer.l2_shrinkage").in(not_negative()).idle(no_ftrl),
      field("optimizer.clip_value").in(not_negative()), field("optimizer.clip_norm").in(not_negative()),
      field("optimizer.clip_worker_norm").in(not_negative()),
      field("optimizer.row_wise").idle(optimizer_is_none_of({Optimizer::ADAGRAD})),
      field("optimizer.clip_threshold").by_default(1).in(positive()).idle(no_adafactor),
      field("optimizer.decay_exponent").by_default(0.8).in(share()).idle(no_adafactor),
      field("optimizer.least_scale").by_default(0.001).in(positive()).idle(no_adafactor),
      field("optimizer.scale_by_weights").by_default(true).idle(no_adafactor),
      // Each part is a copy of the step's graph.
      field("optimizer.accumulate_steps").by_default(1).in(at_most(256)), field("optimizer.group"));
}

void add_optimizer_groups(std::vector<JobField>& table) {
  // What is said of a group is said of the optimizer that its variables have (optimizers.h).
  for (const char* name : {"match", "frozen", "kind", "learning_rate", "momentum", "nesterov", "beta1",
                           "beta2", "epsilon", "initial_accumulator", "weight_decay", "rho", "centered",
                           "learning_rate_power", "l1", "l2", "l2_shrinkage", "clip_value", "row_wise"})
    table.emplace_back(std::string("optimizer.group.") + name);
}

void add_schedule(std::vector<JobField>& table) {
  const Reason no_decay = schedule_is_none_of({Schedule::LINEAR_DECAY, Schedule::COSINE_DECAY});
  const Reason no_step_decay = schedule_is_none_of({Schedule::STEP_DECAY});
  add(table,  //
      field("schedule.kind"), field("schedule.warmup_steps"),
      field("schedule.end_factor").in(not_negative()).idle(no_decay),
      field("schedule.factor").in(positive()).needed_for(step_decay()).idle(no_step_decay),
      field("schedule.every").needed_for(step_decay()).idle(no_step_decay));
}

void add_results(std::vector<JobField>& table) {
  add(table,  //
      field("evaluation.metric").default_elsewhere("what the model is judged by"),
      field("evaluation.batch_size")
          .by_default("the global batch size",
                      [](proto::Job& job) {
                        job.mutable_evaluation()->set_batch_size(job.input().global_batch_size());
                      })
          .in(positive())
          .idle(no_test_data()),
      field("evaluation.every_steps").idle(no_evaluation()).idle(no_test_data()),
      field("evaluation.enabled").by_default(true).was_not("disabled"),
      field("evaluation.patience_seconds").by_default(3600).in(seconds(0.01)).idle(no_test_data()),
      field("evaluation.metrics").default_elsewhere("by what the model predicts").idle(no_test_data()),
      field("evaluation.group_column").idle(no_test_data()),
      field("evaluation.k").default_elsewhere("10").in(at_least(1)).idle(no_metric_at_k()),
      field("evaluation.early_stopping.patience"),
      field("evaluation.early_stopping.min_delta").by_default(0).in(not_negative()).idle(no_patience()),
      field("evaluation.target"),  //
      in_run_directory("checkpoint.directory", "checkpoints",
                       [](proto::Job& job) { return job.mutable_checkpoint()->mutable_directory(); }),
      field("checkpoint.every_steps").idle(no_checkpoints()),
      field("checkpoint.keep").by_default(3).idle(no_checkpoints()),
      field("checkpoint.every_seconds").in(seconds(0)).idle(no_checkpoints()),
      field("checkpoint.keep_best").idle(no_checkpoints()),  //
      field("metrics.listen"),
      in_run_directory("metrics.trace_file", "trace/%r.json",
                       [](proto::Job& job) { return job.mutable_metrics()->mutable_trace_file(); }),
      in_run_directory("metrics.steps_file", "metrics.jsonl",
                       [](proto::Job& job) { return job.mutable_metrics()->mutable_steps_file(); }),
      field("metrics.progress_seconds").in(seconds(0)).default_elsewhere("5 (0.2 on a terminal)"),
      field("metrics.sampling").by_default(true).was_not("no_sampling"),
      field("metrics.sample_every_seconds").by_default(5).in(seconds(0)).idle(no_sampling()),
      field("metrics.sample_window_seconds").by_default(0.05).in(from_to(0, 1)).idle(no_sampling()),
      field("metrics.mllog"), field("metrics.mllog_submitter").default_elsewhere("\"none\"").idle(no_mllog()),
      field("metrics.mllog_closed").idle(no_mllog()),
      in_run_directory("metrics.tensorboard_dir", "tensorboard",
                       [](proto::Job& job) { return job.mutable_metrics()->mutable_tensorboard_dir(); }));
}

void add_hooks(std::vector<JobField>& table) {
  add(table,  //
      field("run_directory"), field("hooks.on_step"),
      field("hooks.every_steps").by_default(100).idle(no_step_hook()),
      field("hooks.on_checkpoint").idle(no_checkpoints()), field("hooks.on_end"),
      field("hooks.deadline_seconds").by_default(60).in(seconds(0.01)).idle(no_hooks()));
}

void add_runtime(std::vector<JobField>& table) {
  add(table,  //
      field("runtime.intra_op_threads")
          .in(at_most(kMostThreads))
          .default_elsewhere("usable cores / processes on this host")
          .tf("intra_op_parallelism_threads"),
      field("runtime.steps_in_flight").by_default(2).in(at_most(8)), field("runtime.device"),
      field("runtime.device_memory_limit").idle_on_host_in_training(),
      field("runtime.tf32").by_default(true).was_not("no_tf32").idle(precision_says_tf32()).idle_on_host(),
      field("runtime.graphs").by_default(true).was_not("no_graphs").idle_on_host(),
      field("runtime.check_kernels").idle_on_host(),
      field("runtime.device_memory_fraction")
          .in(from_to(0, 1))
          .idle_on_host()
          .tf("gpu_options.per_process_gpu_memory_fraction"),
      field("runtime.visible_device_list")
          .default_elsewhere("in their order")
          .idle_on_host()
          .tf("gpu_options.visible_device_list"),
      field("runtime.log_device_placement").tf("log_device_placement"),
      field("runtime.soft_placement")
          .by_default(true)
          .was_not("no_soft_placement")
          .tf("allow_soft_placement"),
      field("runtime.fusion").default_elsewhere("true on a GPU, false on the CPU"),
      field("runtime.op_libraries"), field("runtime.check_numerics"),
      field("runtime.measure_products").idle_on_host(), field("runtime.precision"),
      field("runtime.mixed_precision").idle(no_halves()), field("runtime.mixed_precision.keep_ops"),
      field("runtime.mixed_precision.keep_nodes"),
      field("runtime.mixed_precision.loss_scale")
          .in(from_to(1, 1 << 24))
          .default_elsewhere("65536")
          .idle(no_loss_scale()),
      field("runtime.mixed_precision.loss_scale_steps").default_elsewhere("2000").idle(no_loss_scale()),
      field("runtime.recompute.scope"), field("runtime.recompute.memory_bytes").in(not_negative()),
      field("runtime.offload.scope"), field("runtime.offload.memory_bytes").in(not_negative()),
      field("runtime.offload.optimizer_states"),
      field("runtime.device_memory_up_front")
          .idle_on_host()
          .tf("gpu_options.allow_growth")
          .tf("TF_FORCE_GPU_ALLOW_GROWTH"));
}

std::vector<JobField> make_table() {
  std::vector<JobField> table;
  add(table,  //
      field("name").by_default("the model's", [](proto::Job& job) { job.set_name(model_text(job.model())); }),
      field("seed"), field("steps"), field("epochs").in(not_negative()));
  add_model(table);
  add_model_graph(table);
  add_input(table);
  add_columns(table);
  add_staging(table);
  add_streams(table);
  add_strategy(table);
  add_servers(table);
  add_shared_models(table);
  add_exchange(table);
  add_late_gradients(table);
  add_workers(table);
  add_security(table);
  add_optimizer(table);
  add_optimizer_groups(table);
  add_schedule(table);
  add_results(table);
  add_runtime(table);
  add_hooks(table);
  return table;
}

}  // namespace

const std::vector<JobField>& job_fields() {
  static const std::vector<JobField> table = make_table();
  return table;
}

}  // namespace braid::worker
