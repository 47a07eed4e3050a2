#include "engine/schedule/stream_pins.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "engine/ir/colocation.h"
#include "engine/ir/op.h"
#include "engine/program/stream_rules.h"
#include "engine/rewrite/horizontal_fusion.h"
#include "engine/schedule/dag.h"

namespace braid {
namespace {

/// An id that somebody has written, and where: no rule means on the node itself.
struct OwnId {
  int stream = kNoStream;
  int rule = -1;
};

class PinFinder {
 public:
  PinFinder(Plan& plan, const std::vector<int>& lanes, Scopes scopes, bool quiet)
      : plan_(plan),
        scopes_(scopes),
        quiet_(quiet),
        graph_(plan.program.graph),
        options_(plan.options.streams),
        lanes_(lanes),
        groups_(graph_),
        own_(static_cast<std::size_t>(graph_.size())),
        by_node_(own_.size(), kNoStream) {
    for (NodeId id = 0; id < graph_.size(); ++id)
      if (!graph_.node(id).removed) live_.push_back(id);
  }

  StreamPins find() {
    if (options_.policy == StreamPolicy::None) {
      for (const NodeId id : live_) pins_.scoped += scope_of(graph_.node(id)) != kNoStream;
      pins_.hand_set = pins_.scoped;
      if (options_.rules && options_.rules->size() > 0) note("NONE does not use the rules file");
      if (options_.forward_propagation) note("NONE does not use forward propagation");
    } else {
      find_scopes();
      if (options_.rules) find_rules();
      for (const NodeId id : live_) pin(id) = own(id).stream;
      apply_colocation();
      if (options_.grad_follows_forward) follow_forward();
    }
    collect();
    if (options_.policy != StreamPolicy::None && options_.forward_propagation) propagate();
    return std::move(pins_);
  }

 private:
  OwnId& own(NodeId id) { return own_[static_cast<std::size_t>(id)]; }
  int& pin(NodeId id) { return by_node_[static_cast<std::size_t>(id)]; }
  void note(std::string text) {
    if (!quiet_) plan_.note(Severity::Info, std::move(text));
  }
  void warn(std::string text) {
    if (!quiet_) plan_.note(Severity::Warning, std::move(text));
  }

  std::string streams_there_are() const {
    return fmt::format("the program has {} compute stream{} (0 to {})", options_.count,
                       options_.count == 1 ? "" : "s", options_.count - 1);
  }
  bool exists(int stream) const { return stream >= 0 && stream < options_.count; }

  int scope_of(const Node& node) const { return scopes_ == Scopes::Used ? node.stream : kNoStream; }

  /// What autodiff wrote on a backward node is the forward node's id, not one of its own.
  bool is_inherited(const Node& node) const {
    return node.forward_of != kNoNode && graph_.node(node.forward_of).stream == node.stream;
  }

  void find_scopes() {
    for (const NodeId id : live_) {
      const Node& node = graph_.node(id);
      if (scope_of(node) == kNoStream) continue;
      if (!exists(node.stream))
        throw InvalidArgument(fmt::format("{}: stream {} does not exist; {}", place_of(node), node.stream,
                                          streams_there_are()));
      ++pins_.scoped;
      if (!is_inherited(node)) own(id).stream = node.stream;
    }
    pins_.hand_set = pins_.scoped;
  }

  // -------------------------------------------------------------------------------------------------- rules

  /// What a rule has found.
  struct Found {
    int names = 0;
    bool matters = false;  // for a node that runs, or decides about others
    bool late = false;     // lines before it decide nodes that it names
  };

  void find_rules() {
    const StreamRules& rules = *options_.rules;
    if (rules.size() == 0) warn(rules.source() + " has no rules");
    std::vector<Found> found(static_cast<std::size_t>(rules.size()));
    const std::vector<char> matters = nodes_that_matter();
    for (const NodeId id : live_) {
      const Node& node = graph_.node(id);
      const auto rule = find_rule(node, matters[static_cast<std::size_t>(id)], found);
      if (!rule) continue;
      check_rule(*rule, place_of(node));
      const int scope = own(id).stream, stream = rules.rule(*rule).stream;
      if (scope != kNoStream && scope != stream) scoped_.add(node.name);
      if (scope != kNoStream && options_.scopes_win) continue;
      own(id) = {stream, *rule};
      pins_.hand_set += scope_of(node) == kNoStream;
    }
    rule_of_op_.assign(static_cast<std::size_t>(plan_.ops()), -1);
    for (int op = 0; op < plan_.ops(); ++op) {
      const ProgramOp& made = plan_.op(op);
      const bool is_node = made.kind == OpKind::Kernel;
      const auto rule = rules.find(made.name);
      if (!rule) continue;
      if (!is_node) found[static_cast<std::size_t>(*rule)] = {1, true};
      check_rule(*rule, plan_.program.place(op));
      if (lanes_[static_cast<std::size_t>(op)] != kNoStream)
        fixed_.add(made.name);
      else if (!is_node)
        rule_of_op_[static_cast<std::size_t>(op)] = *rule;
    }
    for (const NodeId id : live_)
      for (const int rule : rules.find_all(graph_.node(id).name))
        found[static_cast<std::size_t>(rule)].late = true;
    for (int rule = 0; rule < rules.size(); ++rule) {
      check_rule(rule, "");
      warn_of_rule(rule, found[static_cast<std::size_t>(rule)]);
    }
    warn_of_patterns(found);
    if (scoped_.count > 0)
      note(fmt::format("rules: {} of the named nodes {} the stream of their scope (first: '{}')",
                       scoped_.count, options_.scopes_win ? "keep" : "leave", scoped_.first));
    if (fixed_.count > 0)
      note(fmt::format("rules: {} of the named nodes keep the stream of their lane (first: '{}')",
                       fixed_.count, fixed_.first));
  }

  /// Constants, inputs and views take no time on any stream, unless others go where they are.
  std::vector<char> nodes_that_matter() const {
    std::vector<char> matters(static_cast<std::size_t>(graph_.size()), 0);
    for (int op = 0; op < plan_.ops(); ++op)
      if (plan_.op(op).node != kNoNode) matters[static_cast<std::size_t>(plan_.op(op).node)] = 1;
    for (const NodeId id : live_) {
      if (groups_.is_grouped(id)) matters[static_cast<std::size_t>(id)] = 1;
      const NodeId forward = graph_.node(id).forward_of;
      if (forward != kNoNode) matters[static_cast<std::size_t>(forward)] = 1;
    }
    return matters;
  }

  void warn_of_rule(int rule, const Found& found) {
    const StreamRules& rules = *options_.rules;
    const auto& [stream, line, text] = rules.rule(rule);
    if (found.names > 0) {
      if (!found.matters)
        warn(fmt::format("{}: '{}' names only constants, inputs and views, which run on no stream",
                         rules.place(rule), text));
      return;
    }
    warn(found.late
             ? fmt::format("{}: lines before it decide all nodes that '{}' names", rules.place(rule), text)
             : fmt::format("{}: no node matches '{}'", rules.place(rule), text));
  }

  /// One of several regexes of a line that finds nothing, not even a node that is not run.
  void warn_of_patterns(const std::vector<Found>& found) {
    const StreamRules& rules = *options_.rules;
    std::vector<char> matched(static_cast<std::size_t>(rules.patterns()), 0);
    const auto look_for = [&](const std::string& name) {
      for (const int pattern : rules.find_patterns(name)) matched[static_cast<std::size_t>(pattern)] = 1;
    };
    for (NodeId id = 0; id < graph_.size(); ++id) {
      look_for(graph_.node(id).name);
      for (const std::string& lane : lanes_of(graph_.node(id))) look_for(lane);
    }
    for (int op = 0; op < plan_.ops(); ++op) look_for(plan_.op(op).name);
    for (int pattern = 0; pattern < rules.patterns(); ++pattern) {
      const int rule = rules.rule_of_pattern(pattern);
      const Found& its = found[static_cast<std::size_t>(rule)];
      if (!matched[static_cast<std::size_t>(pattern)] && (its.names > 0 || its.late))
        warn(fmt::format("{}: no node matches '{}' of '{}'", rules.place(rule), rules.pattern(pattern),
                         rules.rule(rule).text));
    }
  }

  static std::vector<std::string> lanes_of(const Node& node) {
    return node.attrs.get<std::vector<std::string>>(kLanes, {});
  }

  /// By the node's name, else by those of its lanes, the first that a rule names.
  std::optional<int> find_rule(const Node& node, bool matters, std::vector<Found>& found) const {
    std::optional<int> first;
    const auto look_for = [&](const std::string& name) {
      const auto rule = options_.rules->find(name);
      if (!rule) return;
      Found& its = found[static_cast<std::size_t>(*rule)];
      ++its.names;
      its.matters = its.matters || matters;
      if (!first) first = rule;
    };
    look_for(node.name);
    for (const std::string& lane : lanes_of(node)) look_for(lane);
    return first;
  }

  void check_rule(int rule, const std::string& node) const {
    const StreamRules& rules = *options_.rules;
    const int stream = rules.rule(rule).stream;
    if (!exists(stream))
      throw InvalidArgument(fmt::format("{}{}{}: stream {} does not exist; {}", rules.place(rule),
                                        node.empty() ? "" : ": ", node, stream, streams_there_are()));
  }

  // --------------------------------------------------------------------------------------------- colocation

  /// An id of a node that is removed is still its scope's.
  int id_of(NodeId id) const {
    const Node& node = graph_.node(id);
    return node.removed ? scope_of(node) : own_[static_cast<std::size_t>(id)].stream;
  }
  int id_of_rule(NodeId id) const {
    const OwnId& its = own_[static_cast<std::size_t>(id)];
    return its.rule < 0 ? kNoStream : its.stream;
  }

  /// Whose id is a group's. Rules correct scopes here, too: they decide between two ids.
  ColocationGroups::Decision decide(NodeId leader) const {
    const auto decision = groups_.decide(leader, [&](NodeId id) { return id_of(id); });
    if (decision.against == kNoNode || options_.scopes_win) return decision;
    const auto by_rules = groups_.decide(leader, [&](NodeId id) { return id_of_rule(id); });
    return by_rules.from == kNoNode ? decision : by_rules;
  }

  std::string source(NodeId id) {
    const int rule = own(id).rule;
    return rule < 0 ? std::string() : fmt::format(" ({})", options_.rules->place(rule));
  }

  void apply_colocation() {
    for (const NodeId leader : groups_.leaders()) {
      const auto [from, against] = decide(leader);
      if (against != kNoNode)
        throw InvalidArgument(fmt::format(
            "{} is on stream {}{} and {} on stream {}{}, but they are colocated", place_of(graph_.node(from)),
            id_of(from), source(from), place_of(graph_.node(against)), id_of(against), source(against)));
      const int stream = from == kNoNode ? kNoStream : id_of(from);
      if (from != kNoNode && !exists(stream))
        throw InvalidArgument(fmt::format("{}: stream {} does not exist; {}", place_of(graph_.node(from)),
                                          stream, streams_there_are()));
      for (const NodeId id : groups_.members(leader))
        if (own(id).rule >= 0 && own(id).stream != stream) colocated_.add(graph_.node(id).name);
      pin_group(leader, stream);
    }
    if (colocated_.count > 0)
      note(fmt::format(
          "rules: {} of the named nodes take the stream of what they are colocated with (first: '{}')",
          colocated_.count, colocated_.first));
  }

  void pin_group(NodeId leader, int stream) {
    for (const NodeId id : groups_.members(leader)) pin(id) = stream;
  }

  /// With what they are colocated with: an update is on the stream of its gradient.
  void follow_forward() {
    for (const NodeId id : live_) {
      const Node& node = graph_.node(id);
      if (pin(id) != kNoStream || node.forward_of == kNoNode) continue;
      const Node& forward = graph_.node(node.forward_of);
      const int stream = forward.removed ? scope_of(forward) : pin(node.forward_of);
      if (forward.include_grad && stream != kNoStream) pin_group(groups_.leader(id), stream);
    }
  }

  // ---------------------------------------------------------------------------------------------------- ops

  void collect() {
    std::map<NodeId, int> leaders;  // of groups of nodes: their first ops
    for (int op = 0; op < plan_.ops(); ++op) {
      const NodeId node = plan_.op(op).node;
      const int rule = rule_of_op_.empty() ? -1 : rule_of_op_[static_cast<std::size_t>(op)];
      const int stream = node == kNoNode ? kNoStream : pin(node);
      pins_.stream.push_back(rule < 0 ? stream : options_.rules->rule(rule).stream);
      // A lane's stream is its own.
      const bool grouped = rule < 0 && node != kNoNode && groups_.is_grouped(node) &&
                           lanes_[static_cast<std::size_t>(op)] == kNoStream;
      pins_.leader.push_back(grouped ? leaders.try_emplace(groups_.leader(node), op).first->second : op);
    }
  }

  void propagate() {
    const Dag dag(plan_);
    int found = 0;
    std::vector<int> votes(static_cast<std::size_t>(options_.count));
    for (const int op : dag.rank_order()) {
      int& stream = pins_.stream[static_cast<std::size_t>(op)];
      if (stream != kNoStream || lanes_[static_cast<std::size_t>(op)] != kNoStream) continue;
      int& group = pins_.stream[static_cast<std::size_t>(pins_.leader[static_cast<std::size_t>(op)])];
      if (group == kNoStream) {
        std::fill(votes.begin(), votes.end(), 0);
        for (const int dep : dag.deps(op)) {
          const int from = pins_.stream[static_cast<std::size_t>(dep)];
          if (from != kNoStream && lanes_[static_cast<std::size_t>(dep)] == kNoStream)
            ++votes[static_cast<std::size_t>(from)];
        }
        const auto most = std::max_element(votes.begin(), votes.end());
        if (*most > 0) group = static_cast<int>(most - votes.begin());
      }
      stream = group;
      found += stream != kNoStream;
    }
    note(fmt::format("forward propagation gave {} ops the stream of their inputs", found));
  }

  struct Named {
    int count = 0;
    std::string first;
    void add(const std::string& name) {
      if (count++ == 0) first = name;
    }
  };

  Plan& plan_;
  const Scopes scopes_;
  const bool quiet_;  // no notes
  const Graph& graph_;
  const StreamOptions& options_;
  const std::vector<int>& lanes_;
  const ColocationGroups groups_;
  std::vector<NodeId> live_;
  std::vector<OwnId> own_;
  std::vector<int> by_node_;
  std::vector<int> rule_of_op_;       // of copies and joins
  Named scoped_, fixed_, colocated_;  // by rules, but decided elsewhere
  StreamPins pins_;
};

}  // namespace

StreamPins find_stream_pins(Plan& plan, const std::vector<int>& lanes) {
  return PinFinder(plan, lanes, plan.options.streams.scopes, false).find();
}

StreamPins find_pins_without_scopes(Plan& plan, const std::vector<int>& lanes) {
  return PinFinder(plan, lanes, Scopes::KeptApart, true).find();
}

}  // namespace braid
