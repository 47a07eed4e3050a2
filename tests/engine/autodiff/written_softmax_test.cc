// Softmax that is written by exponentials becomes one node, forwards and back, and means the same; what only
// looks like it stays.
#include "engine/autodiff/written_softmax.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "engine/autodiff/gradients.h"
#include "engine/builder/graph_builder.h"
#include "engine/import/import.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/interpreter.h"

namespace braid {
namespace {

using testing::Interpreter;

enum class Written { Softmax, BehindStop, OtherAxis, OtherMaximum, OtherSum, NoMaximum };

struct Model {
  Graph graph;
  Interpreter::Feeds feeds;
  std::string weights, loss;
};

Tensor spread(const Shape& shape, float by) {
  Tensor tensor(DType::Float32, shape);
  int i = 0;
  for (float& x : tensor.data<float>()) x = by * static_cast<float>((i++ * 37) % 19 - 9);
  return tensor;
}

/// sum(c softmax(w x)) of rows that have ties, a large and, with `infinite`, an infinite number.
Model model(Written written, bool infinite = false) {
  GraphBuilder b;
  Model m;
  Tensor x = spread({3, 4, 5}, 1), c = spread({3, 4, 5}, 0.3F);
  x.data<float>()[0] = x.data<float>()[1] = 9;
  x.data<float>()[7] = 300;
  if (infinite) x.data<float>()[12] = -std::numeric_limits<float>::infinity();
  m.feeds = {{"x", x}, {"c", c}};
  const auto fed = [&](const char* name) { return b.placeholder(name, DType::Float32, Shape{3, 4, 5}); };
  const auto axis = [&](std::int32_t a) { return b.constant(Tensor::scalar<std::int32_t>(a)); };
  const Output w = b.read(b.variable("w", Shape{5}, {}));
  const Output y = b.mul(fed("x"), w);
  const std::int32_t of = written == Written::OtherAxis ? 1 : 2;
  Output most =
      b.op("Max", {written == Written::OtherMaximum ? b.mul(y, y) : y, axis(of)}, {{"keep_dims", true}});
  if (written == Written::BehindStop) most = b.op("StopGradient", {most});
  const Output e = b.op("Exp", {written == Written::NoMaximum ? y : b.op("Sub", {y, most})});
  const Output sum =
      b.op("Sum", {written == Written::OtherSum ? b.mul(e, e) : e, axis(of)}, {{"keep_dims", true}});
  const Output weights = b.op("RealDiv", {e, sum});
  m.weights = weights.name();
  m.loss = b.reduce_mean(b.mul(weights, fed("c"))).name();
  m.graph = import_graph(b.graph());
  return m;
}

int count(const Graph& graph, std::string_view op) {
  int n = 0;
  for (NodeId id = 0; id < graph.size(); ++id) n += !graph.node(id).removed && graph.node(id).op->name == op;
  return n;
}

/// Weights and the gradient of w.
std::vector<Tensor> results(Model m) {
  const auto gradients = add_gradients(m.graph, m.graph.parse_value(m.loss));
  Interpreter interpreter(m.graph);
  interpreter.variables()["w"] = spread({5}, 0.11F);
  return interpreter.run(m.feeds, {m.weights, m.graph.value_name(gradients.at(0).dense)});
}

TEST(WrittenSoftmax, IsOneNodeWithTheSameValuesAndGradients) {
  for (const Written written : {Written::Softmax, Written::BehindStop})
    for (const bool infinite : {false, true}) {
      Model plain = model(written, infinite), joined = model(written, infinite);
      EXPECT_EQ(join_written_softmax(joined.graph), 1);
      EXPECT_EQ(count(joined.graph, "Softmax"), 1);
      const std::vector<Tensor> a = results(std::move(plain)), b = results(std::move(joined));
      for (std::size_t i = 0; i < a.size(); ++i)
        for (std::int64_t k = 0; k < a[i].elements(); ++k) {
          const float x = a[i].data<float>()[static_cast<std::size_t>(k)],
                      y = b[i].data<float>()[static_cast<std::size_t>(k)];
          if (infinite && i == 1) continue;  // of a product with infinity
          EXPECT_NEAR(x, y, 2e-5) << i << ' ' << k;
        }
    }
}

TEST(WrittenSoftmax, WhatOnlyLooksLikeItStays) {
  for (const Written written :
       {Written::OtherAxis, Written::OtherMaximum, Written::OtherSum, Written::NoMaximum}) {
    Model m = model(written);
    EXPECT_EQ(join_written_softmax(m.graph), 0) << static_cast<int>(written);
    EXPECT_EQ(count(m.graph, "Softmax"), 0);
  }
}

}  // namespace
}  // namespace braid
