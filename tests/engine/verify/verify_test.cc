// verify() finds every planted fault: a wait taken away, memory reused too early, a wait on the step before
// taken away, a slot that the next step overwrites. Each kind is planted in BRAID_PLANTED_FAULTS programs of
// random graphs: 1,000, and a fifth of that under a sanitizer, which is slow.
#include "engine/verify/verify.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "engine/compile/compile.h"
#include "engine/schedule/segments.h"
#include "tests/engine/testing/random_graph.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

/// Plants a fault in a program; false when it has no place for one.
using Plant = std::function<bool(Program&, std::mt19937&)>;

void expect_found(const Plant& plant) {
  std::mt19937 random(5);
  const int wanted = tries("BRAID_PLANTED_FAULTS", 1000, 200);
  int found = 0;
  for (std::uint64_t seed = 0; found < wanted; ++seed) {
    ASSERT_LT(seed, 80U * static_cast<unsigned>(wanted)) << "only " << found << " faults could be planted";
    RandomGraph r = make_random_graph(seed);
    r.options.streams.count = 2 + static_cast<int>(seed % 6);
    r.options.streams.policy = seed % 3 ? StreamPolicy::User : StreamPolicy::Full;
    r.options.streams.keep_all_events = false;
    r.options.steps_in_flight = 2 + static_cast<int>(seed % 2);
    std::shared_ptr<const Program> good;
    try {
      good = compile(r.g.graph, {r.feeds, r.fetches, r.targets}, r.options);
    } catch (const InvalidArgument&) {
      continue;  // no order
    }
    Program bad = *good;
    if (!plant(bad, random)) continue;
    EXPECT_THROW(verify(bad), Internal) << "seed " << seed;
    if (::testing::Test::HasFailure()) return;
    ++found;
  }
}

bool remove_one(Program& program, Instruction::Kind kind, std::mt19937& random) {
  std::vector<std::pair<std::size_t, std::size_t>> places;
  for (std::size_t s = 0; s < program.streams.size(); ++s)
    for (std::size_t i = 0; i < program.streams[s].instructions.size(); ++i)
      if (program.streams[s].instructions[i].kind == kind) places.emplace_back(s, i);
  if (places.empty()) return false;
  const auto [s, i] = places[random() % places.size()];
  auto& list = program.streams[s].instructions;
  list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
  return true;
}

TEST(VerifyTest, FindsAWaitTakenAway) {
  expect_found(
      [](Program& p, std::mt19937& random) { return remove_one(p, Instruction::Kind::Wait, random); });
}

TEST(VerifyTest, FindsAWaitOnTheStepBeforeTakenAway) {
  expect_found([](Program& p, std::mt19937& random) {
    return remove_one(p, Instruction::Kind::WaitPrevious, random);
  });
}

TEST(VerifyTest, FindsMemoryReusedTooEarly) {
  expect_found([](Program& p, std::mt19937& random) {
    // A buffer written between another's writer and reader is moved onto it.
    struct Place {
      int buffer, onto;
    };
    std::vector<Place> places;
    for (std::size_t reader = 0; reader < p.ops.size(); ++reader) {
      for (const Operand& in : p.ops[reader].inputs) {
        if (in.producer < 0 || p.buffers[static_cast<std::size_t>(in.buffer)].kind != BufferKind::Arena)
          continue;
        for (std::size_t between = static_cast<std::size_t>(in.producer) + 1; between < reader; ++between)
          for (const Operand& out : p.ops[between].outputs)
            if (out.access == Access::Write && out.buffer != in.buffer &&
                p.buffers[static_cast<std::size_t>(out.buffer)].kind == BufferKind::Arena)
              places.push_back({out.buffer, in.buffer});
      }
    }
    if (places.empty()) return false;
    const Place place = places[random() % places.size()];
    p.buffers[static_cast<std::size_t>(place.buffer)].offset =
        p.buffers[static_cast<std::size_t>(place.onto)].offset;
    return true;
  });
}

TEST(VerifyTest, FindsASlotThatTheNextStepOverwrites) {
  expect_found([](Program& p, std::mt19937& random) {
    // What a pull brings gets one place for all steps, where its stream never waits for another one: so
    // nothing orders the pull of the next step behind this step's readers.
    const auto on_its_own = [&](int stream) {
      const auto& list = p.streams[static_cast<std::size_t>(stream)].instructions;
      return std::none_of(list.begin(), list.end(), [&](const Instruction& i) {
        return i.kind != Instruction::Kind::Run && p.ops[static_cast<std::size_t>(i.op)].stream != stream;
      });
    };
    std::vector<int> slots;
    for (const ProgramOp& reader : p.ops)
      for (const Operand& in : reader.inputs)
        if (in.producer >= 0 && in.access == Access::Read &&
            p.buffers[static_cast<std::size_t>(in.buffer)].kind == BufferKind::Slot &&
            p.buffers[static_cast<std::size_t>(in.buffer)].bytes > 0 &&
            reader.stream != p.ops[static_cast<std::size_t>(in.producer)].stream &&
            p.ops[static_cast<std::size_t>(in.producer)].async &&
            on_its_own(p.ops[static_cast<std::size_t>(in.producer)].stream))
          slots.push_back(in.buffer);
    if (slots.empty()) return false;
    ProgramBuffer& slot = p.buffers[static_cast<std::size_t>(slots[random() % slots.size()])];
    slot.kind = BufferKind::Arena;
    slot.offset = p.stats.arena_bytes;
    return true;
  });
}

/// a on stream 0 feeds b on stream 1.
std::shared_ptr<const Program> pair_of_nodes() {
  TestGraph g;
  const ValueRef a = g.mix({g.feed("x", 4)}, 8, "a");
  const ValueRef b = g.mix({a}, 8, "b");
  const ValueRef c = g.mix({b}, 8, "c");
  g.node(a).stream = g.node(c).stream = 0;
  g.node(b).stream = 1;
  return compile_test(g, {"c"}, {}, 2, StreamPolicy::User, 2, {{"x", DType::Int64, Shape{4}}});
}

TEST(VerifyTest, NamesBothNodesTheirStreamsAndSteps) {
  Program program = *pair_of_nodes();
  auto& list = program.streams[1].instructions;
  std::erase_if(list, [](const Instruction& i) { return i.kind == Instruction::Kind::Wait; });
  EXPECT_EQ(message_of<Internal>([&] { verify(program); }),
            "unordered: [test.Mix] node 'a' (stream compute0, step n) and [test.Mix] node 'b' (stream "
            "compute1, step n): the graph orders them");
}

TEST(VerifyTest, FindsWaitsInACircle) {
  Program program = *pair_of_nodes();
  const int c = program.streams[0].instructions.back().op;
  auto& first = program.streams[0].instructions;
  first.insert(first.begin(), {Instruction::Kind::Wait, c});
  EXPECT_THROW(verify(program), Internal);
}

TEST(SegmentsTest, AHostProgramIsOneSegmentThatIsNotCaptured) {
  const auto program = pair_of_nodes();
  ASSERT_EQ(program->segments.size(), 1U);
  EXPECT_EQ(program->segments[0].domain, Domain::Host);
  EXPECT_EQ(program->segments[0].ranges.size(), 2U);
}

TEST(SegmentsTest, StreamsThatCanBeCapturedAreCutWhereAHostNodeLiesBetween) {
  // device: d0 -> d1 -------> d3 -> d4       (stream 0, as if it could be captured)
  // host:         d1 -> h2 -> d3, d4 -> h5   (stream 1)
  TestGraph g;
  std::vector<ValueRef> v{g.feed("x", 4)};
  for (int i = 0; i < 6; ++i) {
    v.push_back(g.mix({v.back()}, 4, (i == 2 || i == 5 ? "h" : "d") + std::to_string(i)));
    g.node(v.back()).stream = i == 2 || i == 5 ? 1 : 0;
  }
  Program program = *compile_test(g, {"h5"}, {}, 2, StreamPolicy::User, 2, {{"x", DType::Int64, Shape{4}}});
  program.streams[0].domain = Domain::Device;
  for (ProgramOp& op : program.ops)
    if (op.stream == 0) op.domain = Domain::Device;
  cut_segments(program);
  ASSERT_EQ(program.segments.size(), 3U);
  const auto names = [&](const Segment& segment) {
    std::string text;
    for (const Segment::Range& range : segment.ranges)
      for (int i = range.begin; i < range.end; ++i) {
        const Instruction& instruction =
            program.streams[static_cast<std::size_t>(range.stream)].instructions[static_cast<std::size_t>(i)];
        if (instruction.kind == Instruction::Kind::Run)
          text += program.ops[static_cast<std::size_t>(instruction.op)].name + " ";
      }
    return text;
  };
  EXPECT_EQ(program.segments[0].domain, Domain::Device);
  EXPECT_EQ(names(program.segments[0]), "d0 d1 ");
  const auto waits_of_this_step = [&](const Segment& segment) {
    std::vector<std::string> names_waited;
    for (const Segment::HeadWait& wait : segment.head_waits)
      if (!wait.previous) names_waited.push_back(program.ops[static_cast<std::size_t>(wait.op)].name);
    return names_waited;
  };
  EXPECT_TRUE(waits_of_this_step(program.segments[0]).empty());
  EXPECT_EQ(program.segments[1].domain, Domain::Device);
  EXPECT_EQ(names(program.segments[1]), "d3 d4 ");
  EXPECT_EQ(waits_of_this_step(program.segments[1]), std::vector<std::string>{"h2"});
  EXPECT_EQ(program.segments[2].domain, Domain::Host);
  EXPECT_EQ(names(program.segments[2]), "h2 h5 ");
}

}  // namespace
}  // namespace braid::testing
