#include "cli/queue_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <map>

#include "engine/import/node_inputs.h"
#include "proto/graph.pb.h"

namespace braid::cli {
namespace {

bool is_one_of(std::string_view op, std::initializer_list<std::string_view> ops) {
  return std::find(ops.begin(), ops.end(), plain(op)) != ops.end();
}

bool is_queue(const NodeDef& node) {
  return is_one_of(node.op(), {"FIFOQueue", "RandomShuffleQueue", "PaddingFIFOQueue"});
}

bool fills_queue(const NodeDef& node) { return is_one_of(node.op(), {"QueueEnqueue", "QueueEnqueueMany"}); }

bool reads_records(const NodeDef& node) { return is_one_of(node.op(), {"ReaderRead", "ReaderReadUpTo"}); }

/// The types of what a source gives; nothing where the graph does not say them.
std::vector<DataType> types_of_source(const NodeDef& node) {
  if (reads_records(node)) return {DT_STRING, DT_STRING};
  std::vector<DataType> types;
  if (const auto at = node.attr().find("component_types"); at != node.attr().end())
    for (const int type : at->second.list().type()) types.push_back(static_cast<DataType>(type));
  return types;
}

}  // namespace

std::string_view plain(std::string_view op) {
  if (op.ends_with("V2")) op.remove_suffix(2);
  return op;
}

bool is_source(const NodeDef& node) {
  const std::string_view op = plain(node.op());
  return op == "QueueDequeue" || op == "QueueDequeueMany" || op == "QueueDequeueUpTo" || op == "ReaderRead" ||
         op == "ReaderReadUpTo";
}

std::set<std::string> set_queues_aside(GraphDef& graph) {
  std::map<std::string, const NodeDef*> nodes;
  std::set<std::string> filled;  // queues
  for (const NodeDef& node : graph.node()) {
    nodes.emplace(node.name(), &node);
    if (fills_queue(node) && node.input_size() > 1) filled.insert(node_of(node.input(0)));
  }
  const auto can_run = [&](const NodeDef& source) {
    const int queue = reads_records(source) ? 1 : 0;
    if (source.input_size() <= queue || !filled.contains(node_of(source.input(queue)))) return false;
    const auto reader = nodes.find(node_of(source.input(0)));
    return !reads_records(source) ||
           (reader != nodes.end() && is_one_of(reader->second->op(), {"TextLineReader", "TFRecordReader",
                                                                      "WholeFileReader", "IdentityReader"}));
  };
  std::set<std::string> aside;
  std::map<std::string, std::string> renamed;  // outputs of sources
  std::vector<NodeDef> placeholders;
  for (NodeDef& node : *graph.mutable_node()) {
    const bool is_other =
        fills_queue(node) || (is_queue(node) && filled.contains(node.name())) ||
        is_one_of(node.op(), {"QueueClose", "CountUpTo", "ResourceCountUpTo", "TextLineReader",
                              "TFRecordReader", "WholeFileReader", "IdentityReader"});
    if (is_other) aside.insert(node.name());
    if (!is_source(node) || !can_run(node)) continue;
    aside.insert(node.name());
    const std::vector<DataType> types = types_of_source(node);
    for (std::size_t i = 0; i < types.size(); ++i) {
      NodeDef& placeholder = placeholders.emplace_back();
      placeholder.set_name(fmt::format("{}/dequeued_{}", node.name(), i));
      placeholder.set_op("Placeholder");
      (*placeholder.mutable_attr())["dtype"].set_type(types[i]);
      renamed[fmt::format("{}:{}", node.name(), i)] = placeholder.name();
      if (i == 0) renamed[node.name()] = placeholder.name();
    }
  }
  for (NodeDef& node : *graph.mutable_node())
    for (std::string& input : *node.mutable_input())
      if (const auto at = renamed.find(input); at != renamed.end()) input = at->second;
  for (NodeDef& placeholder : placeholders) *graph.add_node() = std::move(placeholder);
  return aside;
}

}  // namespace braid::cli
