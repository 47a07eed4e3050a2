#include "engine/staging/graph_stage.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "engine/ir/op.h"

namespace braid {
namespace {

using Stages = std::vector<GraphStage>;

std::string quoted(const std::string& name) { return "'" + name + "'"; }

/// Which variables the nodes of a part read and write.
struct VariableUse {
  std::map<std::string, NodeId> read, written;  // by name: a node that does
  void add(const VariableUse& other) {
    read.insert(other.read.begin(), other.read.end());
    written.insert(other.written.begin(), other.written.end());
  }
};

VariableUse variable_use(const Graph& graph, const GraphPart& part) {
  VariableUse use;
  for (const NodeId id : part.nodes) {
    const Node& node = graph.node(id);
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      if (graph.info(node.inputs[i]).dtype != DType::Resource) continue;
      const Access access = handle_access(*node.op, i);
      if (access == Access::None) continue;
      const std::string name = variable_of(graph, node.inputs[i]).name;
      if (access != Access::Write) use.read.emplace(name, id);
      if (access != Access::Read) use.written.emplace(name, id);
    }
  }
  return use;
}

class Cutter {
 public:
  Cutter(const Graph& graph, Stages stages) : graph_(graph) {
    result_.stages = std::move(stages);
    for (GraphStage& stage : result_.stages) add_siblings(graph, stage.outputs);
  }

  StagedGraph run(const std::vector<std::string>& fetches, const std::vector<std::string>& targets) {
    own_outputs();
    check_names();
    for (const GraphStage& stage : result_.stages) add_part(stage);
    std::vector<ValueRef> roots;
    std::vector<NodeId> nodes;
    for (const std::string& name : fetches) roots.push_back(graph_.parse_value(name));
    for (const std::string& name : targets) nodes.push_back(node_named(graph_, name));
    result_.step = part_above(graph_, roots, nodes, outputs_);
    result_.step_stages = owners_of({&result_.step}, -1);
    sort_stages();
    check_takers();
    check_variables();
    return std::move(result_);
  }

 private:
  const std::string& name(int stage) const {
    return result_.stages[static_cast<std::size_t>(stage)].options.name;
  }

  /// Their threads, streams and metrics are told apart by them.
  void check_names() const {
    std::set<std::string> names;
    for (const GraphStage& stage : result_.stages)
      if (!names.insert(stage.options.name).second)
        throw InvalidArgument("two stages are called " + quoted(stage.options.name));
  }

  void own_outputs() {
    for (std::size_t s = 0; s < result_.stages.size(); ++s)
      for (const ValueRef value : result_.stages[s].outputs) {
        const auto [at, is_new] = owner_.emplace(value, static_cast<int>(s));
        if (!is_new)
          throw InvalidArgument("stage " + quoted(name(static_cast<int>(s))) + ": value " +
                                quoted(graph_.value_name(value)) + " is handed over by stage " +
                                quoted(name(at->second)) + " already");
        outputs_.push_back(value);
      }
  }

  /// A stage computes its own outputs: they are not given to it, unless they are above other outputs of it.
  void add_part(const GraphStage& stage) {
    std::vector<ValueRef> others;
    for (const ValueRef value : outputs_)
      if (std::find(stage.outputs.begin(), stage.outputs.end(), value) == stage.outputs.end())
        others.push_back(value);
    StagePart part;
    std::vector<ValueRef> fed, evaluated;
    for (const auto& [placeholder, value] : stage.feeds) {
      fed.push_back(placeholder);
      evaluated.push_back(value);
    }
    part.feeding = part_above(graph_, evaluated, {}, others);
    std::vector<ValueRef> given = others;
    given.insert(given.end(), fed.begin(), fed.end());
    part.body = part_above(graph_, stage.outputs, {}, given);
    check_feeds(stage, part.body);
    std::erase_if(part.body.taken,
                  [&](ValueRef v) { return std::find(fed.begin(), fed.end(), v) != fed.end(); });
    part.upstream = owners_of({&part.feeding, &part.body}, static_cast<int>(result_.parts.size()));
    for (const auto& values : stage.joined) part.joined.push_back(joined_part(stage, part, values));
    result_.parts.push_back(std::move(part));
  }

  /// `body` still has what is fed among the values that it takes.
  void check_feeds(const GraphStage& stage, const GraphPart& body) const {
    const auto require = [&](bool good, ValueRef fed, const std::string& what) {
      if (!good)
        throw InvalidArgument("stage " + quoted(stage.options.name) + ": its feed_dict feeds " +
                              quoted(graph_.value_name(fed)) + what);
    };
    std::set<ValueRef> seen;
    for (const auto& [fed, value] : stage.feeds) {
      require(seen.insert(fed).second, fed, " twice");
      require(std::find(body.taken.begin(), body.taken.end(), fed) != body.taken.end(), fed,
              ", on which nothing that it hands over depends");
      const DType want = graph_.info(fed).dtype, got = graph_.info(value).dtype;
      require(want == got, fed,
              ", which is " + std::string(dtype_name(want)) + ", with " + quoted(graph_.value_name(value)) +
                  ", which is " + std::string(dtype_name(got)));
    }
  }

  GraphPart joined_part(const GraphStage& stage, const StagePart& part,
                        const std::vector<ValueRef>& values) const {
    const auto require = [&](bool good, const std::string& what) {
      if (!good) throw InvalidArgument("stage " + quoted(stage.options.name) + ": joined producers " + what);
    };
    require(stage.feeds.empty(), "cannot have a feed_dict");
    require(values.size() == stage.outputs.size(), "must make the same values, got " +
                                                       std::to_string(values.size()) + " in place of " +
                                                       std::to_string(stage.outputs.size()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const DType want = graph_.info(stage.outputs[i]).dtype, got = graph_.info(values[i]).dtype;
      require(want == got, "must make the same types: " + quoted(graph_.value_name(values[i])) + " is " +
                               std::string(dtype_name(got)) + " in place of " +
                               std::string(dtype_name(want)));
    }
    GraphPart joined = part_above(graph_, values, {}, outputs_);
    require(joined.taken.empty() && part.upstream.empty(), "cannot take from other stages");
    return joined;
  }

  std::vector<int> owners_of(const std::vector<const GraphPart*>& parts, int but) const {
    std::set<int> owners;
    for (const GraphPart* part : parts)
      for (const ValueRef value : part->taken)
        if (const auto at = owner_.find(value); at != owner_.end() && at->second != but)
          owners.insert(at->second);
    return {owners.begin(), owners.end()};
  }

  void sort_stages() {
    std::vector<char> done(result_.parts.size(), 0);
    while (result_.order.size() < result_.parts.size()) {
      const std::size_t before = result_.order.size();
      for (std::size_t s = 0; s < result_.parts.size(); ++s) {
        const auto& upstream = result_.parts[s].upstream;
        if (done[s] || !std::all_of(upstream.begin(), upstream.end(),
                                    [&](int u) { return done[static_cast<std::size_t>(u)]; }))
          continue;
        done[s] = 1;
        result_.order.push_back(static_cast<int>(s));
      }
      if (result_.order.size() > before) continue;
      std::string names;
      for (std::size_t s = 0; s < done.size(); ++s)
        if (!done[s]) names += (names.empty() ? "" : ", ") + quoted(name(static_cast<int>(s)));
      throw InvalidArgument("stages " + names + " need each other's outputs: no order of them works");
    }
  }

  /// A record goes to one taker; two would see every other one each.
  void check_takers() const {
    std::map<int, std::string> taker;
    const auto take = [&](int from, const std::string& who) {
      const auto [at, is_new] = taker.emplace(from, who);
      if (!is_new)
        throw InvalidArgument("stage " + quoted(name(from)) + " is taken from by " + at->second + " and by " +
                              who + ": hand its values on through one of them");
    };
    for (std::size_t s = 0; s < result_.parts.size(); ++s)
      for (const int from : result_.parts[s].upstream)
        take(from, "stage " + quoted(name(static_cast<int>(s))));
    for (const int from : result_.step_stages) take(from, "the step");
  }

  void check_variables() {
    struct User {
      std::string what;
      VariableUse use;
    };
    std::vector<User> users;
    for (std::size_t s = 0; s < result_.parts.size(); ++s) {
      VariableUse use = variable_use(graph_, result_.parts[s].body);
      use.add(variable_use(graph_, result_.parts[s].feeding));
      for (const GraphPart& joined : result_.parts[s].joined) use.add(variable_use(graph_, joined));
      const StageOptions& options = result_.stages[s].options;
      if (!use.written.empty() && (options.num_threads != 1 || !result_.parts[s].joined.empty()))
        throw InvalidArgument("stage " + quoted(options.name) + ": node " +
                              quoted(graph_.node(use.written.begin()->second).name) + " writes variable " +
                              quoted(use.written.begin()->first) +
                              ", so one thread must do all of it: num_threads must be 1");
      for (const auto& [variable, node] : use.read) result_.parts[s].variables.push_back(variable);
      users.push_back({"stage " + quoted(options.name), std::move(use)});
    }
    users.push_back({"the step", variable_use(graph_, result_.step)});
    for (const User& writer : users)
      for (const User& other : users) {
        if (&writer == &other) continue;
        for (const auto& [variable, by] : writer.use.written) {
          const auto read = other.use.read.find(variable);
          const auto written = other.use.written.find(variable);
          if (read == other.use.read.end() && written == other.use.written.end()) continue;
          const NodeId node = read != other.use.read.end() ? read->second : written->second;
          throw InvalidArgument("variable " + quoted(variable) + " is written by " + writer.what + " (node " +
                                quoted(graph_.node(by).name) + ") and used by " + other.what + " (node " +
                                quoted(graph_.node(node).name) +
                                "), which runs beside it: move the cut, so that one of them has both");
        }
      }
  }

  const Graph& graph_;
  StagedGraph result_;
  std::map<ValueRef, int> owner_;
  std::vector<ValueRef> outputs_;
};

}  // namespace

NodeId node_named(const Graph& graph, const std::string& name) {
  const NodeId id = graph.find(name);
  return id != kNoNode ? id : graph.parse_value(name).node;
}

GraphPart part_above(const Graph& graph, const std::vector<ValueRef>& roots,
                     const std::vector<NodeId>& targets, const std::vector<ValueRef>& given) {
  const std::set<ValueRef> stops(given.begin(), given.end());
  std::set<NodeId> seen;
  std::set<ValueRef> taken, placeholders;
  std::vector<NodeId> open;
  const auto need_node = [&](NodeId id) {
    if (seen.insert(id).second) open.push_back(id);
  };
  const auto need = [&](ValueRef value) {
    if (stops.contains(value))
      taken.insert(value);
    else
      need_node(value.node);
  };
  for (const ValueRef value : roots) need(value);
  for (const NodeId id : targets) need_node(id);
  while (!open.empty()) {
    const Node& node = graph.node(open.back());
    open.pop_back();
    if (node.op->role == OpRole::Placeholder) placeholders.insert({node.id, 0});
    for (const ValueRef input : node.inputs) need(input);
    for (const NodeId control : node.control_inputs) {
      // A node all of whose values are given has run.
      const Node& before = graph.node(control);
      bool has_run = !before.outputs.empty();
      for (int output = 0; output < static_cast<int>(before.outputs.size()); ++output)
        has_run = has_run && stops.contains({control, output});
      if (!has_run) {
        need_node(control);
        continue;
      }
      for (int output = 0; output < static_cast<int>(before.outputs.size()); ++output)
        taken.insert({control, output});
    }
  }
  return {
      {seen.begin(), seen.end()}, {placeholders.begin(), placeholders.end()}, {taken.begin(), taken.end()}};
}

void add_siblings(const Graph& graph, std::vector<ValueRef>& values) {
  const std::size_t count = values.size();
  for (std::size_t i = 0; i < count; ++i) {
    const NodeId node = values[i].node;
    for (int output = 0; output < static_cast<int>(graph.node(node).outputs.size()); ++output)
      if (std::find(values.begin(), values.end(), ValueRef{node, output}) == values.end())
        values.push_back({node, output});
  }
}

StagedGraph cut_graph(const Graph& graph, Stages stages, const std::vector<std::string>& fetches,
                      const std::vector<std::string>& targets) {
  return Cutter(graph, std::move(stages)).run(fetches, targets);
}

}  // namespace braid
