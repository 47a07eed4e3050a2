#include "worker/step/training_program.h"

#include <algorithm>

#include "base/error.h"
#include "base/init.h"
#include "base/log.h"
#include "engine/compile/compile.h"
#include "engine/exec/plan_json.h"
#include "engine/exec/plan_report.h"
#include "engine/exec/program_cache.h"
#include "engine/program/program.h"
#include "proto/job.pb.h"
#include "worker/input/input_staging.h"
#include "worker/input/stored_columns.h"
#include "worker/job/job.h"
#include "worker/job/optimizers.h"
#include "worker/step/clip_gradients.h"
#include "worker/step/collectives_hash.h"
#include "worker/step/loss_scale.h"
#include "worker/step/micro_batches.h"
#include "worker/step/mixtures.h"
#include "worker/step/next_batch.h"
#include "worker/step/offload.h"
#include "worker/step/recompute.h"

namespace braid::worker {

bool room_grows(const proto::Job& job, int world) {
  return world == 1 && !has_servers(job) && job.strategy().kind() != proto::Strategy::HYBRID &&
         job.strategy().kind() != proto::Strategy::PIPELINE && !job.strategy().has_elastic();
}

BatchOptions training_batches(const proto::Job& job, int rank, int world) {
  BatchOptions batches;
  batches.global_batch = job.input().global_batch_size();
  if (job.input().shard() == proto::Input::ALL) {
    const RowReader reader = row_reader(job, rank, world);
    batches.rank = reader.rank;
    batches.world = reader.world;
  } else {  // the table is this worker's own, and so are its batches
    batches.global_batch = batch_share(job, rank, world).rows();
  }
  batches.shuffle = job.input().shuffle();
  batches.seed = job.seed();
  batches.shuffle_buffer = job.input().shuffle_buffer();
  batches.carry_remainder = job.input().carry_remainder();
  batches.room_grows = room_grows(job, world);
  batches.as_stored = job.runtime().device() == proto::Runtime::CUDA;
  return batches;
}

CompileOptions training_compile_options(const proto::Job& job) {
  CompileOptions options;
  options.streams = stream_options(job);
  // Whether siblings become one node may depend on the number of workers, and so would where variables lie.
  options.batch_siblings = job.strategy().has_elastic() ? BatchSiblings::Off : batch_siblings_of(job);
  options.steps_in_flight = static_cast<int>(job.runtime().steps_in_flight());
  options.soft_placement = job.runtime().soft_placement();
  options.check_numerics = job.runtime().check_numerics();
  options.precision = precision_of(job);
  options.domain = job.runtime().device() == proto::Runtime::CUDA ? Domain::Device : Domain::Host;
  // On the CPU the nodes' own kernels are as fast (docs/design/fused_regions.md).
  options.fusion = job.runtime().has_fusion() ? job.runtime().fusion() : options.domain == Domain::Device;
  return options;
}

InstanceOptions instance_options(const proto::Job& job) {
  InstanceOptions options;
  options.merge_copies = job.streams().merge_copies();
  options.priorities.assign(job.streams().priorities().begin(), job.streams().priorities().end());
  if (job.runtime().device() != proto::Runtime::CUDA) {
    if (options.merge_copies)
      log_warning("streams.merge_copies has no effect: on the host there are no copies");
    if (!options.priorities.empty())
      log_warning("streams.priorities has no effect: threads of host streams have one priority");
  }
  return options;
}

namespace {

/// Whether rows of tables travel by their ids, which are int64 on all ranks and servers.
bool moves_rows(const proto::Job& job) {
  const proto::Strategy::Kind kind = job.strategy().kind();
  return kind != proto::Strategy::LOCAL && kind != proto::Strategy::ALLREDUCE &&
         kind != proto::Strategy::MIRRORED;
}

void leave_out_frozen(const proto::Job& job, TrainingGraph& training) {
  const Optimizers optimizers(job);
  std::vector<std::string> variables;
  for (const VariableGradient& gradient : training.gradients) variables.push_back(gradient.variable.name);
  optimizers.check_groups(variables);
  std::erase_if(training.gradients,
                [&](const VariableGradient& gradient) { return optimizers.frozen(gradient.variable.name); });
}

std::vector<FeedSpec> columns_of(const ModelGraph& model, const Batcher& batcher, const BatchShare& share) {
  std::vector<FeedSpec> columns;
  for (std::size_t c = 0; c < model.columns.size(); ++c)
    columns.push_back({model.columns[c], batcher.dtype(c), batcher.shape(c, share.rows())});
  return columns;
}

CompileRequest step_request(const ModelGraph& model, const Batcher& batcher, const BatchShare& share,
                            const TrainingGraph& training) {
  CompileRequest request;
  // A strategy may have left out what reads a column.
  for (FeedSpec& column : columns_of(model, batcher, share))
    if (training.graph.find(column.name) != kNoNode) request.feeds.push_back(std::move(column));
  request.fetches = {training.graph.value_name(training.loss)};
  if (training.stop_votes.valid()) request.fetches.push_back(training.graph.value_name(training.stop_votes));
  if (training.skipped.valid()) request.fetches.push_back(training.graph.value_name(training.skipped));
  if (training.dropped.valid()) request.fetches.push_back(training.graph.value_name(training.dropped));
  request.targets = training.targets;
  return request;
}

/// As the job says. Sizes are those of a step of this process alone: what a strategy adds comes on top.
void recompute_some(const proto::Job& job, const ModelGraph& model, const Batcher& batcher,
                    const BatchShare& share, TrainingGraph& training) {
  const proto::Recompute& again = job.runtime().recompute();
  if (!again.scope().empty()) {
    const std::int64_t nodes =
        recompute(training, parts_by_name(training, {again.scope().begin(), again.scope().end()}));
    log_info("runtime.recompute: {} nodes of the forward pass are computed again", nodes);
  }
  if (again.memory_bytes() == 0) return;
  const Optimizers optimizers(job);
  const auto estimate = [&](const TrainingGraph& with_parts) {
    TrainingGraph step = with_parts;
    const auto parts = static_cast<std::int64_t>(job.optimizer().accumulate_steps());
    if (parts > 1) split_into_parts(step, model.columns, share.rows(), parts);
    for (const VariableGradient& gradient : step.gradients)
      add_update(step, gradient, optimizer_of(step, optimizers, gradient.variable.name));
    CompileOptions options = training_compile_options(job);
    options.streams = {};
    const auto program = compile(step.graph, step_request(model, batcher, share, step), options);
    StepEstimate found{program->stats.arena_bytes + program->stats.device_arena_bytes, 0};
    for (const ProgramOp& op : program->ops) found.cost_us += op.cost_us;
    return found;
  };
  const RecomputeChoice choice =
      parts_that_fit(training, static_cast<std::uint64_t>(again.memory_bytes()), estimate);
  recompute(training, choice.parts);
  log_info("runtime.recompute: {}", choice.text);
}

/// As the job says. Sizes are those of the step as the strategy has made it.
OffloadOptions offload_of(const proto::Job& job, const Graph& graph, const CompileRequest& request,
                          CompileOptions options) {
  const proto::Offload& away = job.runtime().offload();
  OffloadOptions offload{.scope = {away.scope().begin(), away.scope().end()}};
  const bool on_device = job.runtime().device() == proto::Runtime::CUDA;
  if (!offload.scope.empty() && !on_device)
    log_warning("runtime.offload saves no memory on the CPU: values are copied within it");
  if (away.memory_bytes() > 0 && !on_device)
    log_warning("runtime.offload.memory_bytes has no effect on the CPU: there is no other memory");
  if (away.memory_bytes() > 0 && on_device) {
    options.streams = {};
    const OffloadChoice choice =
        share_that_fits(static_cast<std::uint64_t>(away.memory_bytes()), [&](double share) {
          options.offload.share = share;
          const auto program = compile(graph, request, options);
          return StepEstimate{program->stats.device_arena_bytes, program->stats.step_us};
        });
    log_info("runtime.offload: {}", choice.text);
    offload.share = choice.share;
  }
  return offload;
}

void offload_slots(const proto::Job& job, TrainingGraph& training) {
  if (!job.runtime().offload().optimizer_states()) return;
  const std::uint64_t bytes = offload_states(training);
  log_info("runtime.offload: {:.1f} MB of optimizer states stay on the host",
           static_cast<double>(bytes) / 1e6);
  if (bytes == 0)
    log_warning(
        "runtime.offload.optimizer_states has no effect: no dense variable has slots of {} bytes and "
        "more (those of ADAFACTOR and ADAM_8BIT stay on the device)",
        kLeastOffloaded);
  else if (job.runtime().device() != proto::Runtime::CUDA)
    log_warning("runtime.offload saves no memory on the CPU: states are copied within it");
}

/// Of a batch that is cut into parts by its rows. Throws: InvalidArgument with the column and `field`, which
/// cuts.
void require_equal_rows(const std::vector<std::string>& columns, const Batcher& batcher, const char* field) {
  for (std::size_t c = 0; c < columns.size(); ++c)
    if (batcher.ragged(c))
      throw InvalidArgument(std::string(field) + ": batches with ragged columns ('" + columns[c] +
                            "') are not cut into parts: use a smaller input.global_batch_size");
}

void require_scaled_gradients(const proto::Job& job, const ModelGraph& model, const TrainingGraph& training) {
  if (!model.gradients.empty() && loss_scale_of(job))
    throw InvalidArgument(
        "runtime.precision FP16 scales the loss, and model.graph.gradients KEEP keeps gradients of one that "
        "is not scaled: set runtime.precision BF16, or model.graph.gradients REDO");
  if (training.loss_scale && job.optimizer().clip_worker_norm() > 0)
    throw InvalidArgument(
        "optimizer.clip_worker_norm clips before the gradients are divided by the scale of runtime.precision "
        "FP16: use optimizer.clip_norm, or set runtime.precision BF16");
}

}  // namespace

TrainingProgram make_training_program(const proto::Job& job, const ModelGraph& model, const Batcher& batcher,
                                      const BatchShare& share, Strategy& strategy,
                                      const ChooseStreams& choose_streams) {
  TrainingProgram made;
  const std::int64_t micro_batches = strategy.micro_batches();
  const std::int64_t parts = std::max<std::int64_t>(micro_batches, job.optimizer().accumulate_steps());
  const bool cuts = parts > 1 || micro_batches > 0;
  if (cuts)
    require_equal_rows(model.columns, batcher,
                       micro_batches > 0 ? "strategy.pipeline.micro_batches" : "optimizer.accumulate_steps");
  const float weight = strategy.weighs_gradients() ? share.weight() : 1.0F;
  made.training = model.gradients.empty()
                      ? make_training_graph(*model.graph, model.loss, weight, cuts, loss_scale_of(job))
                      : make_training_graph(*model.graph, model.loss, weight, model.gradients);
  TrainingGraph& training = made.training;
  if (weight != share.weight()) weigh_loss(training, share.weight());
  require_scaled_gradients(job, model, training);
  cast_stored_columns(training.graph, model.columns, batcher);
  narrow_id_columns(training, model.columns, batcher, moves_rows(job) ? NarrowIds::Cast : NarrowIds::ByNodes);
  const bool agrees = strategy.needs_one_plan();
  if (agrees && !share.even())
    training.slice_rows = count_slice_rows(training, model.columns, batcher, share);
  training.targets = model.updates;
  leave_out_frozen(job, training);
  share_token_groups(training, share.world);
  strategy.place_training(training, columns_of(model, batcher, share));
  recompute_some(job, model, batcher, share, training);
  if (cuts)
    split_into_parts(training, model.columns, share.rows(), parts,
                     micro_batches > 0 ? PartOrder::AnyOrder : PartOrder::InTurn);
  clip_by_global_norm(training, training.gradients, job.optimizer().clip_worker_norm(), false);
  for (std::size_t c = 0; c < model.columns.size(); ++c)
    training.feeds.push_back(
        {training.graph.parse_value(model.columns[c]), batcher.dtype(c), batcher.shape(c, share.rows_of(0))});
  strategy.rewrite_training(training);
  offload_slots(job, training);
  count_dropped_tokens(training);
  CompileRequest request = step_request(model, batcher, share, training);
  stage_ahead(job, training.graph, model.columns, training.ahead, request);
  const std::vector<FeedSpec> columns = columns_of(model, batcher, share);
  add_next_feeds(training.graph, columns, request);
  CompileOptions options = training_compile_options(job);
  // Whether siblings become one node is decided by their sizes, and what is reduced lies as they do.
  if (agrees && !share.even()) options.batch_siblings = BatchSiblings::Off;
  options.offload = offload_of(job, training.graph, request, options);
  if (choose_streams) options.streams = choose_streams(training.graph, request, options);
  made.program = compile(training.graph, request, options);
  made.options = options;
  if (const std::optional<BeforeFirst> before = before_first_step(training.graph, columns)) {
    CompileOptions alone = options;
    alone.streams = {};
    alone.offload = {};
    made.before_first = compile(before->graph, before->request, alone);
  }
  strategy.take_program(*made.program);
  made.agreed_hash = share.even() && !strategy.ranks_differ() ? plan_hash(*made.program)
                                                              : collectives_hash(*made.program, strategy);
  return made;
}

std::shared_ptr<const Program> compile_again(const proto::Job& job, const ModelGraph& model,
                                             const Batcher& batcher, const BatchShare& share,
                                             const TrainingGraph& training, const CompileOptions& options,
                                             VariableStore& store) {
  CompileRequest request = step_request(model, batcher, share, training);
  stage_ahead(job, training.graph, model.columns, training.ahead, request);
  return compile_to_fit(training.graph, request, options, store);
}

std::string step_json(const Program& program, const Strategy& strategy) {
  std::string json = plan_json(program);
  const std::string decided = strategy.describe_json(program);
  if (!decided.empty()) json.insert(json.rfind('}'), ", \"sharded_tables\": " + decided);
  return json;
}

void log_notes(const Program& program) {
  for (const Note& note : program.notes) {
    if (note.severity == Severity::Warning) log_warning("{}: {}", note.pass, note.text);
    if (note.severity == Severity::Info) log_info("{}: {}", note.pass, note.text);
  }
}

}  // namespace braid::worker
