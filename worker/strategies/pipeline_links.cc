#include "worker/strategies/pipeline_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "base/error.h"
#include "engine/ir/infer.h"
#include "engine/ir/op.h"

namespace braid::worker {
namespace {

class Links {
 public:
  Links(const TrainingGraph& training, const PipelineNodes& nodes, const PipelinePlan& plan)
      : training_(training), graph_(training.graph), nodes_(nodes), plan_(plan) {}

  PipelineLinks run() {
    const auto size = static_cast<std::size_t>(graph_.size());
    found_.stage.assign(size, -1);
    found_.task.assign(size, std::nullopt);
    behind_parts_.assign(size, 0);
    for (std::size_t i = 0; i < nodes_.order.size(); ++i) {
      place_[nodes_.order[i]] = i;
      settle(nodes_.order[i]);
    }
    for (const NodeId id : nodes_.order)
      if (stage(id) >= 0) look_at(id);
    put_in_order();
    take_slots();
    found_.kept_bytes.assign(plan_.times.size(), 0);
    for (const auto& [key, bytes] : kept_) found_.kept_bytes[static_cast<std::size_t>(key.first)] += bytes;
    return std::move(found_);
  }

 private:
  using Key = std::tuple<StageLink, std::int64_t>;  // and the part

  int& stage(NodeId id) { return found_.stage[static_cast<std::size_t>(id)]; }
  const std::optional<PipelineTask>& task(NodeId id) const {
    return found_.task[static_cast<std::size_t>(id)];
  }

  void settle(NodeId id) {
    if (nodes_.is(nodes_.free, id)) return;
    const Node& node = graph_.node(id);
    if (const auto said = stage_of(node)) {
      stage(id) = *said;
    } else {
      for (const ValueRef input : node.inputs) stage(id) = std::max(stage(id), stage(input.node));
      for (const NodeId control : node.control_inputs) stage(id) = std::max(stage(id), stage(control));
      stage(id) = std::max(stage(id), 0);
    }
    const auto at = static_cast<std::size_t>(id);
    const std::int64_t part = at < training_.part_of.size() ? training_.part_of[at] : -1;
    if (part >= 0) found_.task[at] = PipelineTask{nodes_.is(nodes_.backward, id), part};
    behind_parts_[at] = part >= 0 || std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueRef input) {
                          return behind_parts_[static_cast<std::size_t>(input.node)] != 0;
                        });
  }

  void look_at(NodeId id) {
    const Node& node = graph_.node(id);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueRef input = node.inputs[i];
      const int from = stage(input.node);
      if (from < 0) continue;
      if (from != stage(id) && !stays_home(nodes_, node, i)) transfer(input, id);
      keep(input, id, i);
    }
    for (const NodeId control : node.control_inputs) {
      const bool groups = node.op->role == OpRole::Nothing;
      if (stage(control) < 0 || stage(control) == stage(id) || groups) continue;
      throw InvalidArgument(
          fmt::format("{} on stage {} of the pipeline waits for {} of stage {} by a control edge: put them "
                      "onto one stage",
                      place_of(node), stage(id), place_of(graph_.node(control)), stage(control)));
    }
  }

  void transfer(ValueRef value, NodeId reader) {
    const Node& maker = graph_.node(value.node);
    const int from = stage(value.node), to = stage(reader);
    const std::string both = fmt::format("{} on stage {} of the pipeline reads {} of stage {}",
                                         place_of(graph_.node(reader)), to, place_of(maker), from);
    const OutputInfo& info = nodes_.inferred.info(value);
    if (info.dtype == DType::Resource || info.dtype == DType::String)
      throw InvalidArgument(both + ", which is no value that can be sent: put them onto one stage");
    if (!info.shape.is_static())
      throw InvalidArgument(both + ", whose size depends on the data: " + info.shape.to_string());
    const auto& made_in = task(value.node);
    if (!made_in && behind_parts_[static_cast<std::size_t>(value.node)])
      throw InvalidArgument(both + ", which is made of all micro-batches");
    const bool backward = made_in && made_in->backward;
    if (backward ? to > from : to < from)
      throw InvalidArgument(both + ", against the direction of the " + (backward ? "backward" : "forward") +
                            " pass");
    if (!sent_.insert({value, to}).second) return;
    if (!made_in) {
      once_.push_back({{from, to, false}, std::nullopt, {value}});
      return;
    }
    values_[{{from, to, backward}, made_in->part}].push_back(value);
  }

  /// Bytes that wait for the backward pass, of the first part.
  void keep(ValueRef value, NodeId reader, std::size_t input) {
    const auto& made_in = task(value.node);
    const auto& read_in = task(reader);
    if (!made_in || !read_in || made_in->part != 0 || made_in->backward || !read_in->backward) return;
    const OutputInfo& info = nodes_.inferred.info(value);
    if (!info.shape.is_static() || stays_home(nodes_, graph_.node(reader), input)) return;
    kept_[{stage(reader), value}] = info.shape.elements() * static_cast<std::int64_t>(dtype_size(info.dtype));
  }

  void put_in_order() {
    std::stable_sort(once_.begin(), once_.end(), [&](const PipelineTransfer& a, const PipelineTransfer& b) {
      return place_.at(a.values[0].node) < place_.at(b.values[0].node);
    });
    found_.transfers = std::move(once_);
    std::set<StageLink> links;
    for (const auto& [key, values] : values_) links.insert(std::get<StageLink>(key));
    // As if stages were equal, which cuts make them nearly: an order by times that turn out to be wrong makes
    // stages wait for each other, this one hardly (docs/design/adr/0023-stages-of-a-pipeline.md).
    const std::vector<StageLink> all(links.begin(), links.end());
    const std::vector<StageTimes> equal(plan_.times.size());
    for (const PipelineMessage& message : simulate_pipeline(plan_.order, equal, plan_.parts, all).messages)
      if (const auto found = values_.find({message.link, message.part}); found != values_.end())
        found_.transfers.push_back({message.link, message.part, std::move(found->second)});
    const PipelineTimes times = simulate_pipeline(plan_.order, plan_.times, plan_.parts, all);
    double busy = 0;
    for (const StageTimes& time : plan_.times)
      busy += (time.forward + time.backward) * static_cast<double>(plan_.parts);
    found_.bubble = 1 - busy / (times.step * static_cast<double>(plan_.times.size()));
  }

  /// One is filled while the other is taken out.
  void take_slots() {
    constexpr int kTurns = 2;
    std::map<std::pair<int, int>, std::vector<PipelineTransfer*>> pairs;
    for (PipelineTransfer& transfer : found_.transfers)
      pairs[{transfer.link.from, transfer.link.to}].push_back(&transfer);
    for (const auto& [pair, transfers] : pairs) {
      const int first = static_cast<int>(found_.slots.size());
      const int turns = std::min(kTurns, static_cast<int>(transfers.size()));
      found_.slots.resize(found_.slots.size() + static_cast<std::size_t>(turns),
                          {pair.first, pair.second, 0});
      for (std::size_t t = 0; t < transfers.size(); ++t) {
        transfers[t]->slot = first + static_cast<int>(t) % turns;
        std::int64_t& room = found_.slots[static_cast<std::size_t>(transfers[t]->slot)].bytes;
        room = std::max(room, room_of(*transfers[t]));
      }
    }
  }

  std::int64_t room_of(const PipelineTransfer& transfer) const {
    std::vector<std::int64_t> bytes;
    for (const ValueRef value : transfer.values) bytes.push_back(value_bytes(nodes_.inferred.info(value)));
    return comm::mail_room(bytes);
  }

  const TrainingGraph& training_;
  const Graph& graph_;
  const PipelineNodes& nodes_;
  const PipelinePlan& plan_;
  PipelineLinks found_;
  std::vector<char> behind_parts_;
  std::map<NodeId, std::size_t> place_;
  std::set<std::pair<ValueRef, int>> sent_;
  std::map<Key, std::vector<ValueRef>> values_;
  std::vector<PipelineTransfer> once_;
  std::map<std::pair<int, ValueRef>, std::int64_t> kept_;
};

}  // namespace

bool stays_home(const PipelineNodes& nodes, const Node& reader, std::size_t input) {
  return nodes.inferred.known_value(reader.inputs[input]) ||
         (reads_shape_only(reader, input) && nodes.inferred.info(reader.inputs[input]).shape.is_static());
}

PipelineLinks find_links(const TrainingGraph& training, const PipelineNodes& nodes,
                         const PipelinePlan& plan) {
  return Links(training, nodes, plan).run();
}

}  // namespace braid::worker
