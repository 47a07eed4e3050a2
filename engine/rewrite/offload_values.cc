// Offload, where options ask for it: a value that rests, which is that nobody reads it for longer than it
// takes to copy it to the host and back, is on the host meanwhile (braid.DeviceToHost, braid.HostToDevice),
// and who reads it afterwards reads the copy. That finds the activations that a backward pass reads, without
// knowing of passes. It runs behind all passes that make nodes of others, so that the kernels, and the bits,
// are those without it; the copies have streams of their own lanes beside them. On the host they are plain
// copies.
//
// Times are those of the cost model, of one node after another, in the order in which nodes could start at
// the earliest. All edges that are added go forward in that order. Two kinds of them keep memory small:
//   - what writes a value that rests waits until one that was written some way before has left
//   - a copy back waits for what comes before the first reader of another value that is needed some way
//     earlier
// "Some way" is kAhead times the largest of the values: so many bytes are there beside the step's others, and
// a copy has that far to hide behind kernels.
#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>

#include "base/error.h"
#include "engine/ir/offload_attrs.h"
#include "engine/ir/op.h"
#include "engine/program/cost_model.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/rewrite.h"

namespace braid {
namespace {

constexpr std::int64_t kLeast = 1 << 16;  // bytes that a copy is worth
constexpr std::int64_t kAhead = 2;
constexpr double kWorth = 3;  // times both copies: less than that other copies may take

struct Reader {
  NodeId node = kNoNode;
  std::size_t input = 0;
};

/// A value that leaves: when it is made, read for the last time before it rests, and first read then.
struct Resting {
  ValueRef value;
  std::int64_t bytes = 0;
  std::int64_t made = 0, left = 0, needed = 0;  // positions
  std::vector<Reader> late;                     // of the value or its views
  NodeId away = kNoNode, back = kNoNode;
};

class Offloading {
 public:
  explicit Offloading(Plan& plan) : plan_(plan), graph_(plan.program.graph), asked_(plan.options.offload) {
    find_order();
    readers_.resize(static_cast<std::size_t>(graph_.size()));
    for (const NodeId id : order_) {
      const Node& node = graph_.node(id);
      for (std::size_t i = 0; i < node.inputs.size(); ++i)
        readers_[static_cast<std::size_t>(node.inputs[i].node)].push_back({id, i});
    }
  }

  void run() {
    std::vector<Resting> chosen = choose(all_that_rest());
    if (chosen.empty()) {
      plan_.note(Severity::Warning, "no value rests long enough to be offloaded");
      return;
    }
    std::int64_t bytes = 0, largest = 0;
    for (const Resting& one : chosen) {
      bytes += one.bytes;
      largest = std::max(largest, one.bytes);
    }
    for (Resting& one : chosen) add_copies(one);
    hold_writers(chosen, kAhead * largest);
    hold_copies(chosen, kAhead * largest);
    for (const Resting& one : chosen) redirect(one);
    plan_.note(Severity::Info, fmt::format("{} values of {:.1f} MB are on the host while they rest",
                                           chosen.size(), static_cast<double>(bytes) / 1e6));
  }

 private:
  std::int64_t position(NodeId id) const { return position_[static_cast<std::size_t>(id)]; }

  double cost_of(const Node& node) const {
    if (node.op->role != OpRole::Ordinary || node.outputs.empty() ||
        (!node.op->views.empty() && node.op->views.size() == node.outputs.size()))
      return 0;
    return modelled_us(modelled_cost(graph_, node), node.op->lane, plan_.domain_of(node.id));
  }

  void find_order() {
    const std::vector<NodeId> sorted = graph_.topological_order();
    std::vector<double> start(static_cast<std::size_t>(graph_.size())), cost(start.size());
    for (const NodeId id : sorted) {
      const auto at = static_cast<std::size_t>(id);
      cost[at] = cost_of(graph_.node(id));
      const auto follow = [&](NodeId before) {
        start[at] = std::max(
            start[at], start[static_cast<std::size_t>(before)] + cost[static_cast<std::size_t>(before)]);
      };
      for (const ValueRef input : graph_.node(id).inputs) follow(input.node);
      for (const NodeId control : graph_.node(id).control_inputs) follow(control);
    }
    order_ = sorted;  // among equal starts, as there: inputs come first
    std::ranges::stable_sort(order_, {}, [&](NodeId id) { return start[static_cast<std::size_t>(id)]; });
    position_.assign(start.size(), -1);
    double now = 0;
    for (std::size_t at = 0; at < order_.size(); ++at) {
      const auto id = static_cast<std::size_t>(order_[at]);
      position_[id] = static_cast<std::int64_t>(at);
      time_.push_back(now);
      now += cost[id];
    }
  }

  static const std::pair<int, int>* view_of(const Node& node, std::size_t input) {
    for (const auto& view : node.op->views)
      if (static_cast<std::size_t>(view.second) == input) return &view;
    return nullptr;
  }

  /// Of the value itself and of its views, which share its memory. False where it cannot be redirected.
  bool collect_readers(ValueRef value, std::vector<Reader>& found) const {
    for (const Reader& reader : readers_[static_cast<std::size_t>(value.node)]) {
      const Node& node = graph_.node(reader.node);
      if (node.inputs[reader.input] != value || uses_shape_only(node, reader.input)) continue;
      if (const auto* view = view_of(node, reader.input)) {
        const ValueRef seen{reader.node, view->first};
        if (node.op->views.size() != node.outputs.size() || plan_.feed_of(seen) >= 0 ||
            !collect_readers(seen, found))
          return false;
      } else {
        found.push_back(reader);
      }
    }
    return true;
  }

  /// Whether the program computes it into memory of the step.
  bool is_computed(const Node& node, int output) const {
    const OutputInfo& info = node.outputs[static_cast<std::size_t>(output)];
    const bool is_view = std::any_of(node.op->views.begin(), node.op->views.end(),
                                     [&](const auto& view) { return view.first == output; });
    return !is_view && node.op->role == OpRole::Ordinary && node.op->lane == Lane::Compute &&
           plan_.domain_of(node.id) == plan_.options.domain && info.dtype != DType::Resource &&
           info.dtype != DType::String && info.shape.has_rank() && info.shape.is_static() &&
           plan_.feed_of({node.id, output}) < 0 && !graph_.known_value({node.id, output}) &&
           !is_fetched(plan_, node.id);
  }

  std::vector<Resting> all_that_rest() const {
    const CostModel& model = cost_model(plan_.options.domain);
    std::vector<Resting> all;
    for (const NodeId id : order_) {
      const Node& node = graph_.node(id);
      for (int output = 0; output < static_cast<int>(node.outputs.size()); ++output) {
        if (!is_computed(node, output)) continue;
        const OutputInfo& info = node.outputs[static_cast<std::size_t>(output)];
        Resting one{{id, output},
                    info.shape.elements() * static_cast<std::int64_t>(dtype_size(info.dtype)),
                    position(id)};
        std::vector<Reader> readers;
        if (one.bytes < kLeast || !collect_readers(one.value, readers)) continue;
        const double copies = 2 * static_cast<double>(one.bytes) / model.link_bytes_per_us;
        if (find_rest(one, readers) > kWorth * copies) all.push_back(std::move(one));
      }
    }
    return all;
  }

  /// The longest time between two uses.
  double find_rest(Resting& one, std::vector<Reader>& readers) const {
    std::ranges::stable_sort(readers, {}, [&](const Reader& reader) { return position(reader.node); });
    double longest = 0;
    std::int64_t before = one.made;
    std::size_t first = readers.size();
    for (std::size_t r = 0; r < readers.size(); ++r) {
      const std::int64_t at = position(readers[r].node);
      const double rest = time_[static_cast<std::size_t>(at)] - time_[static_cast<std::size_t>(before)];
      if (rest > longest) {
        longest = rest;
        first = r;
        one.left = before;
        one.needed = at;
      }
      before = at;
    }
    one.late.assign(readers.begin() + static_cast<std::ptrdiff_t>(first), readers.end());
    return longest;
  }

  std::vector<Resting> choose(std::vector<Resting> all) const {
    if (!asked_.scope.empty()) return by_name(std::move(all), asked_.scope);
    std::int64_t total = 0, taken = 0;
    for (const Resting& one : all) total += one.bytes;
    std::size_t count = 0;
    while (count < all.size() && static_cast<double>(taken) < asked_.share * static_cast<double>(total))
      taken += all[count++].bytes;
    all.resize(count);
    return all;
  }

  std::vector<Resting> by_name(std::vector<Resting> all, const std::vector<std::string>& patterns) const {
    std::vector<char> chosen(all.size(), 0);
    for (const std::string& text : patterns) {
      const RE2 pattern(text, RE2::Quiet);
      const std::string field = "runtime.offload.scope '" + text + "'";
      if (!pattern.ok()) throw InvalidArgument(field + " is no regular expression: " + pattern.error());
      bool fits = false;
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (!RE2::FullMatch(graph_.node(all[i].value.node).name, pattern)) continue;
        chosen[i] = 1;
        fits = true;
      }
      if (!fits)
        throw InvalidArgument(fmt::format(
            "{} fits no value of {} bytes and more that rests for longer than its copies take ({} do)", field,
            kLeast, all.size()));
    }
    std::size_t kept = 0;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (chosen[i]) std::swap(all[kept++], all[i]);
    all.resize(kept);
    return all;
  }

  NodeId add_copy(const char* op, ValueRef value, const std::string& name, AttrMap attrs = {}) {
    Node node;
    node.op = &OpRegistry::global().require(op);
    node.inputs = {value};
    node.attrs = std::move(attrs);
    const NodeId id = add_node(graph_, std::move(node), name);
    plan_.domains.push_back(plan_.options.domain);
    return id;
  }

  void add_copies(Resting& one) {
    const std::string name = graph_.value_name(one.value);
    one.away = add_copy("braid.DeviceToHost", one.value, name + "/away");
    one.back = add_copy("braid.HostToDevice", {one.away, 0}, name + "/back", {{kInArena, true}});
  }

  /// In the order of `of`, for each entry the nearest one before it so that the bytes from that one on,
  /// without its own, are `ahead` and more; null: there is none.
  template <class Of>
  static std::vector<std::pair<Resting*, const Resting*>> some_way_before(std::vector<Resting>& all,
                                                                          std::int64_t ahead, Of of) {
    std::vector<std::pair<Resting*, const Resting*>> found;
    for (Resting& one : all) found.emplace_back(&one, nullptr);
    std::ranges::stable_sort(found, {}, [&](const auto& entry) { return entry.first->*of; });
    std::int64_t between = 0;
    std::size_t first = 0;
    for (std::size_t at = 0; at < found.size(); ++at) {
      between += found[at].first->bytes;
      while (between - found[first].first->bytes >= ahead) {
        between -= found[first].first->bytes;
        found[at].second = found[first].first;
        ++first;
      }
      if (!found[at].second && first > 0) found[at].second = found[first - 1].first;
    }
    return found;
  }

  void hold_writers(std::vector<Resting>& all, std::int64_t ahead) {
    for (const auto& [one, before] : some_way_before(all, ahead, &Resting::made))
      if (before && before->made < one->made)
        graph_.mutable_node(one->value.node).control_inputs.push_back(before->away);
  }

  /// What the node waits for last; kNoNode: nothing that is computed.
  NodeId latest_input(NodeId id) const {
    NodeId latest = kNoNode;
    for (const ValueRef input : graph_.node(id).inputs)
      if (input.node < std::ssize(position_) &&
          (latest == kNoNode || position(input.node) > position(latest)))
        latest = input.node;
    return latest;
  }

  void hold_copies(std::vector<Resting>& all, std::int64_t ahead) {
    for (const auto& [one, before] : some_way_before(all, ahead, &Resting::needed)) {
      // Of the first ones that are needed: what comes before their own reader, and before that.
      NodeId near = latest_input(order_[static_cast<std::size_t>((before ? before : one)->needed)]);
      if (!before && near != kNoNode) near = latest_input(near);
      if (near != kNoNode && position(near) > one->left)
        graph_.mutable_node(one->back).control_inputs.push_back(near);
    }
  }

  /// The value that is behind `value` once `one` is back: a view is made anew.
  ValueRef brought(const Resting& one, ValueRef value, std::map<ValueRef, ValueRef>& views) {
    if (value == one.value) return {one.back, 0};
    if (const auto at = views.find(value); at != views.end()) return at->second;
    Node node = graph_.node(value.node);
    for (std::size_t i = 0; i < node.inputs.size(); ++i)
      if (const auto* view = view_of(node, i); view && view->first == value.output)
        node.inputs[i] = brought(one, node.inputs[i], views);
    const std::string name = node.name + "/back";
    const NodeId made = add_node(graph_, std::move(node), name);
    plan_.domains.push_back(plan_.domain_of(value.node));
    return views[value] = {made, value.output};
  }

  void redirect(const Resting& one) {
    std::map<ValueRef, ValueRef> views;
    for (const Reader& reader : one.late) {
      const ValueRef input = brought(one, graph_.node(reader.node).inputs[reader.input], views);
      graph_.mutable_node(reader.node).inputs[reader.input] = input;
    }
  }

  Plan& plan_;
  Graph& graph_;
  const OffloadOptions& asked_;
  std::vector<NodeId> order_;
  std::vector<std::int64_t> position_;  // by node; -1: it is removed
  std::vector<double> time_;            // by position: when it would start, one node after another
  std::vector<std::vector<Reader>> readers_;
};

}  // namespace

void offload_values(Plan& plan) {
  const OffloadOptions& asked = plan.options.offload;
  if (!asked.scope.empty() || asked.share > 0) Offloading(plan).run();
}

}  // namespace braid
