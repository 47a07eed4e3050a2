// Reads and writes of a variable keep the order that the graph gives them, whatever the streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/testing/interpreter.h"
#include "tests/engine/testing/test_ops.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

/// Runs three steps on two streams and on the interpreter.
void expect_interpreters_bits(const TestGraph& g, const std::vector<std::string>& fetches,
                              const std::vector<std::string>& targets) {
  const auto p = compile_test(g, fetches, targets, 2, StreamPolicy::User, 2, kX);
  Runtime runtime({});
  Instance instance(p, runtime);
  Interpreter oracle(g.graph);
  for (std::uint64_t step = 0; step < 3; ++step) {
    const Tensor x = test_tensor(4, step);
    const auto got = instance.run(request(step, {x}), soon()).fetches;
    const auto expected = oracle.run({{"x", x}}, fetches, targets);
    for (std::size_t i = 0; i < fetches.size(); ++i)
      EXPECT_TRUE(same_bytes(got[i], expected[i])) << fetches[i] << " step " << step;
  }
}

TEST(VariableOrderTest, UsersOfAnUnorderedReadPrecedeTheWrite) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4), w = g.variable("w", 4);
  g.add("test.Update", {w, x}, {}, "update");
  const ValueRef view = g.add("Identity", {g.read(w)});
  on(g, 1, {view}, "user");
  const auto p = compile_test(g, {"user"}, {"update"}, 2, StreamPolicy::User, 2, kX);
  const auto& deps = p->ops[static_cast<std::size_t>(op_named(*p, "update"))].deps;
  EXPECT_EQ(deps, std::vector<int>{op_named(*p, "user")});
  expect_interpreters_bits(g, {"user"}, {"update"});
}

TEST(VariableOrderTest, AControlPathPutsTheReadAfterTheWrite) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4), w = g.variable("w", 4);
  const ValueRef update = g.add("test.Update", {w, x}, {}, "update");
  const ValueRef read = g.read(w);
  g.control(update, read);
  on(g, 1, {read}, "user");
  const auto p = compile_test(g, {"user"}, {"update"}, 2, StreamPolicy::User, 2, kX);
  EXPECT_EQ(p->ops[static_cast<std::size_t>(op_named(*p, "user"))].deps,
            std::vector<int>{op_named(*p, "update")});
  expect_interpreters_bits(g, {"user"}, {"update"});
}

TEST(VariableOrderTest, AnOldValueUsedAfterTheWriteIsCopied) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4), w = g.variable("w", 4);
  const ValueRef old = g.read(w);
  const ValueRef update = g.add("test.Update", {w, x}, {}, "update");
  const ValueRef user = on(g, 1, {old}, "user");
  g.control(update, user);  // runs after the write, but its input was read before
  const auto p = compile_test(g, {"user"}, {"update"}, 2, StreamPolicy::User, 2, kX);
  EXPECT_GE(op_named(*p, g.name(old) + "/copy"), 0);
  expect_interpreters_bits(g, {"user"}, {"update"});
}

TEST(VariableOrderTest, AFetchedVariableIsTheValueBeforeTheWrite) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4), w = g.variable("w", 4);
  const ValueRef read = g.read(w);
  g.add("test.Update", {w, x}, {}, "update");
  expect_interpreters_bits(g, {g.name(read)}, {"update"});
}

TEST(VariableOrderTest, TwoReadersInACircleOfWritesAreCopied) {
  // user_a uses a after b was written, user_b uses b after a was written; both read first.
  TestGraph g;
  const ValueRef x = g.feed("x", 4), a = g.variable("a", 4), b = g.variable("b", 4);
  const ValueRef read_a = g.read(a), read_b = g.read(b);
  const ValueRef write_a = g.add("test.Update", {a, x}, {}, "write_a"),
                 write_b = g.add("test.Update", {b, x}, {}, "write_b");
  const ValueRef user_a = on(g, 0, {read_a}, "user_a"), user_b = on(g, 1, {read_b}, "user_b");
  g.control(write_b, user_a);
  g.control(write_a, user_b);
  expect_interpreters_bits(g, {"user_a", "user_b"}, {"write_a", "write_b"});
}

TEST(VariableOrderTest, UnorderedWritesAreRefusedByName) {
  TestGraph g;
  const ValueRef x = g.feed("x", 4), w = g.variable("w", 4);
  g.add("test.Update", {w, x}, {}, "first");
  g.add("test.Update", {w, x}, {}, "second");
  EXPECT_EQ(message_of([&] {
              compile_test(g, {}, {"first", "second"}, 2, StreamPolicy::User, 2, kX);
            }),
            "[test.Update] node 'first' and [test.Update] node 'second' both write variable 'w' and nothing "
            "orders them; "
            "add a control dependency");
}

}  // namespace
}  // namespace braid::testing
