// Where buffers lie: who may share bytes with whom, and what streams wait for so that they may.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "engine/exec/plan_report.h"
#include "engine/memory/arena_plan.h"
#include "engine/verify/verify.h"
#include "tests/engine/testing/test_ops.h"

namespace braid::testing {
namespace {

TEST(MemoryTest, AChainNeedsTwoBuffers) {
  TestGraph g;
  ValueRef v = g.feed("x", 4);
  for (int i = 0; i < 20; ++i) v = g.mix({v}, 128);
  const auto p = compile_test(g, {g.name(g.mix({v}, 1))}, {}, 1, StreamPolicy::None, 2, kX);
  EXPECT_EQ(p->stats.arena_bytes, 2U * 128 * 8);
  EXPECT_EQ(memory_report(*p).largest_live_bytes, 2U * 128 * 8);
}

TEST(MemoryTest, AChainInPlaceNeedsOne) {
  TestGraph g;
  ValueRef v = g.mix({g.feed("x", 4)}, 128);
  for (int i = 0; i < 20; ++i) v = g.add("test.Change", {v}, {{"elements", std::int64_t{128}}});
  const auto p = compile_test(g, {g.name(g.mix({v}, 1))}, {}, 1, StreamPolicy::None, 2, kX);
  EXPECT_EQ(p->stats.arena_bytes, 128U * 8);
}

TEST(MemoryTest, InPlaceIsRefusedWhileSomebodyStillReads) {
  TestGraph g;
  const ValueRef v = g.mix({g.feed("x", 4)}, 128, "v");
  const ValueRef c = g.add("test.Change", {v}, {{"elements", std::int64_t{128}}}, "c");
  const ValueRef other = g.mix({v}, 128, "other");
  g.node(c).stream = 0;
  g.node(other).stream = 1;  // unordered with c
  g.mix({c, other}, 1, "end");
  const auto p = compile_test(g, {"end"}, {}, 2, StreamPolicy::User, 2, kX);
  const auto& change = p->ops[static_cast<std::size_t>(op_named(*p, "c"))];
  EXPECT_NE(change.inputs[0].buffer, change.outputs[0].buffer);
}

TEST(MemoryTest, S7_BuffersOfUnorderedNodesNeverShare) {
  // Two independent chains on two streams: four buffers of 1 KiB, where one stream needs two.
  TestGraph g;
  const ValueRef x = g.feed("x", 4);
  std::vector<ValueRef> ends;
  for (int b = 0; b < 2; ++b) {
    ValueRef v = x;
    for (int i = 0; i < 6; ++i) v = on(g, b, {v}, "b" + std::to_string(b) + std::to_string(i), 128);
    ends.push_back(v);
  }
  on(g, 0, ends, "end", 1);
  const auto two = compile_test(g, {"end"}, {}, 2, StreamPolicy::User, 2, kX);
  EXPECT_EQ(two->stats.arena_bytes, 4U * 1024);
  const auto one = compile_test(g, {"end"}, {}, 2, StreamPolicy::None, 2, kX);
  EXPECT_EQ(one->stats.arena_bytes, 3U * 1024);
}

TEST(MemoryTest, S7_OneStreamMayUseTheWholeArena) {
  // The large buffer of the second branch takes the place of the first branch's buffers once an event orders
  // them.
  TestGraph g;
  const ValueRef a = on(g, 0, {g.feed("x", 4)}, "a", 512);
  const ValueRef b = on(g, 0, {a}, "b", 1);
  const ValueRef c = on(g, 1, {b}, "c", 512);
  on(g, 1, {c}, "end", 1);
  EXPECT_LE(compile_test(g, {"end"}, {}, 2, StreamPolicy::User, 2, kX)->stats.arena_bytes, 512U * 8 + 2 * 64);
}

/// A chain of large buffers on stream 0, of each of which stream 1 makes something small: like gradients and
/// the updates that they feed. Nothing on stream 0 depends on stream 1 before the end.
TestGraph chain_with_side_work(int links) {
  TestGraph g;
  std::vector<ValueRef> small;
  ValueRef v = g.add("Placeholder", {}, {{"dtype", DType::Float32}, {"shape", Shape{65536}}}, "x");
  for (int i = 0; i < links; ++i) {
    v = g.add("Exp", {v}, {}, "link" + std::to_string(i));
    g.node(v).stream = 0;
    small.push_back(on(g, 1, {v}, "side" + std::to_string(i), 1));
  }
  small.push_back(on(g, 0, {v}, "last", 1));
  on(g, 0, small, "end", 1);
  return g;
}

/// Such a chain of 12 links on two streams.
std::shared_ptr<const Program> compile_chain(std::uint64_t memory_waits_from) {
  CompileOptions options;
  options.streams.count = 2;
  options.streams.policy = StreamPolicy::User;
  options.streams.memory_waits_from = memory_waits_from;
  return compile(chain_with_side_work(12).graph, {{{"x", DType::Float32, Shape{65536}}}, {"end"}, {}},
                 options);
}

TEST(MemoryTest, StreamsWaitForEachOtherWhereLargeBuffersCanThenShare) {
  const auto without = compile_chain(kNoMemoryWaits);
  const auto with = compile_chain(StreamOptions{}.memory_waits_from);
  constexpr std::uint64_t kLink = 65536 * sizeof(float);
  EXPECT_GE(without->stats.arena_bytes, 12 * kLink) << "stream 0 never learns that stream 1 is done with one";
  EXPECT_EQ(without->stats.waits_for_memory, 0);
  EXPECT_LE(with->stats.arena_bytes, 5 * kLink);
  EXPECT_GT(with->stats.waits_for_memory, 0);
  EXPECT_LE(with->stats.step_us, 1.01 * without->stats.step_us);
}

TEST(MemoryTest, EveryWaitForMemoryIsOneThatSharedBytesNeed) {
  const auto without = compile_chain(kNoMemoryWaits);
  const auto with = compile_chain(StreamOptions{}.memory_waits_from);
  ASSERT_EQ(without->ops.size(), with->ops.size());
  int waits = 0;
  for (std::size_t op = 0; op < with->ops.size(); ++op) {
    ASSERT_EQ(with->ops[op].name, without->ops[op].name);
    for (const int dep : with->ops[op].deps) {
      if (std::ranges::count(without->ops[op].deps, dep) > 0) continue;
      Program less = *with;
      std::erase(less.ops[op].deps, dep);
      auto& list = less.streams[static_cast<std::size_t>(less.ops[op].stream)].instructions;
      waits += static_cast<int>(std::erase(list, Instruction{Instruction::Kind::Wait, dep}));
      EXPECT_THROW(verify(less), Internal) << with->ops[op].name << " after " << dep;
    }
  }
  EXPECT_EQ(waits, with->stats.waits_for_memory);
  EXPECT_GT(waits, 0);
}

TEST(MemoryTest, SmallBuffersAreNotWorthAWait) {
  TestGraph g;
  ValueRef v = g.feed("x", 4);
  std::vector<ValueRef> ends;
  for (int i = 0; i < 12; ++i) {
    v = on(g, 0, {v}, "link" + std::to_string(i), 128);
    ends.push_back(on(g, 1, {v}, "side" + std::to_string(i), 1));
  }
  ends.push_back(v);
  on(g, 0, ends, "end", 1);
  EXPECT_EQ(compile_test(g, {"end"}, {}, 2, StreamPolicy::User, 2, kX)->stats.waits_for_memory, 0);
}

TEST(IssueOrderTest, AStreamDoesWhatIsReadyInsteadOfWaitingForWhatIsUrgent) {
  // Stream 1 has a node that leads on to a long path, but comes late, and one that leads nowhere, but is
  // ready.
  TestGraph g;
  const ValueRef x = g.feed("x", 4);
  ValueRef v = x;
  for (int i = 0; i < 4; ++i) v = on(g, 0, {v}, "before" + std::to_string(i), 65536);
  ValueRef urgent = on(g, 1, {v}, "urgent", 65536);
  for (int i = 0; i < 4; ++i) urgent = on(g, 0, {urgent}, "after" + std::to_string(i), 65536);
  const ValueRef ready = on(g, 1, {x}, "ready", 65536);
  on(g, 0, {urgent, ready}, "end", 1);
  const auto p = compile_test(g, {"end"}, {}, 2, StreamPolicy::User, 2, kX);
  EXPECT_LT(op_named(*p, "ready"), op_named(*p, "urgent"));
}

TEST(MemoryTest, BestFitPutsSmallBuffersIntoGaps) {
  // 0 and 1 live together, 2 with 1 only: it fits where 0 was.
  BitMatrix share(3);
  share.set(0, 2);
  share.set(2, 0);
  const std::vector<std::uint64_t> sizes = {1000, 4000, 900};
  const ArenaPlan plan = plan_arena(sizes, share);
  EXPECT_EQ(plan.bytes, align_up(1000) + align_up(4000));
  EXPECT_EQ(plan.offsets[0], plan.offsets[2]);
  for (const std::uint64_t offset : plan.offsets) EXPECT_EQ(offset % 64, 0U);
}

TEST(MemoryTest, SymmetryByBlocksIsSymmetryByBits) {
  std::uint64_t state = 1;
  BitMatrix m(200);
  for (std::size_t i = 0; i < 200; ++i)
    for (std::size_t j = 0; j < 200; ++j)
      if ((state = state * 6364136223846793005ULL + 1442695040888963407ULL) >> 61 == 0) m.set(i, j);
  BitMatrix s = m;
  s.make_symmetric();
  for (std::size_t i = 0; i < 200; ++i)
    for (std::size_t j = 0; j < 200; ++j)
      ASSERT_EQ(s.test(i, j), m.test(i, j) || m.test(j, i)) << i << " " << j;
}

}  // namespace
}  // namespace braid::testing
