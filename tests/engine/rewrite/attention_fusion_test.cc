// Attention that is written as products, masks and softmax becomes a node, with its gradient, and means the
// same; what only looks like it stays.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "engine/compile/compile.h"
#include "tests/engine/rewrite/attention_models.h"

namespace braid::testing {
namespace {

constexpr float kTolerance = 3e-5F;  // of float32 sums of which some cancel

std::shared_ptr<const Program> compiled(const Differentiated& model, AttentionNodes nodes,
                                        Domain domain = Domain::Host) {
  CompileOptions options;
  options.domain = domain;
  options.attention = nodes;
  CompileRequest request{{}, model.fetches, {}};
  for (const auto& [name, tensor] : model.feeds)
    request.feeds.push_back({name, tensor.dtype(), tensor.shape()});
  return compile(model.graph, request, options);
}

int tries(int few) {
  const char* const set = std::getenv("BRAID_RANDOM_ATTENTION");
  return set ? std::atoi(set) : few;
}

TEST(AttentionFusionTest, HoweverItIsWrittenItIsOneNodeEach) {
  const int count = tries(250);
  int causal = 0;
  for (int seed = 0; seed < count && !::testing::Test::HasFailure(); ++seed) {
    const WrittenAttention written = written_attention(static_cast<std::uint64_t>(seed), Unlike::None);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, written.text));
    const auto program = compiled(written.model, AttentionNodes::Always);
    EXPECT_EQ(count_ops(*program, "braid.Attention"), 1);
    EXPECT_EQ(count_ops(*program, "braid.AttentionGrad"), 1);
    for (const char* gone : {"BatchMatMulV2", "Einsum", "Softmax", "braid.SoftmaxGrad"})
      EXPECT_EQ(count_ops(*program, gone), 0) << gone;
    // A reshape between a transposition and the scores keeps the layout; numbers do not.
    if (written.text.find("scaled behind") == std::string::npos) {
      EXPECT_EQ(count_ops(*program, "Transpose"), 0);
    }
    expect_same_values(written.model, *program, kTolerance);
    if (written.text.find("causal") == std::string::npos) continue;
    for (NodeId id = 0; id < program->graph.size(); ++id) {
      const Node& node = program->graph.node(id);
      if (node.removed || node.op->name != "braid.Attention") continue;
      EXPECT_TRUE(node.attrs.get("causal", false));
      EXPECT_EQ(node.inputs.size(), 3U) << "the mask stays";
      ++causal;
    }
  }
  EXPECT_GE(causal, count / 10);
}

TEST(AttentionFusionTest, SeveralTilesAreTheSame) {
  for (std::uint64_t seed = 0; seed < 12; ++seed) {
    const WrittenAttention written = written_attention(seed, Unlike::None, true);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, written.text));
    const auto program = compiled(written.model, AttentionNodes::Always);
    EXPECT_EQ(count_ops(*program, "braid.AttentionGrad"), 1);
    expect_same_values(written.model, *program, kTolerance);
  }
}

TEST(AttentionFusionTest, WhatIsNoAttentionStays) {
  const int count = tries(250);
  for (int seed = 0; seed < count && !::testing::Test::HasFailure(); ++seed) {
    const Unlike unlike = kAllUnlike[static_cast<std::size_t>(seed) % std::size(kAllUnlike)];
    const WrittenAttention written = written_attention(static_cast<std::uint64_t>(seed), unlike);
    SCOPED_TRACE(fmt::format("seed {}, unlike {}: {}", seed, static_cast<int>(unlike), written.text));
    const auto program = compiled(written.model, AttentionNodes::Always);
    EXPECT_EQ(count_ops(*program, "braid.Attention"), 0);
    expect_same_values(written.model, *program, kTolerance);
  }
}

TEST(AttentionFusionTest, ProgramsThatRunWithRegionsAreTheSame) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const WrittenAttention written = written_attention(seed, Unlike::None, seed % 4 == 0);
    SCOPED_TRACE(written.text);
    const MixedModel model = runnable(written);
    CompileOptions options;
    options.attention = AttentionNodes::Never;
    const std::vector<Tensor> plain = run_model(model, options);
    options.attention = AttentionNodes::Always;
    options.fusion = true;
    const std::vector<Tensor> fused = run_model(model, options);
    ASSERT_EQ(plain.size(), fused.size());
    for (std::size_t i = 0; i < plain.size(); ++i)
      EXPECT_LT(distance(fused[i], plain[i]), 1e-5) << written.model.fetches[i];
  }
}

TEST(AttentionFusionTest, SmallAttentionOfTheHostStaysUnlessItIsAskedFor) {
  const WrittenAttention small = written_attention(1, Unlike::None);
  EXPECT_EQ(count_ops(*compiled(small.model, AttentionNodes::WhereFaster), "braid.Attention"), 0);
  EXPECT_EQ(count_ops(*compiled(small.model, AttentionNodes::Never), "braid.Attention"), 0);
}

TEST(AttentionFusionTest, HalvesAreReadByTheNodeUnlessProductsAreKept) {
  const WrittenAttention written = written_attention(5, Unlike::None);
  CompileOptions options;
  options.attention = AttentionNodes::Always;
  options.precision.half = DType::BFloat16;
  CompileRequest request{{}, written.model.fetches, {}};
  for (const auto& [name, tensor] : written.model.feeds)
    request.feeds.push_back({name, tensor.dtype(), tensor.shape()});
  const auto program = compile(written.model.graph, request, options);
  int nodes = 0;
  for (NodeId id = 0; id < program->graph.size(); ++id) {
    const Node& node = program->graph.node(id);
    if (node.removed || (node.op->name != "braid.Attention" && node.op->name != "braid.AttentionGrad"))
      continue;
    ++nodes;
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(program->graph.info(node.inputs[static_cast<std::size_t>(i)]).dtype, DType::BFloat16);
  }
  EXPECT_EQ(nodes, 2);
  expect_same_values(written.model, *program, 5e-2F);
  options.precision.keep_ops = {"BatchMatMulV2", "Einsum"};
  EXPECT_EQ(count_ops(*compile(written.model.graph, request, options), "braid.Attention"), 0);
}

TEST(AttentionFusionTest, LayersThatShareASumOfMasksAreFound) {
  // As T5 has it: a learned bias for each query and key, and a mask of what is there, added up once.
  GraphBuilder b;
  std::vector<std::pair<std::string, Tensor>> feeds;
  const auto fed = [&](const std::string& name, const Shape& shape) {
    Tensor t(DType::Float32, shape);
    int i = 0;
    for (float& x : t.data<float>()) x = static_cast<float>((i++ * 29) % 17 - 8) / 10;
    feeds.emplace_back(name, t);
    return b.placeholder(name, DType::Float32, shape);
  };
  const auto learned = [&](const char* name, const Shape& shape) {
    return b.read(b.variable(name, shape, {.init = {InitKind::Uniform, -1, 1}}));
  };
  const Output masks = b.add(learned("bias", {1, 2, 5, 5}), fed("there", {3, 1, 1, 5}));
  Output x = b.mul(fed("x", {3, 2, 5, 4}), learned("w", {4}));
  for (int layer = 0; layer < 2; ++layer) {
    const Output scores = b.op("BatchMatMulV2", {x, x}, {{"adj_x", false}, {"adj_y", true}});
    x = b.add(x, b.op("BatchMatMulV2", {b.op("Softmax", {b.add(scores, masks)}), x}));
  }
  const Differentiated model = differentiated(b, b.reduce_mean(b.mul(x, x)), feeds);
  const auto program = compiled(model, AttentionNodes::Always);
  EXPECT_EQ(count_ops(*program, "braid.Attention"), 2);
  EXPECT_EQ(count_ops(*program, "braid.AttentionGrad"), 2);
  EXPECT_EQ(count_ops(*program, "braid.SoftmaxGrad"), 0);
  expect_same_values(model, *program, kTolerance);
}

TEST(AttentionFusionTest, FetchedWeightsStay) {
  WrittenAttention written = written_attention(3, Unlike::None);
  const Graph& graph = written.model.graph;
  for (NodeId id = 0; id < graph.size(); ++id)
    if (graph.node(id).op->name == "Softmax") written.model.fetches.push_back(graph.node(id).name);
  const auto program = compiled(written.model, AttentionNodes::Always);
  EXPECT_EQ(count_ops(*program, "braid.Attention"), 0);
  expect_same_values(written.model, *program, kTolerance);
}

}  // namespace
}  // namespace braid::testing
