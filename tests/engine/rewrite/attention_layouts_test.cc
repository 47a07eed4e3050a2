// Attention whose queries, keys and values come out of one product reads them there, and writes their
// gradients there, whatever takes them out; and means the same.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "engine/compile/compile.h"
#include "engine/ops/nn/attention_node.h"
#include "tests/engine/testing/differentiated.h"

namespace braid::testing {
namespace {

constexpr std::int64_t kSequences = 3, kPositions = 10, kHeads = 2, kWidthOfHead = 8,
                       kAll = 3 * kHeads * kWidthOfHead;

/// How queries, keys and values are taken out of rows of all of them.
enum class Taken { Unpacked, RowsFirst, Split, SplitOfHeads, Apart };

class Model {
 public:
  explicit Model(Taken taken, bool read_elsewhere = false, bool learned_bias = false) : taken_(taken) {
    const Shape rows =
        taken == Taken::RowsFirst ? Shape{kPositions, kSequences, 16} : Shape{kSequences, kPositions, 16};
    const Output x = b_.placeholder("x", DType::Float32, rows);
    const Output flat = shaped(x, {kSequences * kPositions, 16});
    const Output product = b_.matmul(flat, b_.read(b_.variable("w", Shape{16, kAll}, uniform())));
    const Output all =
        shaped(b_.add(product, b_.read(b_.variable("b", Shape{kAll}, uniform()))), {rows[0], rows[1], kAll});
    const std::array<Output, 3> heads = taken_out(all);
    Output scores = b_.mul(b_.op("BatchMatMulV2", {heads[0], heads[1]}, {{"adj_y", true}}),
                           b_.constant(Tensor::scalar(1 / std::sqrt(8.0F))));
    if (learned_bias)
      scores = b_.add(scores, b_.read(b_.variable("bias", Shape{kHeads, kPositions, kPositions}, uniform())));
    Output y = b_.op("BatchMatMulV2", {b_.op("Softmax", {scores}), heads[2]});
    Output loss = b_.reduce_mean(b_.op("Square", {turned(y, {0, 2, 1, 3})}));
    if (read_elsewhere) loss = b_.add(loss, b_.reduce_mean(b_.op("Tanh", {heads[1]})));
    made_ = differentiated(b_, loss, {{"x", random_floats({rows[0], rows[1], 16}, 1)}});
  }

  const Differentiated& made() const { return made_; }
  std::shared_ptr<const Program> compiled() const {
    CompileRequest request;
    request.feeds = {{"x", DType::Float32, made_.feeds[0].second.shape()}};
    request.fetches = made_.fetches;
    CompileOptions options;
    options.attention = AttentionNodes::Always;
    return compile(made_.graph, request, options);
  }

 private:
  static VariableOptions uniform() { return {.init = {InitKind::Uniform, -0.5F, 0.5F}}; }
  Output ints(const std::vector<std::int32_t>& x) {
    return b_.constant(Tensor::from<std::int32_t>(Shape{std::ssize(x)}, x));
  }
  Output shaped(const Output& x, const std::vector<std::int64_t>& sizes) { return b_.reshape(x, sizes); }
  Output turned(const Output& x, const std::vector<std::int32_t>& axes) {
    return b_.op("Transpose", {x, ints(axes)});
  }

  std::array<Output, 3> taken_out(const Output& all) {
    const auto parts_of = [](const Output& node) {
      return std::array<Output, 3>{node, Output{node.node, 1}, Output{node.node, 2}};
    };
    const auto split = [&](const Output& x, std::int32_t axis) {
      return parts_of(b_.op("Split", {b_.constant(Tensor::scalar(axis)), x}, {{"num_split", 3}}));
    };
    std::array<Output, 3> parts;
    switch (taken_) {
      case Taken::Unpacked: {
        const Output five = shaped(all, {kSequences, kPositions, 3, kHeads, kWidthOfHead});
        return parts_of(b_.op("Unpack", {turned(five, {2, 0, 3, 1, 4})}, {{"num", 3}, {"axis", 0}}));
      }
      case Taken::RowsFirst: {  // as PyTorch's MultiheadAttention
        const Output four = shaped(all, {kPositions, kSequences, 3, kHeads * kWidthOfHead});
        parts = parts_of(b_.op("Unpack", {turned(four, {2, 0, 1, 3})}, {{"num", 3}, {"axis", 0}}));
        for (Output& part : parts)
          part = shaped(turned(shaped(part, {kPositions, kSequences * kHeads, kWidthOfHead}), {1, 0, 2}),
                        {kSequences, kHeads, kPositions, kWidthOfHead});
        return parts;
      }
      case Taken::SplitOfHeads: {  // each head has its queries, keys and values side by side
        parts =
            split(turned(shaped(all, {kSequences, kPositions, kHeads, 3 * kWidthOfHead}), {0, 2, 1, 3}), 3);
        return parts;
      }
      default:
        parts = split(all, 2);
        for (Output& part : parts)
          part = turned(shaped(part, {kSequences, kPositions, kHeads, kWidthOfHead}), {0, 2, 1, 3});
        if (taken_ == Taken::Apart) parts[0] = b_.op("Tanh", {parts[0]});
        return parts;
    }
  }

  Taken taken_;
  GraphBuilder b_;
  Differentiated made_;
};

const Node* only_node(const Program& program, const std::string& op) {
  for (const ProgramOp& at : program.ops)
    if (at.op == op) return &program.graph.node(at.node);
  return nullptr;
}

TEST(AttentionLayoutsTest, WhatOneProductMakesIsReadAndWrittenThere) {
  for (const Taken taken : {Taken::Unpacked, Taken::RowsFirst, Taken::Split, Taken::SplitOfHeads}) {
    SCOPED_TRACE(static_cast<int>(taken));
    const Model model(taken);
    const auto program = model.compiled();
    for (const char* gone : {"Unpack", "Pack", "Split", "ConcatV2"})
      EXPECT_EQ(count_ops(*program, gone), 0) << gone;
    const Node *forward = only_node(*program, "braid.Attention"),
               *backward = only_node(*program, "braid.AttentionGrad");
    ASSERT_TRUE(forward && backward);
    for (const char* const part : attention::kParts) EXPECT_TRUE(forward->attrs.has(part)) << part;
    EXPECT_TRUE(backward->attrs.has(attention::kJoinedShape));
    EXPECT_TRUE(attention::heads_inside(forward->attrs)) << "rows before heads, as they are read";
    EXPECT_TRUE(attention::heads_inside(backward->attrs));
    EXPECT_EQ(count_ops(*program, "Transpose"), 0);
    expect_same_values(model.made(), *program);
  }
}

TEST(AttentionLayoutsTest, TheMasksGradientIsOfTheSameNode) {
  for (const Taken taken : {Taken::Unpacked, Taken::Split}) {
    const Model model(taken, false, true);
    const auto program = model.compiled();
    EXPECT_EQ(count_ops(*program, "braid.AttentionGrad"), 1);
    const Node* const backward = only_node(*program, "braid.AttentionGrad");
    ASSERT_TRUE(backward);
    EXPECT_TRUE(backward->attrs.has(attention::kJoinedShape));
    expect_same_values(model.made(), *program);
  }
}

TEST(AttentionLayoutsTest, AQueryThatIsComputedIsReadWhereItIs) {
  const Model model(Taken::Apart);
  const auto program = model.compiled();
  const Node *forward = only_node(*program, "braid.Attention"),
             *backward = only_node(*program, "braid.AttentionGrad");
  ASSERT_TRUE(forward && backward);
  EXPECT_FALSE(forward->attrs.has(attention::kParts[0]));
  EXPECT_TRUE(forward->attrs.has(attention::kParts[2]));
  EXPECT_FALSE(backward->attrs.has(attention::kJoinedShape));
  EXPECT_FALSE(attention::heads_inside(forward->attrs))
      << "gradients that are not joined stay in their order";
  expect_same_values(model.made(), *program);
}

TEST(AttentionLayoutsTest, GradientsThatOthersAddToAreNotJoined) {
  const Model model(Taken::Unpacked, true);
  const auto program = model.compiled();
  const Node* backward = only_node(*program, "braid.AttentionGrad");
  ASSERT_TRUE(backward);
  EXPECT_FALSE(backward->attrs.has(attention::kJoinedShape));
  expect_same_values(model.made(), *program);
}

}  // namespace
}  // namespace braid::testing
