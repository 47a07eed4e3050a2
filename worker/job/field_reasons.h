// Why a field of a job is needed or has no effect: the conditions that lines of fields.cc name. Each is empty
// where it does not hold. Thread rule: pure functions of the job.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "proto/job.pb.h"
#include "worker/job/fields.h"

namespace braid::worker {

/// `why` where `holds` does.
template <class Holds>
Reason when(Holds holds, std::string why) {
  return [holds, why = std::move(why)](const FieldScope& at) { return holds(at) ? why : std::string(); };
}

/// Whether the format has a schema.
bool has_columns(proto::Input::Format format);
/// The columns whose fields count: those of input.columns, else of input.csv; none for other formats.
std::vector<const proto::Column*> columns_of(const proto::Job& job);

// Of models.
Reason no_hidden_layers();
Reason no_embeddings();
Reason no_classes();
Reason no_labels();
Reason no_experts();
Reason no_mixture();
Reason no_tables_or_columns();  // neither tables of its own nor, as a graph, columns whose ids are hashed
Reason model_is_graph();
Reason model_is_not(const char* name);
Reason cuts_no_tables();  // neither rows of MLPERF_DLRM nor a model that cuts its tables itself
Reason gradients_are_redone();
Reason initial_is_graph();
Reason graph_has_optimizers();

// Of the input.
Reason format_is_not(proto::Input::Format format);
Reason reads_no_files();
Reason has_no_bad_records();
Reason has_no_columns();
Reason is_in_memory();

// Of a column.
Reason is_skipped();
Reason kind_is_not(proto::Column::Kind kind);
Reason columns_have_buckets();
Reason has_no_buckets();
Reason has_no_missing_number();
Reason is_no_list();
Reason has_no_attention();
Reason is_not_ragged();
Reason is_no_feature();
Reason has_no_vocabulary_file();
Reason nothing_asks_for_statistics();

// Of stages.
Reason not_staged();
Reason nothing_is_staged();
Reason no_stage_pool();
Reason stage_is_on_host();
Reason stage_only_reads();
Reason has_stage_stream();

// Of streams.
Reason one_stream_needs_no_policy();
Reason policy_is_none();
Reason auto_has_one_stream();
Reason no_rules();
Reason scopes_are_ignored();
Reason one_stream();
Reason policy_does_not_measure();
Reason measuring_is_off();

// Of the strategy, the updates and what comes out.
Reason strategy_is_not(proto::Strategy::Kind kind);
Reason strategy_has_no_mesh();        // none of TENSOR, EXPERTS, PIPELINE
Reason workers_all_reduce_nothing();  // neither ALLREDUCE nor MIRRORED
Reason strategy_is_local();
Reason strategy_is_one_pipeline();  // no gradient travels
Reason strategy_has_no_communicator();
Reason strategy_has_no_servers();
Reason backend_is_mpi();
Reason consistency_is_not(proto::Strategy::Consistency consistency);
Reason workers_average();  // strategy.average_every_steps
Reason compression_is_not(proto::Compression::Kind kind);

// Of precision.
Reason precision_says_tf32();  // FP32, TF32
Reason no_halves();            // neither BF16 nor FP16
Reason no_loss_scale();        // nor FP16

// Of the updates.
Reason optimizer_is_none_of(std::vector<proto::Optimizer::Kind> kinds);
Reason schedule_is_none_of(std::vector<proto::Schedule::Kind> kinds);
Reason step_decay();
Reason no_test_data();
Reason no_evaluation();
Reason no_mllog();
Reason no_metric_at_k();
Reason no_patience();
Reason no_checkpoints();
Reason no_sampling();
Reason no_step_hook();
Reason no_hooks();

}  // namespace braid::worker
