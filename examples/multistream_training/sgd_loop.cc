#include "examples/multistream_training/sgd_loop.h"

#include "engine/autodiff/gradients.h"
#include "engine/compile/compile.h"
#include "engine/import/import.h"
#include "engine/ops/state/variable_init.h"
#include "proto/graph.pb.h"

namespace braid {
namespace {

constexpr std::chrono::minutes kStepTimeout{5};

/// Adds "update/<variable>" for each trainable variable, on the stream of its gradient; gives their names.
std::vector<std::string> add_updates(Graph& graph, ValueRef loss, float learning_rate) {
  std::vector<std::string> updates;
  const OpRegistry& ops = OpRegistry::global();
  const std::vector<VariableGradient> gradients = add_gradients(graph, loss);
  Node rate;
  rate.name = graph.unique_name("learning_rate");
  rate.op = &ops.require("Const");
  rate.attrs = {{"dtype", DType::Float32}, {"value", Tensor::scalar(learning_rate)}};
  const NodeId rate_id = graph.add(std::move(rate));
  for (const VariableGradient& gradient : gradients) {
    Node update;
    update.name = graph.unique_name("update/" + gradient.variable.name);
    update.op = &ops.require("ResourceApplyGradientDescent");
    update.inputs = {{gradient.variable.handle, 0}, {rate_id, 0}, gradient.dense};
    update.colocate_with = gradient.dense.node;
    updates.push_back(update.name);
    graph.add(std::move(update));
  }
  return updates;
}

}  // namespace

SgdLoop::SgdLoop(const GraphDef& forward, const std::string& loss, float learning_rate,
                 std::vector<Feed> feeds, int streams, std::uint64_t seed, Runtime& runtime)
    : SgdLoop(
          forward, loss, learning_rate, std::move(feeds),
          StreamOptions{.count = streams, .policy = streams == 1 ? StreamPolicy::None : StreamPolicy::User},
          seed, runtime) {}

SgdLoop::SgdLoop(const GraphDef& forward, const std::string& loss, float learning_rate,
                 std::vector<Feed> feeds, const StreamOptions& streams, std::uint64_t seed, Runtime& runtime)
    : runtime_(runtime) {
  Graph graph = import_graph(forward);
  CompileRequest request;
  request.targets = add_updates(graph, graph.parse_value(loss), learning_rate);
  request.fetches = {loss};
  for (Feed& feed : feeds) {
    request.feeds.push_back({feed.name, feed.value.dtype(), feed.value.shape()});
    feeds_.push_back(std::move(feed.value));
  }
  CompileOptions options;
  options.streams = streams;
  options.domain = runtime.device() ? Domain::Device : Domain::Host;
  instance_ = std::make_unique<Instance>(compile(graph, request, options), runtime);
  for (const VariableInfo& variable : list_variables(graph)) {
    Tensor value(variable.dtype, variable.shape);
    initialize_variable(graph.node(variable.handle), seed, value);
    runtime.variables().write(variable.name, value);
  }
}

float SgdLoop::step() {
  StepRequest request;
  request.params.step = next_++;
  request.feeds = feeds_;
  return instance_->run(std::move(request), WaitContext::with_timeout(kStepTimeout))
      .fetches[0]
      .data<float>()[0];
}

float SgdLoop::value(const std::string& variable) const {
  return runtime_.variables().read(variable)->data<float>()[0];
}

}  // namespace braid
