// Filters of convolutions whose channels are last, in the order that a device's library reads:
//
//   Conv2D(x, f [h, w, in, out])        -> Conv2D(x, T(f) [out, h, w, in])   so do layers and input gradients
//   Conv2DBackpropFilter(x, sizes, dy)  -> T'(Conv2DBackpropFilter(x, T(sizes), dy))
//
// The library's order is otherwise made by each of the kernels. So T is one node for a convolution and its
// input gradient, and it is none, or the one that is there anyhow, where a filter comes from a framework that
// keeps outputs in front, as PyTorch and ONNX do. Depthwise filters stay.
#include <fmt/format.h>

#include <numeric>
#include <set>

#include "engine/ops/nn/convolution.h"
#include "engine/rewrite/image_values.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/rule.h"

namespace braid {
namespace {

/// T's order: the last axis comes first.
Order outputs_to_front(int rank) {
  Order order(static_cast<std::size_t>(rank));
  std::iota(order.begin(), order.end(), -1);
  order[0] = rank - 1;
  return order;
}

class FilterOrders : private ImageValues {
 public:
  explicit FilterOrders(Plan& plan) : ImageValues(plan), plan_(plan), graph_(plan.program.graph) {}

  void run() {
    run_rules(
        plan_,
        {.rules = {{"filter",
                    {"Conv2D", "Conv2DBackpropInput", "Conv3D", "Conv3DBackpropInputV2", "braid.FusedConv2D"},
                    [this](Rewrite& r, const Match& match) { return read_in_order(r.node(match[0])); }},
                   {"gradient of a filter",
                    {"Conv2DBackpropFilter", "Conv3DBackpropFilterV2"},
                    [this](Rewrite& r, const Match& match) { return make_in_order(r.node(match[0])); }},
                   {"transposition",
                    {"Transpose"},
                    [this](Rewrite& r, const Match& match) { return join(r.node(match[0])); }}},
         .text = [](const std::vector<int>& applied) {
           return fmt::format("{} convolutions read, and {} make, filters with their outputs first",
                              applied[0], applied[1]);
         }});
  }

 private:
  bool is_ready(const Node& node, const Shape& filter) const {
    const auto format = node.attrs.get<std::string>("data_format", "NHWC");
    return suits_device(plan_, node) && !node.attrs.has(kFilterFormat) &&
           (format == "NHWC" || format == "NDHWC") && filter.is_static() && filter.elements() > 0;
  }

  bool read_in_order(const Node& old) {
    const Node node = old;  // nodes are added
    const Shape filter = shape(node.inputs[1]);
    if (!is_ready(node, filter)) return false;
    const ValueRef turned = transpose(node, node.inputs[1], outputs_to_front(filter.rank()));
    Node& made = graph_.mutable_node(node.id);
    made.inputs[1] = turned;
    made.attrs.set(kFilterFormat, std::string("OHWI"));
    return true;
  }

  bool make_in_order(const Node& old) {
    const Node node = old;
    const Shape filter = node.outputs[0].shape;
    if (!is_ready(node, filter)) return false;
    const Order order = outputs_to_front(filter.rank());
    Node made = node;
    const Shape turned = permuted(filter, order);
    made.inputs[1] = ints(node, {turned.dims().begin(), turned.dims().end()});
    made.attrs.set(kFilterFormat, std::string("OHWI"));
    const ValueRef gradient{add(std::move(made), node.name), 0};
    const ValueRef back = transpose(node, gradient, inverse(order));
    made_.insert(back.node);
    return put(node, back);
  }

  /// A Transpose of what brings a gradient back.
  bool join(const Node& old) {
    const Node node = old;
    const auto order = order_of(node);
    if (!order || !made_.contains(node.inputs[0].node)) return false;
    return put(node, transpose(node, node.inputs[0], *order));
  }

  Plan& plan_;
  Graph& graph_;
  std::set<NodeId> made_;  // what brings gradients back
};

}  // namespace

void order_filters(Plan& plan) { FilterOrders(plan).run(); }

}  // namespace braid
