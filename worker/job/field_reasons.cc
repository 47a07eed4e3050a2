#include "worker/job/field_reasons.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include "worker/job/job.h"

namespace braid::worker {
namespace {

using proto::Column;
using proto::Input;
using proto::Optimizer;
using proto::Schedule;
using proto::Strategy;
using proto::Streams;

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> models) {
  return std::find(models.begin(), models.end(), name) != models.end();
}

bool is_of_images(std::string_view model) { return is_one_of(model, {"cnn", "mlp", "resnet18"}); }

template <class Has>
Reason model_without(const char* what, Has has) {
  return [what, has](const FieldScope& at) {
    const std::string& name = at.job.model().name();
    if (at.job.model().has_graph()) return fmt::format("model.graph says what {} there are", what);
    return name.empty() || has(name) ? std::string() : fmt::format("model '{}' has no {}", name, what);
  };
}

template <class Has>
Reason format_without(Has has) {
  return [has](const FieldScope& at) {
    const auto format = at.job.input().format();
    return has(format) ? std::string() : "input.format is " + Input::Format_Name(format);
  };
}

template <class Has>
Reason kind_without(Has has) {
  return [has](const FieldScope& at) {
    return has(*at.column) ? std::string() : "its kind is " + Column::Kind_Name(at.column->kind());
  };
}

bool is_staged(const FieldScope& at) { return !at.job.staging().has_enabled() || at.job.staging().enabled(); }

constexpr const char* kOneStream = "there is one compute stream (streams.count)";

bool has_one_stream(const FieldScope& at) { return at.job.streams().count() <= 1; }

bool measures(const FieldScope& at) {
  return !has_one_stream(at) && at.job.streams().policy() == Streams::AUTO;
}

}  // namespace

// Of models.

Reason no_hidden_layers() {
  return model_without("hidden layers", [](std::string_view m) { return m != "linear_regression"; });
}
Reason no_embeddings() {
  return model_without("embeddings",
                       [](std::string_view m) { return m != "linear_regression" && !is_of_images(m); });
}
Reason no_classes() {
  return model_without("classes", [](std::string_view m) { return is_of_images(m) || m == "transformer"; });
}
Reason no_labels() {
  return model_without("classes", [](std::string_view m) { return m != "linear_regression"; });
}
Reason no_experts() {
  return model_without("experts and tasks", [](std::string_view m) { return m == "mmoe"; });
}
Reason no_mixture() {
  return when([](const FieldScope& at) { return at.job.model().mixture().experts() == 0; },
              "model.mixture.experts is not set");
}

Reason no_tables_or_columns() {
  return [reason = no_embeddings()](const FieldScope& at) {
    return at.job.model().has_graph() ? std::string() : reason(at);
  };
}
Reason model_is_graph() {
  return when([](const FieldScope& at) { return at.job.model().has_graph(); }, "the model is model.graph");
}
Reason model_is_not(const char* name) {
  return [name](const FieldScope& at) {
    const proto::Model& model = at.job.model();
    if (model.has_graph()) return std::string("the model is model.graph");
    return model.name().empty() || model.name() == name ? std::string()
                                                        : "model.name is '" + model.name() + "'";
  };
}
Reason cuts_no_tables() {
  return [](const FieldScope& at) {
    return at.job.model().name() == "hstu" ? std::string() : format_is_not(Input::MLPERF_DLRM)(at);
  };
}
Reason gradients_are_redone() {
  return when(
      [](const FieldScope& at) { return at.job.model().graph().gradients() == proto::TrainedGraph::REDO; },
      "model.graph.gradients is REDO");
}
Reason initial_is_graph() {
  return when(
      [](const FieldScope& at) { return at.job.model().graph().initial() == proto::TrainedGraph::GRAPH; },
      "model.graph.initial is GRAPH");
}
Reason graph_has_optimizers() {
  return when(
      [](const FieldScope& at) { return at.job.model().graph().gradients() == proto::TrainedGraph::KEEP; },
      "model.graph.gradients is KEEP, and the graph has optimizers of its own");
}

// Of the input.

bool has_columns(Input::Format format) {
  return format == Input::CSV || format == Input::TFRECORD || format == Input::PARQUET ||
         format == Input::TEXT || format == Input::GENERATOR;
}

std::vector<const proto::Column*> columns_of(const proto::Job& job) {
  std::vector<const proto::Column*> columns;
  if (!has_columns(job.input().format())) return columns;
  const auto& from = job.input().columns().empty() ? job.input().csv().columns() : job.input().columns();
  for (const proto::Column& column : from) columns.push_back(&column);
  return columns;
}

Reason format_is_not(Input::Format format) {
  return format_without([format](Input::Format f) { return f == format; });
}
Reason reads_no_files() {
  return format_without([](Input::Format f) { return f != Input::SYNTHETIC && f != Input::GENERATOR; });
}
Reason has_no_bad_records() {
  return format_without([](Input::Format f) { return f != Input::IDX; });
}
Reason has_no_columns() { return format_without(has_columns); }
Reason is_in_memory() {
  return when([](const FieldScope& at) { return at.job.input().read() == Input::MEMORY; },
              "input.read is MEMORY");
}

// Of a column.

Reason is_skipped() {
  return kind_without([](const Column& column) { return column.kind() != Column::SKIP; });
}
Reason kind_is_not(Column::Kind kind) {
  return kind_without([kind](const Column& column) { return column.kind() == kind; });
}
/// All tables have as many rows as their columns have ids.
Reason columns_have_buckets() {
  return when(
      [](const FieldScope& at) {
        const auto columns = columns_of(at.job);
        return !columns.empty() && std::all_of(columns.begin(), columns.end(), [](const Column* column) {
          return column->kind() != Column::CATEGORICAL || column->buckets() > 0 ||
                 !column->vocabulary().empty() || !column->vocabulary_file().empty() ||
                 !column->borders().empty() || column->quantiles() > 0 ||
                 column->time_part() != Column::NO_PART;
        });
      },
      "each categorical column has buckets or a vocabulary of its own");
}
/// A generator takes the number of classes from the buckets.
Reason has_no_buckets() {
  return [](const FieldScope& at) {
    const auto kind = at.column->kind();
    const bool draws_classes = kind == Column::CLASS && at.job.input().format() == Input::GENERATOR;
    return kind == Column::CATEGORICAL || draws_classes ? std::string()
                                                        : "its kind is " + Column::Kind_Name(kind);
  };
}
Reason has_no_missing_number() {
  return kind_without([](const Column& column) {
    return column.kind() == Column::NUMERIC || (column.kind() == Column::LABEL && column.length() > 1);
  });
}
Reason is_no_list() {
  return when([](const FieldScope& at) { return at.column->length() <= 1 && !at.column->ragged(); },
              "its length is 1");
}
Reason has_no_attention() {
  return when([](const FieldScope& at) { return at.column->pooling() != Column::ATTENTION; },
              "its pooling is not ATTENTION");
}
Reason is_not_ragged() {
  return when([](const FieldScope& at) { return !at.column->ragged(); }, "it is not ragged");
}
Reason is_no_feature() {
  return kind_without([](const Column& column) {
    return column.kind() == Column::NUMERIC || column.kind() == Column::CATEGORICAL;
  });
}
Reason has_no_vocabulary_file() {
  return when([](const FieldScope& at) { return at.column->vocabulary_file().empty(); },
              "it has no vocabulary_file");
}
Reason nothing_asks_for_statistics() {
  return when(
      [](const FieldScope& at) {
        const auto columns = columns_of(at.job);
        return std::none_of(columns.begin(), columns.end(), [](const Column* column) {
          return column->scaling() != Column::AS_SAID || column->quantiles() > 0;
        });
      },
      "no column has scaling or quantiles");
}

// Of stages. What auto_stage cuts off of a model runs inside of the step where staging is off, with the same
// threads and limits.

Reason not_staged() {
  return when([](const FieldScope& at) { return !is_staged(at); }, "staging.enabled is false");
}
Reason nothing_is_staged() {
  return when([](const FieldScope& at) { return !is_staged(at) && !at.job.staging().auto_stage(); },
              "staging.enabled is false");
}
Reason no_stage_pool() {
  return when([](const FieldScope& at) { return !at.job.staging().use_stage_subgraph_thread_pool(); },
              "staging.use_stage_subgraph_thread_pool is not set");
}
Reason stage_is_on_host() {
  return when([](const FieldScope& at) { return at.job.staging().stage_subgraph_stream_id() == 0; },
              "staging.stage_subgraph_stream_id is 0: the stage computes on the host");
}
Reason stage_only_reads() {
  return when(
      [](const FieldScope& at) {
        return at.job.staging().stage_subgraph_stream_id() != 0 && !at.job.staging().auto_stage();
      },
      "staging.auto_stage is not set: the stage only reads");
}
Reason has_stage_stream() {
  return when(
      [](const FieldScope& at) {
        return at.job.staging().auto_stage() && at.job.staging().stage_subgraph_stream_id() != 0;
      },
      "a stage stream");
}

// Of streams.

/// Who insists on one stream (NONE), or on ids (USER), is told by others what does not fit.
Reason one_stream_needs_no_policy() {
  return when(
      [](const FieldScope& at) {
        const auto policy = at.job.streams().policy();
        return has_one_stream(at) && policy != Streams::NONE && policy != Streams::USER;
      },
      kOneStream);
}
Reason policy_is_none() {
  return when([](const FieldScope& at) { return at.job.streams().policy() == Streams::NONE; },
              "streams.policy is NONE");
}
Reason auto_has_one_stream() {
  return when(
      [](const FieldScope& at) { return has_one_stream(at) && at.job.streams().policy() == Streams::AUTO; },
      kOneStream);
}
Reason no_rules() {
  return when([](const FieldScope& at) { return at.job.streams().rules_file().empty(); },
              "streams.rules_file is not set");
}
Reason scopes_are_ignored() {
  return when([](const FieldScope& at) { return at.job.streams().ignore_scopes(); },
              "streams.ignore_scopes is set");
}
Reason one_stream() { return when(has_one_stream, kOneStream); }
Reason policy_does_not_measure() {
  return when([](const FieldScope& at) { return !measures(at); }, "only streams.policy AUTO measures");
}
Reason measuring_is_off() {
  return when(
      [](const FieldScope& at) {
        return measures(at) && at.job.streams().has_measure() && !at.job.streams().measure();
      },
      "streams.measure is false");
}

// Of the strategy, the updates and what comes out.

Reason strategy_is_not(Strategy::Kind kind) {
  return [kind](const FieldScope& at) {
    const auto its = at.job.strategy().kind();
    return its == kind ? std::string() : "strategy.kind is " + Strategy::Kind_Name(its);
  };
}
Reason strategy_has_no_mesh() {
  return [](const FieldScope& at) {
    const auto its = at.job.strategy().kind();
    return its == Strategy::TENSOR || its == Strategy::EXPERTS || its == Strategy::PIPELINE
               ? std::string()
               : "strategy.kind is " + Strategy::Kind_Name(its);
  };
}
Reason workers_all_reduce_nothing() {
  return [](const FieldScope& at) {
    return is_all_reduce(at.job) ? std::string()
                                 : "strategy.kind is " + Strategy::Kind_Name(at.job.strategy().kind());
  };
}
Reason strategy_is_local() {
  return when([](const FieldScope& at) { return at.job.strategy().kind() == Strategy::LOCAL; },
              "strategy.kind is LOCAL");
}
Reason strategy_is_one_pipeline() {
  return when(
      [](const FieldScope& at) {
        const Strategy& strategy = at.job.strategy();
        return strategy.kind() == Strategy::PIPELINE && !strategy.has_mesh();
      },
      "strategy.kind is PIPELINE without strategy.mesh");
}
Reason strategy_has_no_communicator() {
  return [](const FieldScope& at) {
    return has_communicator(at.job) ? std::string()
                                    : "strategy.kind is " + Strategy::Kind_Name(at.job.strategy().kind());
  };
}
Reason strategy_has_no_servers() {
  return [](const FieldScope& at) {
    return has_servers(at.job) ? std::string()
                               : "strategy.kind is " + Strategy::Kind_Name(at.job.strategy().kind());
  };
}
Reason precision_says_tf32() {
  return [](const FieldScope& at) {
    const proto::Runtime::Precision precision = at.job.runtime().precision();
    return precision == proto::Runtime::FP32 || precision == proto::Runtime::TF32
               ? "runtime.precision is " + proto::Runtime::Precision_Name(precision)
               : std::string();
  };
}
Reason no_halves() {
  return when(
      [](const FieldScope& at) {
        return at.job.runtime().precision() != proto::Runtime::BF16 &&
               at.job.runtime().precision() != proto::Runtime::FP16;
      },
      "runtime.precision is neither BF16 nor FP16");
}
Reason no_loss_scale() {
  return when([](const FieldScope& at) { return at.job.runtime().precision() != proto::Runtime::FP16; },
              "runtime.precision is not FP16");
}
Reason backend_is_mpi() {
  return when(
      [](const FieldScope& at) {
        return has_communicator(at.job) && at.job.strategy().backend() == Strategy::MPI;
      },
      "strategy.backend MPI has connections of its own");
}
Reason consistency_is_not(Strategy::Consistency consistency) {
  return [consistency](const FieldScope& at) {
    const Strategy& strategy = at.job.strategy();
    if (!has_servers(at.job)) return "strategy.kind is " + Strategy::Kind_Name(strategy.kind());
    return strategy.consistency() == consistency
               ? std::string()
               : "strategy.consistency is " + Strategy::Consistency_Name(strategy.consistency());
  };
}
Reason workers_average() {
  return when([](const FieldScope& at) { return at.job.strategy().average_every_steps() > 0; },
              "strategy.average_every_steps is set: gradients stay with their workers");
}
Reason compression_is_not(proto::Compression::Kind kind) {
  return [kind](const FieldScope& at) {
    const auto its = at.job.strategy().compression().kind();
    return its == kind ? std::string() : "strategy.compression.kind is " + proto::Compression::Kind_Name(its);
  };
}
Reason optimizer_is_none_of(std::vector<Optimizer::Kind> kinds) {
  return [kinds = std::move(kinds)](const FieldScope& at) {
    const auto its = at.job.optimizer().kind();
    const bool found = std::find(kinds.begin(), kinds.end(), its) != kinds.end();
    return found ? std::string() : "optimizer.kind is " + Optimizer::Kind_Name(its);
  };
}
Reason schedule_is_none_of(std::vector<Schedule::Kind> kinds) {
  return [kinds = std::move(kinds)](const FieldScope& at) {
    const auto its = at.job.schedule().kind();
    const bool found = std::find(kinds.begin(), kinds.end(), its) != kinds.end();
    return found ? std::string() : "schedule.kind is " + Schedule::Kind_Name(its);
  };
}
Reason step_decay() {
  return when([](const FieldScope& at) { return at.job.schedule().kind() == Schedule::STEP_DECAY; },
              "schedule.kind STEP_DECAY");
}
Reason no_test_data() {
  return [](const FieldScope& at) {
    const Input& input = at.job.input();
    const bool has_test = input.format() == Input::SYNTHETIC || !input.test_files().empty() ||
                          input.generator().test_rows() > 0;
    if (has_test) return std::string();
    return std::string(input.format() == Input::GENERATOR ? "input.generator.test_rows is not set"
                                                          : "input.test_files is not set");
  };
}

Reason no_mllog() {
  return when([](const FieldScope& at) { return at.job.metrics().mllog().empty(); },
              "metrics.mllog is not set");
}

Reason no_evaluation() {
  return when(
      [](const FieldScope& at) {
        return at.job.evaluation().has_enabled() && !at.job.evaluation().enabled();
      },
      "evaluation.enabled is false");
}
Reason no_metric_at_k() {
  return when(
      [](const FieldScope& at) {
        const auto at_k = [](int metric) {
          return metric == proto::Evaluation::PRECISION_AT_K || metric == proto::Evaluation::RECALL_AT_K ||
                 metric == proto::Evaluation::NDCG_AT_K;
        };
        const auto& metrics = at.job.evaluation().metrics();
        return !at_k(at.job.evaluation().metric()) && std::none_of(metrics.begin(), metrics.end(), at_k);
      },
      "no metric at k is asked for");
}
Reason no_patience() {
  return when([](const FieldScope& at) { return at.job.evaluation().early_stopping().patience() == 0; },
              "evaluation.early_stopping.patience is not set");
}
Reason no_checkpoints() {
  return when(
      [](const FieldScope& at) {
        return at.job.checkpoint().directory().empty() && at.job.run_directory().empty();
      },
      "checkpoint.directory is not set");
}
Reason no_step_hook() {
  return when([](const FieldScope& at) { return at.job.hooks().on_step().empty(); },
              "hooks.on_step is not set");
}
Reason no_hooks() {
  return when(
      [](const FieldScope& at) {
        const proto::Hooks& hooks = at.job.hooks();
        return hooks.on_step().empty() && hooks.on_checkpoint().empty() && hooks.on_end().empty();
      },
      "there are no hooks");
}
Reason no_sampling() {
  return when(
      [](const FieldScope& at) { return at.job.metrics().has_sampling() && !at.job.metrics().sampling(); },
      "metrics.sampling is false");
}

}  // namespace braid::worker
