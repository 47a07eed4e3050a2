#include "engine/import/tensor_lists.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "engine/import/convert.h"
#include "engine/import/unroll_loops.h"

namespace braid {
namespace {

/// "node:1" -> node, 1.
std::pair<std::string, int> node_and_output(const std::string& value) {
  const std::size_t colon = value.rfind(':');
  if (colon == std::string::npos) return {value, 0};
  return {value.substr(0, colon), std::atoi(value.c_str() + colon + 1)};
}

/// A list is a tensor whose rows are its elements, or elements one by one.
struct TensorList {
  std::string tensor;  // empty: one by one
  std::map<std::int64_t, std::string> elements;
  std::int64_t size = -1;  // of those one by one
  AttrValue type;
};

class ListLowering {
 public:
  explicit ListLowering(GraphDef& graph) : graph_(graph) {
    for (int i = 0; i < graph.node_size(); ++i) places_.try_emplace(graph.node(i).name(), i);
  }

  void run() {
    for (int i = 0; i < graph_.node_size(); ++i) visit(i);
    for (NodeDef& node : *graph_.mutable_node()) forget_lists(node);
    for (const int i : std::set<int, std::greater<>>(gone_.begin(), gone_.end()))
      graph_.mutable_node()->DeleteSubrange(i, 1);
    for (NodeDef& node : added_) *graph_.add_node() = std::move(node);
  }

 private:
  /// The node of a call is there to be waited for; who reads its outputs reads past it.
  void forget_lists(NodeDef& node) const {
    const auto is_gone = [&](const std::string& input) {
      const auto at = places_.find(node_and_output(input).first);
      return at != places_.end() && gone_.contains(at->second);
    };
    if (!node.op().starts_with("Identity") || std::none_of(node.input().begin(), node.input().end(), is_gone))
      return;
    node.set_op("NoOp");
    node.clear_attr();
    auto* inputs = node.mutable_input();
    inputs->erase(std::remove_if(inputs->begin(), inputs->end(),
                                 [](const std::string& input) { return !input.starts_with('^'); }),
                  inputs->end());
  }

  static bool is_list_op(const NodeDef& node) { return node.op().starts_with("TensorList"); }

  /// The list that a value is, with all before it visited.
  const TensorList* list_of(const std::string& value) {
    const auto [name, output] = node_and_output(value);
    const auto at = places_.find(name);
    if (output != 0 || at == places_.end()) return nullptr;
    visit(at->second);
    const auto list = lists_.find(name);
    return list == lists_.end() ? nullptr : &list->second;
  }

  std::optional<std::int64_t> number(const std::string& value) const {
    const auto known = value_without_feeds(graph_, value, [](std::string name) { return name; });
    if (!known || known->elements() != 1) return std::nullopt;
    return tensor_to_int64s(*known)[0];
  }

  void visit(int place) {
    if (!visited_.insert(place).second) return;
    const NodeDef node = graph_.node(place);
    if (node.input_size() == 0) return;
    if (node.op() == "TensorListFromTensor") return make(place, {node.input(0), {}, -1, type_of(node)});
    if (node.op() == "TensorListReserve") {
      const auto size = number(node.input(1));
      if (size) make(place, {"", {}, *size, type_of(node)});
      return;
    }
    const bool passes = node.op() == "Identity";
    if (!is_list_op(node) && !passes) return;
    const TensorList* from = list_of(node.input(0));
    if (!from) return;
    const TensorList list = *from;
    if (passes) return make(place, list);
    if (node.op() == "TensorListSetItem") return set_item(place, node, list);
    if (node.op() == "TensorListGetItem") return get_item(place, node, list);
    if (node.op() == "TensorListStack") return stack(place, node, list);
    if (node.op() == "TensorListLength" && list.size >= 0) replace_by_number(place, node, list.size);
  }

  static AttrValue type_of(const NodeDef& node) {
    const auto at = node.attr().find("element_dtype");
    return at == node.attr().end() ? AttrValue() : at->second;
  }

  void make(int place, TensorList list) {
    lists_[graph_.node(place).name()] = std::move(list);
    gone_.insert(place);
  }

  void set_item(int place, const NodeDef& node, TensorList list) {
    const auto at = number(node.input(1));
    if (!at || !list.tensor.empty()) return;
    list.elements[*at] = node.input(2);
    list.size = std::max(list.size, *at + 1);
    make(place, std::move(list));
  }

  NodeDef& rewrite(int place, const char* op, const std::vector<std::string>& inputs) {
    NodeDef& node = *graph_.mutable_node(place);
    std::vector<std::string> controls;
    for (const std::string& input : node.input())
      if (input.starts_with('^')) controls.push_back(input);
    node.set_op(op);
    node.clear_input();
    node.clear_attr();
    for (const std::string& input : inputs) node.add_input(input);
    for (const std::string& control : controls) node.add_input(control);
    return node;
  }

  /// An element of a tensor is its row; the place need not be known.
  void get_item(int place, const NodeDef& node, const TensorList& list) {
    if (list.tensor.empty()) {
      const auto at = number(node.input(1));
      const auto element = at ? list.elements.find(*at) : list.elements.end();
      if (element == list.elements.end()) return;
      (*rewrite(place, "Identity", {element->second}).mutable_attr())["T"] = list.type;
      return;
    }
    const std::string axis = constant(node.name() + "/axis", Tensor::scalar<std::int32_t>(0));
    NodeDef& row = rewrite(place, "GatherV2", {list.tensor, node.input(1), axis});
    (*row.mutable_attr())["Tparams"] = list.type;
    (*row.mutable_attr())["Tindices"].set_type(DT_INT32);
    (*row.mutable_attr())["Taxis"].set_type(DT_INT32);
  }

  void stack(int place, const NodeDef&, const TensorList& list) {
    if (!list.tensor.empty()) {
      (*rewrite(place, "Identity", {list.tensor}).mutable_attr())["T"] = list.type;
      return;
    }
    std::vector<std::string> elements;
    for (const auto& [at, element] : list.elements) elements.push_back(element);
    if (elements.empty() || static_cast<std::int64_t>(elements.size()) != list.size) return;
    NodeDef& pack = rewrite(place, "Pack", elements);
    (*pack.mutable_attr())["T"] = list.type;
    (*pack.mutable_attr())["N"].set_i(list.size);
    (*pack.mutable_attr())["axis"].set_i(0);
  }

  void replace_by_number(int place, const NodeDef&, std::int64_t number) {
    const Tensor value = Tensor::scalar(static_cast<std::int32_t>(number));
    NodeDef& node = rewrite(place, "Const", {});
    (*node.mutable_attr())["dtype"].set_type(DT_INT32);
    *(*node.mutable_attr())["value"].mutable_tensor() = to_proto(value);
  }

  std::string constant(const std::string& name, const Tensor& value) {
    NodeDef node;
    node.set_name(name);
    node.set_op("Const");
    (*node.mutable_attr())["dtype"].set_type(to_proto(value.dtype()));
    *(*node.mutable_attr())["value"].mutable_tensor() = to_proto(value);
    added_.push_back(std::move(node));
    return name;
  }

  GraphDef& graph_;
  std::unordered_map<std::string, int> places_;
  std::map<std::string, TensorList> lists_;
  std::set<int> visited_, gone_;
  std::vector<NodeDef> added_;
};

}  // namespace

void lower_tensor_lists(GraphDef& graph) {
  const bool any = std::any_of(graph.node().begin(), graph.node().end(),
                               [](const NodeDef& node) { return node.op().starts_with("TensorList"); });
  if (any) ListLowering(graph).run();
}

}  // namespace braid
