#include "engine/builder/graph_builder.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "engine/import/convert.h"
#include "engine/ir/op.h"
#include "proto/graph.pb.h"

namespace braid {

struct GraphBuilder::Impl {
  struct StreamSetting {
    std::shared_ptr<int> stream;
    bool include_grad;
  };
  struct AutomaticStream {
    std::shared_ptr<int> id;
    std::vector<int> nodes;  // that have it
  };

  GraphDef graph;
  std::unordered_map<std::string, int> index_by_name;
  std::unordered_map<std::string, int> next_suffix;
  std::vector<std::string> name_scopes;  // each with its prefix and a slash at the end
  std::vector<StreamSetting> streams;
  std::vector<AutomaticStream> automatic_streams;
  std::set<int> user_streams;            // ids that the user has written
  std::vector<std::string> colocations;  // "loc:@name" of nodes
  std::vector<std::string> devices;

  std::string scoped(const std::string& name) const {
    return name_scopes.empty() ? name : name_scopes.back() + name;
  }

  std::string unique(const std::string& base) {
    if (!index_by_name.contains(base)) return base;
    int& suffix = next_suffix[base];
    std::string name;
    do {
      name = base + "_" + std::to_string(++suffix);
    } while (index_by_name.contains(name));
    return name;
  }

  NodeDef& node(const Output& output) {
    const auto it = index_by_name.find(output.node);
    if (it == index_by_name.end()) throw InvalidArgument("the graph has no node '" + output.node + "'");
    return *graph.mutable_node(it->second);
  }

  Output add(const std::string& op, const std::vector<Output>& inputs, AttrMap attrs, std::string name) {
    NodeDef def;
    def.set_name(name);
    def.set_op(op);
    for (const Output& input : inputs) {
      node(input);  // refuses what does not exist
      def.add_input(input.name());
    }
    annotate(def, attrs);
    for (const auto& [key, value] : attrs) (*def.mutable_attr())[key] = to_proto(value);
    index_by_name.emplace(name, graph.node_size());
    *graph.add_node() = std::move(def);
    return {std::move(name), 0};
  }

  /// What the caller has written on the node itself is stronger than the scopes around it.
  void annotate(NodeDef& def, AttrMap& attrs) {
    if (!devices.empty()) def.set_device(devices.back());
    if (!colocations.empty()) {
      auto all = attrs.get<std::vector<std::string>>("_class", {});
      all.insert(all.end(), colocations.begin(), colocations.end());
      attrs.set("_class", std::move(all));
    }
    if (attrs.has("_stream_id")) {
      user_stream(attrs.require<std::int64_t>("_stream_id"));
    } else if (!streams.empty()) {
      attrs.set("_stream_id", *streams.back().stream);
      if (AutomaticStream* automatic = automatic_stream(streams.back().stream))
        automatic->nodes.push_back(graph.node_size());
    }
    if (!streams.empty() && !streams.back().include_grad && !attrs.has("_include_grad"))
      attrs.set("_include_grad", false);
  }

  AutomaticStream* automatic_stream(const std::shared_ptr<int>& id) {
    const auto found = std::find_if(automatic_streams.begin(), automatic_streams.end(),
                                    [&](const AutomaticStream& stream) { return stream.id == id; });
    return found == automatic_streams.end() ? nullptr : &*found;
  }

  int free_stream() const {
    int id = 1;
    const auto taken = [&] {
      return user_streams.contains(id) ||
             std::any_of(automatic_streams.begin(), automatic_streams.end(),
                         [&](const AutomaticStream& stream) { return *stream.id == id; });
    };
    while (taken()) ++id;
    return id;
  }

  std::shared_ptr<int> user_stream(std::int64_t written) {
    if (written < 0 || written > std::numeric_limits<int>::max())
      throw InvalidArgument("stream " + std::to_string(written) + " is not a stream");
    const auto id = static_cast<int>(written);
    user_streams.insert(id);
    for (AutomaticStream& stream : automatic_streams) {
      if (*stream.id != id) continue;
      *stream.id = free_stream();
      for (const int index : stream.nodes)
        (*graph.mutable_node(index)->mutable_attr())["_stream_id"].set_i(*stream.id);
    }
    return std::make_shared<int>(id);
  }
};

GraphBuilder::GraphBuilder() : impl_(std::make_unique<Impl>()) {}
GraphBuilder::~GraphBuilder() = default;

const GraphDef& GraphBuilder::graph() const { return impl_->graph; }

std::string GraphBuilder::full_name(const std::string& name) const { return impl_->scoped(name); }

Output GraphBuilder::op(const std::string& op, const std::vector<Output>& inputs, AttrMap attrs,
                        const std::string& name) {
  return impl_->add(op, inputs, std::move(attrs), impl_->unique(impl_->scoped(name.empty() ? op : name)));
}

StreamHandle GraphBuilder::get_stream(std::optional<int> id) {
  if (id) return StreamHandle(impl_->user_stream(*id));
  const auto automatic = std::make_shared<int>(impl_->free_stream());
  impl_->automatic_streams.push_back({automatic, {}});
  return StreamHandle(automatic);
}

void GraphBuilder::control_dependency(const Output& before, const Output& node) {
  impl_->node(before);
  impl_->node(node).add_input("^" + before.node);
}

namespace {

void refuse_duplicate(bool exists, const std::string& name) {
  if (exists) throw InvalidArgument("the graph has a node '" + name + "' already");
}

/// int32, as TensorFlow's own graphs have it, where all values fit.
Tensor integer_vector(const std::vector<std::int64_t>& values) {
  const Shape shape{static_cast<std::int64_t>(values.size())};
  if (!std::all_of(values.begin(), values.end(),
                   [](std::int64_t v) { return std::in_range<std::int32_t>(v); }))
    return Tensor::from<std::int64_t>(shape, values);
  return Tensor::from<std::int32_t>(shape, std::vector<std::int32_t>(values.begin(), values.end()));
}

}  // namespace

Output GraphBuilder::placeholder(const std::string& name, DType dtype, Shape shape) {
  const std::string full = impl_->scoped(name);
  refuse_duplicate(impl_->index_by_name.contains(full), full);
  return impl_->add("Placeholder", {}, {{"dtype", dtype}, {"shape", std::move(shape)}}, full);
}

Output GraphBuilder::constant(const Tensor& value, const std::string& name) {
  return op("Const", {}, {{"dtype", value.dtype()}, {"value", value}}, name.empty() ? "Const" : name);
}

Output GraphBuilder::variable(const std::string& name, Shape shape, const VariableOptions& options) {
  const std::string full = impl_->scoped(name);
  refuse_duplicate(impl_->index_by_name.contains(full), full);
  AttrMap attrs{{"dtype", DType::Float32},
                {"shape", std::move(shape)},
                {"shared_name", full},
                {"_init_kind", static_cast<int>(options.init.kind)},
                {"_init_a", options.init.a},
                {"_init_b", options.init.b},
                {"_trainable", options.trainable},
                {"_sparse", options.sparse}};
  if (!options.former_name.empty()) attrs.set("_former_name", impl_->scoped(options.former_name));
  return impl_->add("VarHandleOp", {}, std::move(attrs), full);
}

namespace {

/// The variable that a handle names; its type decides the type of what reads it.
DType handle_dtype(const NodeDef& node) {
  const auto it = node.attr().find("dtype");
  const OpDef* op = OpRegistry::global().find(node.op());
  if (!op || op->role != OpRole::Variable || it == node.attr().end()) {
    throw InvalidArgument("[" + node.op() + "] node '" + node.name() + "' is not the handle of a variable");
  }
  return from_proto(it->second.type());
}

}  // namespace

Output GraphBuilder::read(const Output& handle) {
  return op("ReadVariableOp", {handle}, {{"dtype", handle_dtype(impl_->node(handle))}});
}

Output GraphBuilder::matmul(const Output& a, const Output& b, bool transpose_a, bool transpose_b) {
  return op("MatMul", {a, b}, {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}});
}

Output GraphBuilder::add(const Output& a, const Output& b) { return op("AddV2", {a, b}); }
Output GraphBuilder::mul(const Output& a, const Output& b) { return op("Mul", {a, b}); }
Output GraphBuilder::bias_add(const Output& x, const Output& bias) { return op("BiasAdd", {x, bias}); }
Output GraphBuilder::relu(const Output& x) { return op("Relu", {x}); }

Output GraphBuilder::reshape(const Output& x, const std::vector<std::int64_t>& shape) {
  return op("Reshape", {x, constant(integer_vector(shape), "Reshape/shape")});
}

Output GraphBuilder::concat(const std::vector<Output>& values, int axis) {
  std::vector<Output> inputs = values;
  inputs.push_back(constant(Tensor::scalar<std::int32_t>(axis), "concat/axis"));
  return op("ConcatV2", inputs, {{"N", static_cast<std::int64_t>(values.size())}}, "concat");
}

Output GraphBuilder::gather(const Output& handle, const Output& indices) {
  return op("ResourceGather", {handle, indices}, {{"dtype", handle_dtype(impl_->node(handle))}});
}

Output GraphBuilder::reduce_mean(const Output& x, const std::vector<std::int64_t>& axes, bool keep_dims) {
  if (!axes.empty())
    return op("Mean", {x, constant(integer_vector(axes), "Mean/axes")}, {{"keep_dims", keep_dims}});
  if (!keep_dims) return op("Mean", {reshape(x, {-1}), constant(integer_vector({0}), "Mean/axes")});
  // All axes of an input whose rank the builder does not know.
  const Output first = constant(Tensor::scalar<std::int32_t>(0), "Mean/first");
  const Output step = constant(Tensor::scalar<std::int32_t>(1), "Mean/step");
  const Output all = op("Range", {first, op("Rank", {x}, {}, "Mean/rank"), step}, {}, "Mean/axes");
  return op("Mean", {x, all}, {{"keep_dims", true}});
}

Output GraphBuilder::dense(const std::string& name, const Output& x, std::int64_t in, std::int64_t out,
                           bool with_relu) {
  NameScope scope(*this, name);
  const float limit = std::sqrt(6.0F / static_cast<float>(in + out));
  const Output kernel = variable("kernel", Shape{in, out}, {.init = {InitKind::Uniform, -limit, limit}});
  const Output bias = variable("bias", Shape{out}, {});
  const Output y = bias_add(matmul(x, read(kernel)), read(bias));
  return with_relu ? relu(y) : y;
}

// -------------------------------------------------------------------------------------------------------------
// scopes

NameScope::NameScope(GraphBuilder& builder, const std::string& name) : builder_(builder) {
  if (name.empty()) throw InvalidArgument("a name scope needs a name");
  builder_.impl_->name_scopes.push_back(builder_.impl_->scoped(name) + "/");
}
NameScope::~NameScope() { builder_.impl_->name_scopes.pop_back(); }

StreamScope::StreamScope(GraphBuilder& builder, int stream, bool include_grad) : builder_(builder) {
  builder_.impl_->streams.push_back({builder_.impl_->user_stream(stream), include_grad});
}
StreamScope::StreamScope(GraphBuilder& builder, const StreamHandle& stream, bool include_grad)
    : builder_(builder) {
  builder_.impl_->streams.push_back({stream.id_, include_grad});
}
StreamScope::~StreamScope() { builder_.impl_->streams.pop_back(); }

ColocateScope::ColocateScope(GraphBuilder& builder, const Output& target) : builder_(builder) {
  builder_.impl_->node(target);
  builder_.impl_->colocations.push_back("loc:@" + target.node);
}
ColocateScope::~ColocateScope() { builder_.impl_->colocations.pop_back(); }

DeviceScope::DeviceScope(GraphBuilder& builder, const std::string& device) : builder_(builder) {
  builder_.impl_->devices.push_back(device);
}
DeviceScope::~DeviceScope() { builder_.impl_->devices.pop_back(); }

}  // namespace braid
