#include "cli/queue_runners.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/init.h"
#include "cli/queue_nodes.h"
#include "cli/record_readers.h"
#include "engine/import/convert.h"
#include "engine/import/node_inputs.h"
#include "proto/graph.pb.h"

namespace braid::cli {
namespace {

using Row = std::vector<Tensor>;  // an element: a tensor a component

[[noreturn]] void fail(const NodeDef& node, const std::string& message) {
  throw InvalidArgument(fmt::format("[{}] node '{}': {}", node.op(), node.name(), message));
}

/// Row `row` of a tensor's first axis.
Tensor row_of(const Tensor& tensor, std::int64_t row) {
  const auto dims = tensor.shape().dims();
  const Shape shape(std::vector<std::int64_t>(dims.begin() + 1, dims.end()));
  if (tensor.dtype() == DType::String) {
    std::vector<std::string> texts;
    for (std::int64_t i = 0; i < shape.elements(); ++i)
      texts.emplace_back(tensor.string_at(row * shape.elements() + i));
    return Tensor::strings(shape, texts);
  }
  Tensor result(tensor.dtype(), shape);
  if (result.bytes() != 0)
    std::memcpy(result.raw(), tensor.raw() + static_cast<std::size_t>(row) * result.bytes(), result.bytes());
  return result;
}

Tensor stacked(const NodeDef& node, const std::vector<const Tensor*>& rows) {
  const Tensor& first = *rows.front();
  std::vector<std::int64_t> dims{static_cast<std::int64_t>(rows.size())};
  dims.insert(dims.end(), first.shape().dims().begin(), first.shape().dims().end());
  for (const Tensor* row : rows)
    if (row->shape() != first.shape())
      fail(node, fmt::format("elements of shapes {} and {} make no batch", first.shape().to_string(),
                             row->shape().to_string()));
  if (first.dtype() == DType::String) {
    std::vector<std::string> texts;
    for (const Tensor* row : rows)
      for (std::int64_t i = 0; i < row->elements(); ++i) texts.emplace_back(row->string_at(i));
    return Tensor::strings(Shape(dims), texts);
  }
  Tensor result(first.dtype(), Shape(dims));
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (first.bytes() != 0) std::memcpy(result.raw() + i * first.bytes(), rows[i]->raw(), first.bytes());
  return result;
}

class QueueRunners {
 public:
  QueueRunners(const GraphDef& graph, std::uint64_t seed, const EvaluateGraph& evaluate)
      : graph_(graph), seed_(seed), evaluate_(evaluate) {
    for (const NodeDef& node : graph.node()) nodes_.emplace(node.name(), &node);
  }

  /// The dequeuing and reading nodes that the roots need, without what those need themselves.
  std::vector<const NodeDef*> sources_of(const std::vector<std::string>& roots) const {
    std::vector<const NodeDef*> sources;
    std::set<std::string> seen;
    std::vector<std::string> open;
    for (const std::string& root : roots) open.push_back(node_of(root));
    while (!open.empty()) {
      const std::string name = std::move(open.back());
      open.pop_back();
      const auto at = nodes_.find(name);
      if (at == nodes_.end() || !seen.insert(name).second) continue;
      if (is_source(*at->second)) {
        sources.push_back(at->second);
        continue;
      }
      for (const std::string& input : at->second->input()) open.push_back(node_of(input));
    }
    return sources;
  }

  /// What one run of a source gives; nothing at the end of its input.
  std::optional<Row> take(const NodeDef& node) {
    if (node.input_size() == 0) fail(node, "has no input");
    const std::string_view op = plain(node.op());
    if (op == "ReaderRead") return read_record(node);
    if (op == "QueueDequeue") return pop(node_named(node, 0));
    const std::int64_t count = count_of(node);
    std::vector<Row> rows;
    while (static_cast<std::int64_t>(rows.size()) < count) {
      std::optional<Row> row = op == "ReaderReadUpTo" ? read_record(node) : pop(node_named(node, 0));
      if (!row) break;
      rows.push_back(*std::move(row));
    }
    const bool is_short = static_cast<std::int64_t>(rows.size()) < count;
    if (rows.empty() || (is_short && op == "QueueDequeueMany")) return std::nullopt;
    Row batch;
    for (std::size_t component = 0; component < rows.front().size(); ++component) {
      std::vector<const Tensor*> parts;
      for (const Row& row : rows) parts.push_back(&row[component]);
      batch.push_back(stacked(node, parts));
    }
    return batch;
  }

 private:
  struct Queue {
    std::deque<Row> rows;
    std::vector<const NodeDef*> fillers;
    std::size_t next_filler = 0;
    std::map<const NodeDef*, std::int64_t> runs_left;  // of fillers that count epochs
    std::uint64_t draws = 0;
  };

  const NodeDef& node_named(const NodeDef& user, int input) const {
    const auto at = input < user.input_size() ? nodes_.find(node_of(user.input(input))) : nodes_.end();
    if (at == nodes_.end()) fail(user, fmt::format("input {} does not exist", input));
    return *at->second;
  }

  std::int64_t count_of(const NodeDef& node) const {
    const int input = plain(node.op()) == "ReaderReadUpTo" ? 2 : 1;
    if (node.input_size() <= input) fail(node, "does not say how many");
    const std::int64_t count = tensor_to_int64s(evaluate_(graph_, {node.input(input)})[0]).at(0);
    if (count < 1) fail(node, fmt::format("takes {} elements", count));
    return count;
  }

  Queue& queue_of(const NodeDef& node) {
    const auto [at, is_new] = queues_.try_emplace(&node);
    if (!is_new) return at->second;
    for (const NodeDef& filler : graph_.node())
      if ((plain(filler.op()) == "QueueEnqueue" || plain(filler.op()) == "QueueEnqueueMany") &&
          filler.input_size() > 1 && node_of(filler.input(0)) == node.name()) {
        at->second.fillers.push_back(&filler);
        if (const auto epochs = epochs_of(filler)) at->second.runs_left[&filler] = *epochs;
      }
    if (at->second.fillers.empty()) fail(node, "nothing fills this queue");
    return at->second;
  }

  /// How often an enqueue may run: the limit of a CountUpTo that one of its inputs waits for.
  std::optional<std::int64_t> epochs_of(const NodeDef& filler) const {
    std::vector<const NodeDef*> open{&filler};
    std::set<const NodeDef*> seen;
    while (!open.empty()) {
      const NodeDef* node = open.back();
      open.pop_back();
      if (!seen.insert(node).second || (is_source(*node) && node != &filler)) continue;
      if (node->op() == "CountUpTo" || node->op() == "ResourceCountUpTo") return node->attr().at("limit").i();
      for (const std::string& input : node->input())
        if (const auto at = nodes_.find(node_of(input)); at != nodes_.end()) open.push_back(at->second);
    }
    return std::nullopt;
  }

  std::optional<Row> pop(const NodeDef& node) {
    Queue& queue = queue_of(node);
    const bool shuffles = plain(node.op()) == "RandomShuffleQueue";
    const auto attr = node.attr().find("min_after_dequeue");
    const std::int64_t kept = shuffles && attr != node.attr().end() ? attr->second.i() : 0;
    while (static_cast<std::int64_t>(queue.rows.size()) <= kept && fill(queue)) {
    }
    if (queue.rows.empty()) return std::nullopt;
    std::size_t at = 0;
    if (shuffles) {
      std::uint32_t bits = 0;
      fill_bits(make_rng_key(seed_, node.name()), queue.draws++, {&bits, 1});
      at = bits % queue.rows.size();
    }
    Row row = std::move(queue.rows[at]);
    queue.rows.erase(queue.rows.begin() + static_cast<std::ptrdiff_t>(at));
    return row;
  }

  /// Runs one enqueue; false when all are at their end.
  bool fill(Queue& queue) {
    while (!queue.fillers.empty()) {
      queue.next_filler %= queue.fillers.size();
      const NodeDef* filler = queue.fillers[queue.next_filler];
      const auto left = queue.runs_left.find(filler);
      if ((left == queue.runs_left.end() || left->second-- > 0) && enqueue(queue, *filler)) {
        ++queue.next_filler;
        return true;
      }
      queue.fillers.erase(queue.fillers.begin() + static_cast<std::ptrdiff_t>(queue.next_filler));
    }
    return false;
  }

  bool enqueue(Queue& queue, const NodeDef& filler) {
    const auto components = [](const NodeDef& node) {
      std::vector<std::string> names;
      for (const std::string& input : node.input())
        if (!input.starts_with('^')) names.push_back(input);
      names.erase(names.begin());  // the queue
      return names;
    };
    GraphDef graph = graph_;
    for (const NodeDef* source : sources_of(components(filler))) {
      std::optional<Row> values = take(*source);
      if (!values) return false;
      replace_source(graph, source->name(), *values);
    }
    forget_counters(graph);
    const auto changed = std::find_if(graph.node().begin(), graph.node().end(),
                                      [&](const NodeDef& node) { return node.name() == filler.name(); });
    const std::vector<std::string> names = components(*changed);
    Row row = evaluate_(graph, names);
    if (plain(filler.op()) == "QueueEnqueue") {
      queue.rows.push_back(std::move(row));
      return true;
    }
    const std::int64_t count = row[0].shape().rank() == 0 ? 0 : row[0].shape()[0];
    if (count == 0) fail(filler, "there are no elements to enqueue");
    for (std::int64_t i = 0; i < count; ++i) {
      queue.rows.emplace_back();
      for (const Tensor& component : row) queue.rows.back().push_back(row_of(component, i));
    }
    return true;
  }

  /// Epochs are counted here.
  static void forget_counters(GraphDef& graph) {
    std::set<std::string> counters;
    for (const NodeDef& node : graph.node())
      if (node.op() == "CountUpTo" || node.op() == "ResourceCountUpTo") counters.insert("^" + node.name());
    for (NodeDef& node : *graph.mutable_node()) {
      auto* inputs = node.mutable_input();
      inputs->erase(std::remove_if(inputs->begin(), inputs->end(),
                                   [&](const std::string& input) { return counters.contains(input); }),
                    inputs->end());
    }
  }

  /// Key and value of the next record.
  std::optional<Row> read_record(const NodeDef& node) {
    const NodeDef& reader = node_named(node, 0);
    const NodeDef& names = node_named(node, 1);
    std::unique_ptr<RecordReader>& file = readers_[&reader];
    // A queue of names without end, whose files are all empty, must not keep us for ever.
    constexpr int kEmptyFiles = 10000;
    for (int opened = 0; opened < kEmptyFiles; ++opened) {
      if (file)
        if (const auto record = file->next())
          return Row{Tensor::strings({}, std::vector{record->key}),
                     Tensor::strings({}, std::vector{record->value})};
      const std::optional<Row> name = pop(names);
      if (!name) return std::nullopt;
      if ((*name)[0].dtype() != DType::String) fail(names, "holds no names of files");
      const auto skip = reader.attr().find("skip_header_lines");
      file = open_records(plain(reader.op()), std::string((*name)[0].string_at(0)),
                          skip == reader.attr().end() ? 0 : skip->second.i());
      if (!file) fail(reader, "the op is not supported");
    }
    fail(node, fmt::format("{} files in a row have no records", kEmptyFiles));
  }

 public:
  /// The node's values become constants in its place; gives their names by the values'.
  static std::map<std::string, std::string> replace_source(GraphDef& graph, const std::string& name,
                                                           const Row& values) {
    std::map<std::string, std::string> constants;
    for (std::size_t i = 0; i < values.size(); ++i)
      constants[fmt::format("{}:{}", name, i)] = fmt::format("{}/dequeued_{}", name, i);
    constants[name] = constants[name + ":0"];
    auto* nodes = graph.mutable_node();
    nodes->erase(
        std::find_if(nodes->begin(), nodes->end(), [&](const NodeDef& n) { return n.name() == name; }));
    for (NodeDef& node : *nodes) {
      auto* inputs = node.mutable_input();
      inputs->erase(std::remove(inputs->begin(), inputs->end(), "^" + name), inputs->end());
      for (std::string& input : *inputs)
        if (const auto at = constants.find(input); at != constants.end()) input = at->second;
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      NodeDef& constant = *graph.add_node();
      constant.set_name(constants[fmt::format("{}:{}", name, i)]);
      constant.set_op("Const");
      (*constant.mutable_attr())["dtype"] = to_proto(Attr(values[i].dtype()));
      (*constant.mutable_attr())["value"] = to_proto(Attr(values[i]));
    }
    return constants;
  }

 private:
  const GraphDef& graph_;
  std::uint64_t seed_;
  const EvaluateGraph& evaluate_;
  std::map<std::string, const NodeDef*, std::less<>> nodes_;
  std::map<const NodeDef*, Queue> queues_;
  std::map<const NodeDef*, std::unique_ptr<RecordReader>> readers_;
};

}  // namespace

std::map<std::string, std::string> run_queues(GraphDef& graph, const std::vector<std::string>& roots,
                                              std::uint64_t seed, const EvaluateGraph& evaluate) {
  std::map<std::string, std::string> renamed;
  if (std::none_of(graph.node().begin(), graph.node().end(), is_source)) return renamed;
  GraphDef result = graph;
  QueueRunners runners(graph, seed, evaluate);
  for (const NodeDef* source : runners.sources_of(roots)) {
    const std::optional<Row> values = runners.take(*source);
    if (!values) fail(*source, "its input has ended before there was enough of it");
    renamed.merge(QueueRunners::replace_source(result, source->name(), *values));
  }
  graph = std::move(result);
  return renamed;
}

}  // namespace braid::cli
