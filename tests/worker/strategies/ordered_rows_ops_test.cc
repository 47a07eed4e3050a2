// braid.PsKeys against what its outputs mean: random batches of ids, also empty ones and such of one id.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "engine/compile/compile.h"
#include "engine/exec/instance.h"
#include "engine/exec/runtime.h"
#include "engine/ir/graph.h"
#include "engine/ir/op.h"
#include "proto/graph.pb.h"
#include "tests/support/message_of.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {
namespace {

using Ints = std::vector<std::int64_t>;

struct Input {
  std::int64_t list = 0;
  DType dtype = DType::Int64;
  Shape shape;
  Ints ids;
};

std::string feed_name(std::size_t i) { return "ids" + std::to_string(i); }

/// A graph of placeholders and the node "keys".
Graph keys_of(const std::vector<Input>& inputs, std::int64_t servers) {
  register_strategy_ops();
  Graph graph;
  Node keys;
  keys.name = "keys";
  keys.op = &OpRegistry::global().require("braid.PsKeys");
  Ints lists;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Node feed;
    feed.name = feed_name(i);
    feed.op = &OpRegistry::global().require("Placeholder");
    feed.attrs = {{"dtype", inputs[i].dtype}, {"shape", inputs[i].shape}};
    keys.inputs.push_back({graph.add(std::move(feed)), 0});
    lists.push_back(inputs[i].list);
  }
  keys.attrs = {{"lists", lists}, {"servers", servers}};
  graph.add(std::move(keys));
  return graph;
}

std::vector<Tensor> run(const std::vector<Input>& inputs, std::int64_t servers) {
  const Graph graph = keys_of(inputs, servers);
  CompileRequest request;
  StepRequest step;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const Input& input = inputs[i];
    request.feeds.push_back({feed_name(i), input.dtype, input.shape});
    step.feeds.push_back(
        input.dtype == DType::Int64
            ? Tensor::from<std::int64_t>(input.shape, input.ids)
            : Tensor::from<std::int32_t>(input.shape,
                                         std::vector<std::int32_t>(input.ids.begin(), input.ids.end())));
  }
  for (std::size_t i = 0; i < inputs.size() + 3; ++i) request.fetches.push_back("keys:" + std::to_string(i));
  Runtime runtime(RuntimeOptions{});
  Instance instance(compile(graph, request, {}), runtime);
  return instance.run(std::move(step), WaitContext::with_timeout(std::chrono::seconds(60))).fetches;
}

Ints ints(const Tensor& tensor) {
  if (tensor.dtype() == DType::Int64)
    return {tensor.data<std::int64_t>().begin(), tensor.data<std::int64_t>().end()};
  return {tensor.data<std::int32_t>().begin(), tensor.data<std::int32_t>().end()};
}

void check(const std::vector<Input>& inputs, std::int64_t servers) {
  const std::vector<Tensor> outputs = run(inputs, servers);
  const std::int64_t tables = inputs.back().list + 1;
  Ints all, table_of_position;
  for (const Input& input : inputs)
    for (const std::int64_t id : input.ids) {
      all.push_back(id);
      table_of_position.push_back(input.list);
    }
  const auto n = std::ssize(all);
  const Ints keys = ints(outputs[0]), counts = ints(outputs[1]), entries = ints(outputs[2]);
  ASSERT_EQ(outputs[0].shape(), Shape({1, n}));
  ASSERT_EQ(outputs[1].shape(), Shape({servers, tables}));
  ASSERT_EQ(std::ssize(entries), n);

  // Each key of a table once, at one server; behind them zeros.
  std::vector<std::pair<std::int64_t, std::int64_t>> at;  // by place: table, key
  std::map<std::int64_t, std::int64_t> server_of;         // by key
  for (std::int64_t s = 0; s < servers; ++s)
    for (std::int64_t t = 0; t < tables; ++t)
      for (std::int64_t k = 0; k < counts[static_cast<std::size_t>(s * tables + t)]; ++k) {
        const std::int64_t key = keys[at.size()];
        at.emplace_back(t, key);
        EXPECT_EQ(server_of.emplace(key, s).first->second, s) << "a key is at the same server in all tables";
      }
  const std::set<std::pair<std::int64_t, std::int64_t>> once(at.begin(), at.end());
  EXPECT_EQ(once.size(), at.size());
  std::set<std::pair<std::int64_t, std::int64_t>> wanted;
  for (std::size_t i = 0; i < all.size(); ++i) wanted.emplace(table_of_position[i], all[i]);
  EXPECT_EQ(once, wanted);
  for (std::size_t i = at.size(); i < keys.size(); ++i) EXPECT_EQ(keys[i], 0);

  // Where each id's key lies.
  Ints places;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(outputs[i + 3].shape(), inputs[i].shape);
    EXPECT_EQ(outputs[i + 3].dtype(), DType::Int32);
    for (const std::int64_t place : ints(outputs[i + 3])) places.push_back(place);
  }
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(at.at(static_cast<std::size_t>(places[i])), std::pair(table_of_position[i], all[i])) << i;

  // The same the other way round, places and their positions rising.
  EXPECT_TRUE(std::ranges::is_sorted(entries));
  std::set<std::int64_t> positions;
  for (const std::int64_t entry : entries) {
    const std::int64_t position = entry & 0xffffffff;
    EXPECT_EQ(entry >> 32, places.at(static_cast<std::size_t>(position)));
    positions.insert(position);
  }
  EXPECT_EQ(std::ssize(positions), n);
}

TEST(PsKeysTest, HoldEachKeyOnceAndTheWayBack) {
  std::mt19937 random(7);
  const auto draw = [&](std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random);
  };
  for (int trial = 0; trial < 60; ++trial) {
    SCOPED_TRACE(trial);
    std::vector<Input> inputs;
    const std::int64_t tables = draw(1, 4);
    for (std::int64_t t = 0; t < tables; ++t)
      for (std::int64_t uses = draw(1, 3); uses > 0; --uses) {
        Input input{t, draw(0, 3) == 0 ? DType::Int32 : DType::Int64, {}, {}};
        input.shape = draw(0, 1) == 0 ? Shape{draw(0, 40)} : Shape{draw(0, 20), draw(1, 3)};
        const std::int64_t most = draw(0, 2) == 0 ? 0 : draw(1, 50);
        const bool wide = input.dtype == DType::Int64 && draw(0, 2) == 0;
        for (std::int64_t i = input.shape.elements(); i > 0; --i)
          input.ids.push_back(wide ? draw(INT64_MIN, INT64_MAX) : draw(0, most));
        inputs.push_back(std::move(input));
      }
    ASSERT_NO_FATAL_FAILURE(check(inputs, draw(1, 5)));
  }
}

TEST(PsKeysTest, ABatchMayHaveNoIdsAndOneIdAlone) {
  check({{0, DType::Int64, Shape{0}, {}}, {1, DType::Int64, Shape{0, 2}, {}}}, 2);
  check({{0, DType::Int64, Shape{500}, Ints(500, 11)}, {1, DType::Int32, Shape{500}, Ints(500, 11)}}, 3);
}

TEST(PsKeysTest, ListsThatAreNotInOrderAreRefused) {
  const auto refused = [](std::vector<Input> inputs, std::int64_t servers) {
    return message_of([&] {
      Graph graph = keys_of(inputs, servers);
      CompileRequest request;
      for (std::size_t i = 0; i < inputs.size(); ++i)
        request.feeds.push_back({feed_name(i), inputs[i].dtype, inputs[i].shape});
      request.fetches = {"keys:0"};
      compile(graph, request, {});
    });
  };
  const Input first{0, DType::Int64, Shape{2}, {1, 2}}, second{1, DType::Int64, Shape{2}, {1, 2}};
  EXPECT_NE(refused({second, first}, 1).find("rising from 0"), std::string::npos);
  EXPECT_NE(refused({second}, 1).find("rising from 0"), std::string::npos);
  EXPECT_NE(refused({first}, 0).find("there are 0 servers"), std::string::npos);
}

}  // namespace
}  // namespace braid::worker
