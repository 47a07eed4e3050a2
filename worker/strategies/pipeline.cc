// PIPELINE: the workers are groups (strategy.mesh), of one pipeline each, and groups share the rows of a
// step. Worker s of a group has the variables of stage s and computes it, forward and backward, of one
// micro-batch after another (pipeline_schedule.h); what stages need of each other they send
// (pipeline_links.h). Gradients add up over micro-batches, and over the groups' workers of a stage
// (pipeline_groups.h), and each worker updates its own variables once a step. The loss of the last stages and
// the votes to stop go to all at the end of a step. What the leader needs of others' variables between steps
// they hand over (stage_service.h).
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/init.h"
#include "base/log.h"
#include "comm/communicator.h"
#include "engine/ir/op.h"
#include "engine/program/program.h"
#include "proto/job.pb.h"
#include "worker/job/mesh.h"
#include "worker/job/optimizers.h"
#include "worker/process/share_text.h"
#include "worker/step/clip_gradients.h"
#include "worker/strategies/message_order.h"
#include "worker/strategies/pipeline_cut.h"
#include "worker/strategies/pipeline_groups.h"
#include "worker/strategies/pipeline_ops.h"
#include "worker/strategies/pipeline_rewrite.h"
#include "worker/strategies/served_strategy.h"
#include "worker/strategies/stage_service.h"
#include "worker/strategies/step_services.h"

namespace braid::worker {
namespace {

ValueRef zero(Graph& graph, const std::string& name) {
  return add_node(graph, "Const", name, {}, {{"dtype", DType::Float32}, {"value", Tensor::scalar(0.0F)}});
}

std::string size_text(std::int64_t bytes) {
  const double kib = static_cast<double>(bytes) / 1024;
  return kib < 1024 ? fmt::format("{:.1f} KiB", kib) : fmt::format("{:.1f} MiB", kib / 1024);
}

class PipelineStrategy : public ServedStrategy {
 public:
  PipelineStrategy(const proto::Job& job, Runtime& runtime, const Peers& peers)
      : ServedStrategy(job, runtime, peers),
        pipeline_(job.strategy().pipeline()),
        mesh_(mesh_of(job, peers.world)),
        stage_(mesh_.place_of(peers.rank)),
        optimizers_(job),
        clip_norm_(job.optimizer().clip_norm()),
        domain_(job.runtime().device() == proto::Runtime::CUDA ? Domain::Device : Domain::Host) {
    plan_.order = pipeline_.schedule() == proto::Pipeline::GPIPE ? PipelineOrder::GPipe
                                                                 : PipelineOrder::OneForwardOneBackward;
    plan_.parts = pipeline_.micro_batches();
    const std::int64_t rows = job.input().global_batch_size();
    if (rows % (mesh_.data * plan_.parts) != 0)
      throw InvalidArgument(fmt::format(
          "strategy.mesh has {} groups of {} micro-batches (strategy.pipeline): a batch of {} rows "
          "(input.global_batch_size) is not cut into so many equal parts",
          mesh_.data, plan_.parts, rows));
    runtime.services().provide(mail_);
  }

  std::string_view name() const override { return "PIPELINE"; }
  bool ranks_differ() const override { return true; }
  bool weighs_gradients() const override { return false; }
  float gradient_scale() const override { return 1.0F / static_cast<float>(mesh_.data); }
  std::int64_t micro_batches() const override { return plan_.parts; }

  void place_training(TrainingGraph& training, const std::vector<FeedSpec>& columns) override {
    columns_ = columns;
    std::vector<FeedSpec> of_part = columns;
    for (FeedSpec& column : of_part)
      if (column.shape.rank() > 0) column.shape.set_dim(0, column.shape[0] / plan_.parts);
    cut_ = cut_pipeline(training, pipeline_, of_part, mesh_.workers, domain_);
    for (const StageEstimate& stage : cut_.stages)
      plan_.times.push_back({std::max(stage.times.forward, 1e-3), std::max(stage.times.backward, 1e-3)});
  }

  void rewrite_training(TrainingGraph& training) override {
    const PipelineNodes nodes = pipeline_nodes(training, columns_);
    links_ = find_links(training, nodes, plan_);
    const auto stage_of_node = [&](NodeId id) { return links_.stage[static_cast<std::size_t>(id)]; };
    for (const VariableInfo& variable : list_variables(training.graph))
      if (nodes.is(nodes.needed, variable.handle))
        variables_.push_back({variable, stage_of_node(variable.handle)});
    std::vector<std::string> trained;
    std::vector<int> stages;
    for (const VariableGradient& gradient : training.gradients) {
      trained.push_back(gradient.variable.name);
      stages.push_back(stage_of_node(gradient.variable.handle));
    }
    if (mesh_.data > 1)
      between_groups_ = plan_group_exchanges(training.gradients, stages, mesh_.workers, bucket_bytes_);
    note_sizes(nodes);
    const AddExchange add = [&](Node node, const char* op) {
      return add_collective(training.graph, std::move(node), op);
    };
    keep_stage(training, nodes, links_, plan_, stage_, peers_.rank - stage_, add);
    if (mesh_.data > 1) {
      const std::vector<int> ranks = mesh_.data_ranks(peers_.rank);
      sum_over_groups(training, between_groups_, bucket_bytes_,
                      {{ranks.begin(), ranks.end()}, wire_, on_device_, add});
    }
    clip(training, trained);
    share_loss(training);
    for (const VariableGradient& gradient : training.gradients)
      add_update(training, gradient, optimizer_of(training, optimizers_, gradient.variable.name));
    std::vector<std::string> own;
    for (const VariableInfo& variable : list_variables(training.graph)) own.push_back(variable.name);
    service_ = std::make_unique<StageService>(variables_, std::move(own), mesh_.workers, peers_.communicator,
                                              runtime_.variables());
  }

  void take_program(const Program& step) override { steps_ = comm_steps(step); }

  /// Programs differ; what must be alike is the cut, and that all exchanges meet.
  void agree_on_plan(std::uint64_t, const WaitContext& wait) override {
    const std::string mine = std::to_string(stable_hash(cut_text())) + "\n" + comm_steps_text(steps_);
    std::vector<std::vector<CommStep>> all;
    for (int rank = 0; rank < peers_.world; ++rank) {
      std::string text = mine;
      share_text(text, *peers_.communicator, wait, rank);
      if (text.substr(0, text.find('\n')) != mine.substr(0, mine.find('\n')))
        throw InvalidArgument("rank " + std::to_string(rank) + " cuts the model another way than rank " +
                              std::to_string(peers_.rank) +
                              ": the processes must run the same job file, data and build");
      all.push_back(parse_comm_steps(std::string_view(text).substr(text.find('\n') + 1)));
    }
    check_message_order(all);
    open_mailbox(wait);
  }

  std::string describe(const Program&) const override {
    const int p = mesh_.workers;
    std::string text = fmt::format(
        "pipeline: {}{} stage{}{}, {} micro-batches, {}\n"
        "  bubble: {:.1f} % by (p - 1) / (m + p - 1), {:.1f} % with the stages' modelled times\n",
        mesh_.data == 1 ? "" : fmt::format("{} groups of ", mesh_.data), p,
        p == 1 && mesh_.data > 1 ? "" : "s", cut_.chosen ? " by the cost model" : "", plan_.parts,
        proto::Pipeline::Schedule_Name(pipeline_.schedule()), 100 * bubble_share(p, plan_.parts),
        100 * links_.bubble);
    for (int s = 0; s < p; ++s) {
      const auto at = static_cast<std::size_t>(s);
      const StageEstimate& stage = cut_.stages[at];
      const std::int64_t in_flight = parts_in_flight(plan_.order, s, p, plan_.parts);
      text += fmt::format(
          "  stage {}: {} nodes, {:.0f} + {:.0f} us, variables {}: {}\n"
          "    of a micro-batch: sends {}, keeps {} (at most {} at once: {})\n",
          s, stage.nodes, stage.times.forward, stage.times.backward, size_text(stage.variable_bytes),
          variables_text(s), size_text(sent_bytes_[at]), size_text(links_.kept_bytes[at]), in_flight,
          size_text(in_flight * links_.kept_bytes[at]));
      if (const std::int64_t room = slot_bytes(s); on_device_ && room > 0)
        text += fmt::format("    slots for messages to it: {}\n", size_text(room));
      if (mesh_.data > 1)
        text += fmt::format("    between groups: {} of gradients in {} sum{}\n",
                            size_text(between_groups_.bytes[at]), between_groups_.buckets[at],
                            between_groups_.buckets[at] == 1 ? "" : "s");
    }
    return text;
  }

  std::uint64_t start(const CheckpointInfo* restored, bool resume, std::uint64_t step,
                      const WaitContext& wait) override {
    agree_on_checkpoint(restored, wait);
    return ServedStrategy::start(restored, resume, step, wait);
  }
  bool saves_local_variable(const std::string& name) const override { return !service_->is_elsewhere(name); }
  void refresh_variables(const WaitContext& wait) override { service_->gather(wait); }

 protected:
  RankService& service() override { return *service_; }
  bool is_shared(const std::string&) const override { return false; }

 private:
  /// All ranks name the slots of all groups, so that they have the same numbers everywhere.
  void open_mailbox(const WaitContext& wait) {
    if (!on_device_ || links_.slots.empty()) return;
    std::vector<comm::MailSlot> slots;
    for (int group = 0; group < mesh_.data; ++group)
      for (comm::MailSlot slot : links_.slots) {
        slot.from += group * mesh_.workers;
        slot.to += group * mesh_.workers;
        slots.push_back(slot);
      }
    mail_->mailbox = peers_.communicator->open_mailbox("stages", slots, wait);
  }

  std::string cut_text() const {
    std::string text;
    for (const StageVariable& variable : variables_)
      text += fmt::format("{} {} {}{}\n", variable.rank, variable.info.name, dtype_name(variable.info.dtype),
                          variable.info.shape.to_string());
    return text;
  }

  std::int64_t slot_bytes(int stage) const {
    std::int64_t bytes = 0;
    for (const comm::MailSlot& slot : links_.slots) bytes += slot.to == stage ? slot.bytes : 0;
    return bytes;
  }

  std::string variables_text(int stage) const {
    constexpr int kShown = 3;
    std::string names;
    int count = 0;
    for (const StageVariable& variable : variables_)
      if (variable.rank == stage && ++count <= kShown) names += (count > 1 ? ", " : "") + variable.info.name;
    if (count > kShown) names += fmt::format(", ... ({})", count);
    return count == 0 ? "none" : names;
  }

  void note_sizes(const PipelineNodes& nodes) {
    sent_bytes_.assign(static_cast<std::size_t>(mesh_.workers), 0);
    for (const PipelineTransfer& transfer : links_.transfers) {
      if (transfer.part != 0) continue;
      for (const ValueRef value : transfer.values) {
        const OutputInfo& info = nodes.inferred.info(value);
        sent_bytes_[static_cast<std::size_t>(transfer.link.from)] +=
            info.shape.elements() * static_cast<std::int64_t>(dtype_size(info.dtype));
      }
    }
  }

  /// By the norm of all stages' gradients, whose halves of squares are added in one order, that of the whole
  /// model. All groups have the same, which the first one tells. `trained`: its variables with gradients.
  void clip(TrainingGraph& training, const std::vector<std::string>& trained) {
    if (clip_norm_ == 0 || trained.empty()) return;
    const auto of_all = [&](std::vector<ValueRef>& halves) {
      Node node;
      node.name = training.graph.unique_name("all_reduce/norms");
      std::vector<std::string> own;
      for (const VariableGradient& gradient : training.gradients) own.push_back(gradient.variable.name);
      for (const std::string& name : trained) {
        const auto at = std::ranges::find(own, name);
        const bool tells = at != own.end() && mesh_.group_of(peers_.rank) == 0;
        node.inputs.push_back(tells ? halves[static_cast<std::size_t>(at - own.begin())]
                                    : zero(training.graph, "clip/" + name + "/elsewhere"));
      }
      const NodeId id = add_collective(training.graph, std::move(node), "braid.AllReduce");
      halves.clear();
      for (std::size_t i = 0; i < trained.size(); ++i) halves.push_back({id, static_cast<int>(i)});
    };
    std::vector<ValueRef> none;
    if (training.gradients.empty())
      of_all(none);
    else
      clip_by_global_norm(training, training.gradients, clip_norm_, true, of_all);
  }

  /// Zeros are added to it.
  void share_loss(TrainingGraph& training) {
    Graph& graph = training.graph;
    Node node;
    node.name = graph.unique_name("all_reduce/loss");
    node.inputs = {training.loss.valid() ? training.loss : zero(graph, "pipeline/no_loss"), stop_vote(graph)};
    const NodeId id = add_collective(graph, std::move(node), "braid.AllReduce");
    training.loss = {id, 0};
    if (mesh_.data > 1) {
      const ValueRef scale =
          add_node(graph, "Const", "all_reduce/loss_scale", {},
                   {{"dtype", DType::Float32}, {"value", Tensor::scalar(gradient_scale())}});
      training.loss =
          add_node(graph, "Mul", "all_reduce/mean_loss", {training.loss, scale}, {{"T", DType::Float32}});
    }
    training.weighted_loss = training.loss;
    training.stop_votes = {id, 1};
  }

  const proto::Pipeline pipeline_;
  const Mesh mesh_;
  const int stage_;
  const Optimizers optimizers_;
  const float clip_norm_;
  const Domain domain_;
  PipelinePlan plan_;
  PipelineCut cut_;
  PipelineLinks links_;
  const std::shared_ptr<StageMail> mail_ = std::make_shared<StageMail>();
  GroupExchanges between_groups_;
  std::vector<FeedSpec> columns_;
  std::vector<StageVariable> variables_;  // of the model
  std::vector<std::int64_t> sent_bytes_;  // by stage, of a micro-batch
  std::vector<CommStep> steps_;
  std::unique_ptr<StageService> service_;
};

}  // namespace

std::unique_ptr<Strategy> make_pipeline_strategy(const proto::Job& job, Runtime& runtime,
                                                 const Peers& peers) {
  return std::make_unique<PipelineStrategy>(job, runtime, peers);
}

}  // namespace braid::worker
