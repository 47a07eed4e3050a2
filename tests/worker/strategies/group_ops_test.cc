// Sums and gathers of a part of the ranks, as the kernels of a strategy run them.
#include <gtest/gtest.h>

#include <thread>

#include "comm/local/local_communicator.h"
#include "engine/ir/op.h"
#include "worker/strategies/group_ops.h"
#include "worker/strategies/step_services.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {
namespace {

using Values = std::vector<std::vector<float>>;  // by input

/// Runs the op on a rank of the group. `per_input`: elements that an output has for each of an input.
Values run(const char* op, comm::Communicator* communicator, const std::vector<std::int64_t>& members,
           Values inputs, std::int64_t per_input) {
  Services services;
  services.provide(std::shared_ptr<comm::Communicator>(communicator, [](comm::Communicator*) {}));
  auto steps = std::make_shared<StepServices>();
  steps->peer_deadline = std::chrono::seconds(20);
  services.provide(steps);
  ThreadPool pool(1);
  Node node;
  node.name = "exchange";
  node.op = &OpRegistry::global().require(op);
  node.attrs.set(kMembers, members);
  std::vector<OutputInfo> in, out;
  Values outputs;
  std::vector<void*> from, to;
  std::vector<const Tensor*> values(inputs.size(), nullptr);
  for (auto& input : inputs) {
    in.push_back({DType::Float32, Shape{std::ssize(input)}});
    outputs.emplace_back(input.size() * static_cast<std::size_t>(per_input));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    from.push_back(inputs[i].data());
    to.push_back(outputs[i].data());
    out.push_back({DType::Float32, Shape{std::ssize(outputs[i])}});
  }
  const PrepareContext context{node, in, out, values, pool, services};
  const PreparedKernel kernel = node.op->cpu(context);
  std::vector<std::byte> scratch(kernel.scratch_bytes);
  const StepParams params;
  const WaitContext wait = WaitContext::with_timeout(std::chrono::seconds(20));
  kernel.run({from.data(), to.data(), scratch.data(), &params, &wait, StreamRef::host()});
  return outputs;
}

/// On each of `world` ranks.
std::vector<Values> on_ranks(int world, const std::function<Values(int, comm::Communicator*)>& body) {
  register_strategy_ops();
  auto group = comm::make_local_group(world);
  std::vector<Values> results(static_cast<std::size_t>(world));
  std::vector<std::jthread> threads;
  for (int r = 0; r < world; ++r)
    threads.emplace_back(
        [&, r] { results[static_cast<std::size_t>(r)] = body(r, group[static_cast<std::size_t>(r)].get()); });
  threads.clear();
  return results;
}

TEST(GroupOpsTest, EachGroupAddsItsOwn) {
  for (const std::size_t count : {1u, 2u, 7u, 1000u}) {
    const auto results = on_ranks(6, [&](int rank, comm::Communicator* communicator) {
      const std::int64_t first = rank % 2;
      return run("braid.GroupAllReduce", communicator, {first, first + 2, first + 4},
                 {std::vector<float>(count, static_cast<float>(rank + 1)), {static_cast<float>(10 * rank)}},
                 1);
    });
    for (int r = 0; r < 6; ++r) {
      EXPECT_EQ(results[static_cast<std::size_t>(r)][0], std::vector<float>(count, r % 2 ? 12.0F : 9.0F));
      EXPECT_EQ(results[static_cast<std::size_t>(r)][1][0], r % 2 ? 90 : 60);
    }
  }
}

TEST(GroupOpsTest, EachGetsItsSliceOfTheSum) {
  const auto results = on_ranks(4, [&](int rank, comm::Communicator* communicator) {
    const std::int64_t first = rank % 2;
    return run("braid.GroupReduceScatter", communicator, {first, first + 2},
               {{static_cast<float>(rank), static_cast<float>(10 * rank)}}, 1);
  });
  EXPECT_EQ(results[0][0][0], 2);
  EXPECT_EQ(results[2][0][0], 20);
  EXPECT_EQ(results[1][0][0], 4);
  EXPECT_EQ(results[3][0][0], 40);
}

TEST(GroupOpsTest, AGatherHasTheRanksOfTheGroupInOrder) {
  const auto results = on_ranks(4, [&](int rank, comm::Communicator* communicator) {
    const std::int64_t first = rank / 2 * 2;
    return run("braid.GroupGather", communicator, {first, first + 1},
               {{static_cast<float>(rank), static_cast<float>(-rank)}}, 2);
  });
  EXPECT_EQ(results[0][0], (std::vector<float>{0, 0, 1, -1}));
  EXPECT_EQ(results[3][0], (std::vector<float>{2, -2, 3, -3}));
}

TEST(GroupOpsTest, AGatherOfAll) {
  const auto results = on_ranks(3, [&](int rank, comm::Communicator* communicator) {
    return run("braid.GroupGather", communicator, {0, 1, 2}, {{static_cast<float>(rank)}}, 3);
  });
  for (const Values& each : results) EXPECT_EQ(each[0], (std::vector<float>{0, 1, 2}));
}

TEST(GroupOpsTest, WhoIsNoMemberIsRefused) {
  register_strategy_ops();
  const auto group = comm::make_local_group(1);
  EXPECT_THROW(run("braid.GroupAllReduce", group[0].get(), {5}, {{1}}, 1), InvalidArgument);
  EXPECT_THROW(run("braid.GroupAllReduce", group[0].get(), {}, {{1}}, 1), InvalidArgument);
  EXPECT_THROW(run("braid.GroupGather", group[0].get(), {-1}, {{1}}, 1), InvalidArgument);
}

}  // namespace
}  // namespace braid::worker
