#include "engine/import/tensor_lists.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "engine/import/convert.h"
#include "engine/import/node_inputs.h"
#include "engine/import/unroll_loops.h"

namespace braid {
namespace {

/// A list is a tensor whose rows are its elements, or elements one by one; those that were not set are zeros.
struct TensorList {
  std::string tensor;                            // empty: one by one
  std::map<std::int64_t, std::string> elements;  // of a tensor those that are not its rows any more
  std::int64_t size = -1;                        // of those one by one
  AttrValue type;
};

class ListLowering {
 public:
  explicit ListLowering(GraphDef& graph) : graph_(graph) {
    for (int i = 0; i < graph.node_size(); ++i) places_.try_emplace(graph.node(i).name(), i);
  }

  void run() {
    for (int i = 0; i < graph_.node_size(); ++i) visit(i);
    for (NodeDef& node : *graph_.mutable_node())
      for (std::string& input : *node.mutable_input())
        if (const auto at = popped_.find(input); at != popped_.end()) input = at->second;
    for (NodeDef& node : *graph_.mutable_node()) forget_lists(node);
    std::set<std::string> waited_for;
    for (const NodeDef& node : graph_.node())
      for (const std::string& input : node.input())
        if (input.starts_with('^')) waited_for.insert(input.substr(1));
    for (const int i : std::set<int, std::greater<>>(gone_.begin(), gone_.end()))
      if (waited_for.contains(graph_.node(i).name()))
        only_wait(*graph_.mutable_node(i));
      else
        graph_.mutable_node()->DeleteSubrange(i, 1);
  }

 private:
  /// The node of a call is there to be waited for; who reads its outputs reads past it.
  void forget_lists(NodeDef& node) const {
    const auto is_gone = [&](const std::string& input) {
      const auto at = places_.find(split_value(input).first);
      return at != places_.end() && gone_.contains(at->second);
    };
    if (!node.op().starts_with("Identity") || std::none_of(node.input().begin(), node.input().end(), is_gone))
      return;
    only_wait(node);
  }

  static bool is_list_op(const NodeDef& node) { return node.op().starts_with("TensorList"); }
  /// What gradients do with lists as with tensors.
  static bool takes_lists(const NodeDef& node) {
    return node.op() == "AddN" || node.op() == "AddV2" || node.op() == "ZerosLike";
  }

  /// The list that a value is, with all before it visited.
  const TensorList* list_of(const std::string& value) {
    const auto [name, output] = split_value(value);
    const auto at = places_.find(name);
    if (output != 0 || at == places_.end()) return nullptr;
    visit(at->second);
    const auto list = lists_.find(name);
    return list == lists_.end() ? nullptr : &list->second;
  }

  std::optional<std::int64_t> number(const std::string& value) {
    const auto known = value_without_feeds(graph_, value, [this](std::string name) { return popped(name); });
    if (!known || known->elements() != 1) return std::nullopt;
    return tensor_to_int64s(*known)[0];
  }

  /// What a pop gives, under the name of its value.
  std::string popped(const std::string& value) {
    const auto [name, output] = split_value(value);
    const auto at = output == 1 ? places_.find(name) : places_.end();
    if (at == places_.end()) return value;
    visit(at->second);
    const auto found = popped_.find(value);
    return found == popped_.end() ? value : found->second;
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
    if (node.op() == "EmptyTensorList") return make(place, {"", {}, 0, type_of(node)});
    const bool passes = node.op() == "Identity";
    if (!is_list_op(node) && !passes && !takes_lists(node)) return;
    const TensorList* from = list_of(node.input(0));
    if (!from) return;
    const TensorList list = *from;
    if (passes) return make(place, list);
    if (node.op() == "ZerosLike") return make(place, zeros_of(node, list));
    if (takes_lists(node)) return add_lists(place, node, list);
    if (node.op() == "TensorListPushBack") return push_back(place, node, list);
    if (node.op() == "TensorListPopBack") return pop_back(place, node, list);
    if (node.op() == "TensorListSetItem") return set_item(place, node, list);
    if (node.op() == "TensorListGetItem") return get_item(place, node, list);
    if (node.op() == "TensorListStack") return stack(place, node, list);
    if (node.op() == "TensorListElementShape")
      return replace_by_number(place, node, -1);  // need not be known
    if (node.op() != "TensorListLength") return;
    if (const auto size = size_of(list)) replace_by_number(place, node, *size);
  }

  static AttrValue type_of(const NodeDef& node) {
    const auto at = node.attr().find("element_dtype");
    return at == node.attr().end() ? AttrValue() : at->second;
  }

  void make(int place, TensorList list) {
    lists_[graph_.node(place).name()] = std::move(list);
    gone_.insert(place);
  }

  void set_item(int place, const NodeDef& node, const TensorList& given) {
    const auto at = number(node.input(1));
    if (!at) return;
    TensorList list = given;
    list.elements[*at] = node.input(2);
    if (list.tensor.empty()) list.size = std::max(list.size, *at + 1);
    make(place, std::move(list));
  }

  void push_back(int place, const NodeDef& node, const TensorList& given) {
    if (node.attr().contains(kDataDecides)) return;
    auto list = by_element(node, given);
    if (!list) return;
    list->elements[list->size++] = node.input(1);
    make(place, std::move(*list));
  }

  /// Gives the shorter list, and as its second output the element.
  void pop_back(int place, const NodeDef& node, const TensorList& given) {
    auto list = by_element(node, given);
    if (!list || list->size <= 0) return;
    const auto last = list->elements.find(list->size - 1);
    if (last == list->elements.end()) return;
    popped_[node.name() + ":1"] = add(node.name() + "/popped", "Identity", {last->second}, list->type);
    list->elements.erase(last);
    --list->size;
    make(place, std::move(*list));
  }

  TensorList zeros_of(const NodeDef& node, const TensorList& list) {
    if (list.tensor.empty()) return {"", {}, list.size, list.type};
    return {add(node.name() + "/zeros", "ZerosLike", {list.tensor}, list.type), {}, -1, list.type};
  }

  /// The sum of lists, element by element.
  void add_lists(int place, const NodeDef& node, const TensorList& first) {
    auto sum = by_element(node, first);
    for (int i = 1; i < node.input_size() && sum; ++i) {
      if (node.input(i).starts_with('^')) continue;
      const TensorList* next = list_of(node.input(i));
      const auto list = next ? by_element(node, *next) : std::nullopt;
      if (!list || list->size != sum->size) return;
      for (const auto& [at, element] : list->elements) {
        const auto before = sum->elements.find(at);
        if (before == sum->elements.end())
          sum->elements[at] = element;
        else
          before->second = add(node.name() + "/sum" + std::to_string(i) + "_" + std::to_string(at), "AddV2",
                               {before->second, element}, list->type);
      }
    }
    if (sum) make(place, std::move(*sum));
  }

  /// The list with its elements one by one, named after the node that needs them; nothing where it is a
  /// tensor of as many rows as the data say.
  std::optional<TensorList> by_element(const NodeDef& node, const TensorList& list) {
    if (list.tensor.empty()) return list.size < 0 ? std::nullopt : std::optional(list);
    const auto size = size_of(list);
    if (!size || *size > kMostElements) return std::nullopt;
    TensorList made{"", {}, *size, list.type};
    const std::string axis = constant(node.name() + "/axis", Tensor::scalar<std::int32_t>(0));
    for (std::int64_t i = 0; i < *size; ++i) {
      const std::string name = node.name() + "/row" + std::to_string(i);
      const std::string at = constant(name + "/at", Tensor::scalar(static_cast<std::int32_t>(i)));
      made.elements[i] = add_gather(name, list.tensor, at, axis, list.type);
    }
    for (const auto& [at, element] : list.elements) made.elements[at] = element;
    return made;
  }

  std::optional<std::int64_t> size_of(const TensorList& list) {
    if (list.tensor.empty()) return list.size >= 0 ? std::optional(list.size) : std::nullopt;
    const auto [known, is_new] = sizes_.try_emplace(list.tensor);
    if (!is_new) return known->second;
    return known->second =
               rows_without_feeds(graph_, list.tensor, [this](std::string name) { return popped(name); });
  }

  std::string add_gather(const std::string& name, const std::string& from, const std::string& at,
                         const std::string& axis, const AttrValue& type) {
    add(name, "GatherV2", {from, at, axis}, {});
    NodeDef& node = *graph_.mutable_node(places_.at(name));
    (*node.mutable_attr())["Tparams"] = type;
    for (const char* index : {"Tindices", "Taxis"}) (*node.mutable_attr())[index].set_type(DT_INT32);
    return name;
  }

  std::string add(const std::string& name, const char* op, const std::vector<std::string>& inputs,
                  const AttrValue& type) {
    NodeDef& node = *graph_.add_node();
    node.set_name(name);
    node.set_op(op);
    for (const std::string& input : inputs) node.add_input(input);
    if (type.value_case() != AttrValue::VALUE_NOT_SET) (*node.mutable_attr())["T"] = type;
    places_.try_emplace(name, graph_.node_size() - 1);
    return name;
  }

  NodeDef& rewrite(int place, const char* op, const std::vector<std::string>& inputs) {
    NodeDef& node = *graph_.mutable_node(place);
    node.set_op(op);
    node.clear_attr();
    replace_data_inputs(node, inputs);
    return node;
  }

  /// An element of a tensor is its row; the place need not be known.
  void get_item(int place, const NodeDef& node, const TensorList& list) {
    const auto at = list.elements.empty() ? std::nullopt : number(node.input(1));
    if (list.tensor.empty() || (at && list.elements.contains(*at))) {
      if (!at || *at < 0 || (list.tensor.empty() && *at >= list.size)) return;
      const auto element = list.elements.find(*at);
      NodeDef& made = element == list.elements.end()
                          ? rewrite(place, "ZerosLike", {list.elements.begin()->second})
                          : rewrite(place, "Identity", {element->second});
      (*made.mutable_attr())["T"] = list.type;
      return;
    }
    if (!list.elements.empty() && !at) return;
    const std::string axis = constant(node.name() + "/axis", Tensor::scalar<std::int32_t>(0));
    NodeDef& row = rewrite(place, "GatherV2", {list.tensor, node.input(1), axis});
    (*row.mutable_attr())["Tparams"] = list.type;
    (*row.mutable_attr())["Tindices"].set_type(DT_INT32);
    (*row.mutable_attr())["Taxis"].set_type(DT_INT32);
  }

  void stack(int place, const NodeDef& node, const TensorList& given) {
    const TensorList list = given.elements.empty() ? given : by_element(node, given).value_or(given);
    if (!list.tensor.empty() && !list.elements.empty()) return;
    if (!list.tensor.empty()) {
      (*rewrite(place, "Identity", {list.tensor}).mutable_attr())["T"] = list.type;
      return;
    }
    std::vector<std::string> elements;
    if (list.elements.empty()) return;
    if (static_cast<std::int64_t>(list.elements.size()) < list.size)
      add(node.name() + "/zeros", "ZerosLike", {list.elements.begin()->second}, list.type);
    for (std::int64_t i = 0; i < list.size; ++i) {
      const auto element = list.elements.find(i);
      elements.push_back(element == list.elements.end() ? node.name() + "/zeros" : element->second);
    }
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
    if (places_.contains(name)) return name;
    add(name, "Const", {}, {});
    NodeDef& node = *graph_.mutable_node(places_.at(name));
    (*node.mutable_attr())["dtype"].set_type(to_proto(value.dtype()));
    *(*node.mutable_attr())["value"].mutable_tensor() = to_proto(value);
    return name;
  }

  static constexpr std::int64_t kMostElements = 1024;

  GraphDef& graph_;
  std::unordered_map<std::string, int> places_;
  std::map<std::string, TensorList> lists_;
  std::map<std::string, std::optional<std::int64_t>> sizes_;  // of tensors that are lists
  std::map<std::string, std::string> popped_;                 // the second output of a pop -> its value
  std::set<int> visited_, gone_;
};

}  // namespace

void lower_tensor_lists(GraphDef& graph) {
  const bool any = std::any_of(graph.node().begin(), graph.node().end(), [](const NodeDef& node) {
    return node.op().find("TensorList") != std::string::npos;
  });
  if (any) ListLowering(graph).run();
}

}  // namespace braid
