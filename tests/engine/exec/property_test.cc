// Whatever the streams, the order, the memory and the delays: the bits are those of the serial interpreter.
// BRAID_RANDOM_GRAPHS says how many graphs are tried: 10,000, and a fifth of that under a sanitizer, which is
// slow. On a device: tests/gpu/stream_property_test.cc.
#include <gtest/gtest.h>

#include "tests/engine/testing/random_graph.h"
#include "tests/engine/testing/stream_properties.h"

namespace braid::testing {
namespace {

TEST(PropertyTest, S7_RandomGraphsOnRandomStreamsGiveTheInterpretersBits) {
  expect_random_graphs_keep_the_interpreters_bits(tries("BRAID_RANDOM_GRAPHS", 10000, 2000), 24, {});
}

TEST(PropertyTest, S1_EveryNumberOfStreamsGivesTheBitsOfOneOverAThousandSteps) {
  expect_any_streams_keep_the_bits_of_one(1000, 6, {});
}

}  // namespace
}  // namespace braid::testing
