// Which device nodes ask for, what happens where there is none, and the log of the placement.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/compile/compile.h"
#include "engine/exec/placement_log.h"
#include "tests/engine/testing/test_ops.h"
#include "tests/support/message_of.h"

namespace braid::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<const Program> compile_with(const TestGraph& g, bool soft_placement) {
  CompileOptions options;
  options.soft_placement = soft_placement;
  return compile(g.graph, {kX, {"end"}, {}}, options);
}

TEST(PlacementTest, TheLogIsTensorFlows) {
  TestGraph g;
  const ValueRef a = g.mix({g.feed("x", 4)}, 4, "a");
  g.add("Identity", {a}, {}, "view");
  g.mix({a}, 4, "end");
  EXPECT_THAT(placement_log(*compile_with(g, true)),
              ElementsAre("x: (Placeholder): /job:localhost/replica:0/task:0/device:CPU:0",
                          "a: (test.Mix): /job:localhost/replica:0/task:0/device:CPU:0",
                          "end: (test.Mix): /job:localhost/replica:0/task:0/device:CPU:0"));
  EXPECT_EQ(placement_log(*compile_with(g, true), parse_device_name("/job:worker/task:3"))[2],
            "end: (test.Mix): /job:worker/replica:0/task:3/device:CPU:0");
}

TEST(PlacementTest, NodesRunElsewhereUnlessSoftPlacementIsOff) {
  TestGraph g;
  const ValueRef a = g.mix({g.feed("x", 4)}, 4, "a"), b = g.mix({a}, 4, "b");
  g.mix({b}, 4, "end");
  g.node(a).device = "/job:worker/task:0/gpu:0";
  g.node(b).device = "/device:CPU:0";
  EXPECT_THAT(compile_with(g, true)->notes,
              ::testing::Contains(::testing::Field(
                  &Note::text, HasSubstr("1 node on the CPU: they ask for '/job:worker/task:0/gpu:0', which "
                                         "this program does not have (first: 'a')"))));
  EXPECT_EQ(message_of([&] { compile_with(g, false); }),
            "soft placement is off, and nodes cannot run where they ask to:\n  [test.Mix] node 'a' asks for "
            "'/job:worker/task:0/gpu:0': this program does not have it");
  g.node(a).device = "/cpu:0";
  EXPECT_NO_THROW(compile_with(g, false));
  g.node(a).device = "/gpux:0";
  EXPECT_THROW(compile_with(g, true), InvalidArgument);
}

// Two towers on "/gpu:0" and "/gpu:1" share one device, and variables "on servers" are here: that is said.
TEST(PlacementTest, OtherProcessesAndSecondDevicesAreToldByNameAndRefusedWithoutSoftPlacement) {
  TestGraph g;
  const ValueRef a = g.mix({g.feed("x", 4)}, 4, "a"), b = g.mix({a}, 4, "b"), c = g.mix({b}, 4, "c");
  g.mix({c}, 4, "end");
  g.node(a).device = g.node(b).device = "/job:ps/task:0";
  g.node(c).device = "/cpu:1";
  const std::string servers =
                        "2 nodes ask for '/job:ps/task:0', which is another process (first: [test.Mix] "
                        "node 'a')",
                    second =
                        "1 node asks for '/cpu:1', but a process has one CPU, number 0 (first: [test.Mix] "
                        "node 'c')";
  std::vector<std::string> notes;
  const std::shared_ptr<const Program> softly = compile_with(g, true);
  for (const Note& note : softly->notes) notes.push_back(to_string(note));
  EXPECT_THAT(notes, ::testing::IsSupersetOf({"warning: placement: " + servers + ": they run here",
                                              "warning: placement: " + second + ": they run here"}));
  EXPECT_EQ(message_of([&] { compile_with(g, false); }),
            "soft placement is off, and nodes cannot run where they ask to:\n  " + second + "\n  " + servers);
  for (const char* other : {"/job:worker/task:1", "/job:worker/replica:2", "/device:CPU:7"}) {
    g.node(a).device = g.node(b).device = g.node(c).device = other;
    EXPECT_THROW(compile_with(g, false), InvalidArgument) << other;
  }
  for (const char* own :
       {"/job:worker/task:0", "/job:localhost/replica:0/task:0/device:CPU:0", "/job:*/cpu:*"}) {
    g.node(a).device = g.node(b).device = g.node(c).device = own;
    EXPECT_NO_THROW(compile_with(g, false)) << own;
  }
}

}  // namespace
}  // namespace braid::testing
