#include "engine/import/text_functions.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/import/node_inputs.h"

namespace braid {
namespace {

DataType type_of(const NodeDef& node, const char* attr, DataType otherwise = DT_INVALID) {
  const auto found = node.attr().find(attr);
  return found == node.attr().end() ? otherwise : found->second.type();
}

void set_type(NodeDef& node, const char* attr, DataType type) { (*node.mutable_attr())[attr].set_type(type); }

/// A function of texts, element by element: which input has them, and what it gives.
struct TextFunction {
  int input = 0;
  DataType result = DT_INVALID;
};

std::optional<TextFunction> function_of(const NodeDef& node) {
  static const std::set<std::string_view> kHashes{"StringToHashBucketFast", "StringToHashBucketStrong",
                                                  "StringToHashBucket"};
  if (kHashes.contains(node.op())) return TextFunction{0, DT_INT64};
  if (node.op() == "StringToNumber") return TextFunction{0, type_of(node, "out_type", DT_FLOAT)};
  const bool finds = node.op() == "LookupTableFind" || node.op() == "LookupTableFindV2";
  if (finds && type_of(node, "Tin") == DT_STRING && type_of(node, "Tout") == DT_INT64)
    return TextFunction{1, DT_INT64};
  return std::nullopt;
}

class Hoisting {
  using AttrMap = google::protobuf::Map<std::string, AttrValue>;

 public:
  explicit Hoisting(GraphDef& graph) : graph_(graph) {
    for (int i = 0; i < graph.node_size(); ++i) places_.try_emplace(graph.node(i).name(), i);
  }

  void run() {
    const int count = graph_.node_size();  // nodes that are added are done
    for (int i = 0; i < count; ++i) {
      if (const auto function = function_of(graph_.node(i))) hoist(i, *function);
      if (graph_.node(i).op() == "SparseCross") cross_fingerprints(i);
    }
    for (int i = 0; i < count; ++i) compare_fingerprints(i);
    for (int i = 0; i < count; ++i) ask_shape_of_numbers(i);
    graph_.mutable_node()->MergeFrom(added_);
  }

 private:
  const NodeDef* find(const std::string& value) const {
    const auto at = places_.find(node_of(value));
    return at == places_.end() ? nullptr : &graph_.node(at->second);
  }

  /// The GatherNd of texts that gives this value, perhaps by way of Identity.
  const NodeDef* chosen_texts(const std::string& value) const {
    const NodeDef* node = find(value);
    for (int passed = 0; node && node->op() == "Identity" && node->input_size() > 0; ++passed) {
      if (passed > graph_.node_size()) return nullptr;  // a circle, which import refuses
      node = find(node->input(0));
    }
    const bool is_choice = node && node->op() == "GatherNd" && type_of(*node, "Tparams") == DT_STRING;
    return is_choice && data_inputs(*node).size() == 2 ? node : nullptr;
  }

  std::string fresh(const std::string& wanted) {
    std::string name = wanted;
    for (int i = 1; places_.contains(name) || !taken_.insert(name).second; ++i)
      name = wanted + "_" + std::to_string(i);
    return name;
  }

  /// `node`: becomes the choice among `all`, whose elements are of `type`.
  static void choose(NodeDef& node, const std::string& all, const NodeDef& choice, DataType type) {
    const DataType indices = type_of(choice, "Tindices", DT_INT32);
    const std::string at = choice.input(1);
    node.set_op("GatherNd");
    node.clear_attr();
    set_type(node, "Tparams", type);
    set_type(node, "Tindices", indices);
    replace_data_inputs(node, {all, at});
  }

  void hoist(int place, const TextFunction& function) {
    NodeDef& node = *graph_.mutable_node(place);
    std::vector<std::string> inputs = data_inputs(node);
    const auto text = static_cast<std::size_t>(function.input);
    const NodeDef* choice = inputs.size() > text ? chosen_texts(inputs[text]) : nullptr;
    if (!choice) return;
    NodeDef all = node;
    all.set_name(fresh(node.name() + "/of_all"));
    inputs[text] = choice->input(0);
    replace_data_inputs(all, inputs);
    choose(node, all.name(), *choice, function.result);
    texts_.insert(choice->input(0));
    added_.Add(std::move(all));
  }

  /// The fingerprints of texts, which crosses chain: hashes into no buckets.
  std::string fingerprints(const std::string& texts) {
    std::string& name = fingerprints_[texts];
    if (!name.empty()) return name;
    NodeDef node;
    node.set_op("StringToHashBucketFast");
    node.set_name(fresh(node_of(texts) + "/fingerprint"));
    (*node.mutable_attr())["num_buckets"].set_i(0);
    node.add_input(texts);
    name = node.name();
    added_.Add(std::move(node));
    texts_.insert(texts);
    return name;
  }

  void cross_fingerprints(int place) {
    const NodeDef cross = graph_.node(place);
    const auto hashed = cross.attr().find("hashed_output"), n = cross.attr().find("N");
    if (hashed == cross.attr().end() || !hashed->second.b() || n == cross.attr().end()) return;
    std::vector<std::string> inputs = data_inputs(cross);
    if (n->second.i() < 0 || n->second.i() > std::ssize(inputs) / 3) return;
    const auto count = static_cast<std::size_t>(n->second.i());
    const std::size_t dense = 3 * count;
    auto sparse_types = cross.attr().find("sparse_types"), dense_types = cross.attr().find("dense_types");
    AttrValue sparse = sparse_types == cross.attr().end() ? AttrValue() : sparse_types->second;
    AttrValue denses = dense_types == cross.attr().end() ? AttrValue() : dense_types->second;
    for (std::size_t i = 0; i < count && static_cast<int>(i) < sparse.list().type_size(); ++i) {
      if (sparse.list().type(static_cast<int>(i)) != DT_STRING) continue;
      const NodeDef* choice = chosen_texts(inputs[count + i]);
      if (!choice) continue;
      NodeDef chosen;
      chosen.set_name(fresh(cross.name() + "/fingerprints"));
      const NodeDef copy = *choice;
      choose(chosen, fingerprints(copy.input(0)), copy, DT_INT64);
      inputs[count + i] = chosen.name();
      sparse.mutable_list()->set_type(static_cast<int>(i), DT_INT64);
      added_.Add(std::move(chosen));
    }
    for (std::size_t i = dense; i < inputs.size(); ++i) {
      const int at = static_cast<int>(i - dense);
      if (at >= denses.list().type_size() || denses.list().type(at) != DT_STRING) continue;
      inputs[i] = fingerprints(inputs[i]);
      denses.mutable_list()->set_type(at, DT_INT64);
    }
    NodeDef& node = *graph_.mutable_node(place);
    replace_data_inputs(node, inputs);
    (*node.mutable_attr())["sparse_types"] = sparse;
    (*node.mutable_attr())["dense_types"] = denses;
  }

  /// Shapes of texts are those of their fingerprints.
  void ask_shape_of_numbers(int place) {
    NodeDef& node = *graph_.mutable_node(place);
    if (node.op() != "Shape" && node.op() != "Size") return;
    const std::vector<std::string> inputs = data_inputs(node);
    if (inputs.empty() || type_of(node, "T") != DT_STRING || !texts_.contains(inputs[0])) return;
    set_type(node, "T", DT_INT64);
    replace_data_inputs(node, {fingerprints(inputs[0])});
  }

  bool is_constant(const std::string& value) const {
    const NodeDef* node = find(value);
    return node && node->op() == "Const";
  }

  /// Whether texts are a constant one, as the empty one that stands for none.
  void compare_fingerprints(int place) {
    NodeDef& node = *graph_.mutable_node(place);
    if ((node.op() != "Equal" && node.op() != "NotEqual") || type_of(node, "T") != DT_STRING) return;
    const std::vector<std::string> inputs = data_inputs(node);
    if (inputs.size() != 2 || is_constant(inputs[0]) == is_constant(inputs[1])) return;
    set_type(node, "T", DT_INT64);
    replace_data_inputs(node, {fingerprints(inputs[0]), fingerprints(inputs[1])});
  }

  GraphDef& graph_;
  std::unordered_map<std::string, int> places_;
  google::protobuf::RepeatedPtrField<NodeDef> added_;
  std::set<std::string> taken_, texts_;              // names of new nodes; texts that functions are of
  std::map<std::string, std::string> fingerprints_;  // by texts
};

}  // namespace

void hoist_text_functions(GraphDef& graph) { Hoisting(graph).run(); }

}  // namespace braid
