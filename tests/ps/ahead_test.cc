// Pulls of ordered keys, and pulls ahead with their repair: the same bits as pulls in their turn.
#include <future>
#include <latch>
#include <map>

#include "ps/client/ordered_keys.h"
#include "ps/server/server_core.h"
#include "tests/ps/cluster.h"

namespace braid::ps {
namespace {

constexpr int kDim = 3;

TableSet two_tables(int workers, Consistency consistency = Consistency::Bsp) {
  TableSet set;
  set.dense = {{"w", 5}};
  for (const char* name : {"a", "b"})
    set.sparse.push_back({name, kDim, {InitKind::Uniform, -1.0F, 1.0F}, make_rng_key(4, name)});
  set.optimizer.kind = OptimizerKind::Adagrad;
  set.consistency = consistency;
  set.workers = workers;
  return set;
}

/// A batch's keys and its rows, in the order of requests.
struct Rows {
  Rows(const std::vector<std::int64_t>& of_a, const std::vector<std::int64_t>& of_b, int servers)
      : keys(of_a.size() + of_b.size()),
        counts(static_cast<std::size_t>(2 * servers)),
        entries(keys.size()),
        places(keys.size()),
        values(keys.size() * kDim) {
    const std::vector<IdList> lists{{0, of_a}, {1, of_b}};
    std::vector<std::int64_t> scratch(
        order_scratch_bytes(static_cast<std::int64_t>(keys.size()), 2, servers) / 8 + 1);
    order_keys(lists, 2, servers, {keys.data(), counts.data(), places.data(), entries.data()},
               scratch.data());
    std::int64_t used = 0;
    for (const std::int64_t count : counts) used += count;
    values.resize(static_cast<std::size_t>(used) * kDim);
  }
  OrderedKeys ordered() const { return {kTables, keys.data(), counts}; }

  static constexpr int kTables[] = {0, 1};
  std::vector<std::int64_t> keys, counts, entries;
  std::vector<std::int32_t> places;
  std::vector<float> values;
};

std::vector<std::int64_t> ids_of(int worker, std::uint64_t step, const char* table) {
  std::vector<std::uint32_t> bits(step % 4 == 3 && worker == 1 ? 0 : 50);
  fill_bits(make_rng_key(5, table + std::to_string(worker), step), 0, bits);
  std::vector<std::int64_t> ids;
  for (const std::uint32_t b : bits)
    ids.push_back(b % 8 == 0 ? b : b % 60);  // some in each batch, most in none
  return ids;
}

struct Job {
  int servers = 2;
  int workers = 2;
  bool ahead = true;
  bool unix_socket = false;
};

struct Outcome {
  std::vector<std::vector<float>> pulled;  // by worker, of all steps
  AheadCounts counts;                      // of worker 0
  std::uint64_t rows_made = 0;
};

/// A gradient is a function of the rows that were pulled, so that a wrong one changes all that follow.
Outcome train(const Job& job, std::uint64_t steps) {
  Outcome outcome;
  outcome.pulled.resize(static_cast<std::size_t>(job.workers));
  Cluster cluster({job.servers, job.workers, job.unix_socket});
  cluster.run_workers([&](int worker, PsClient& client) {
    client.create_tables(two_tables(job.workers), soon());
    if (worker == 0) client.set_dense("w", std::vector<float>(5), soon());
    client.wait_initialized(soon());
    std::map<std::uint64_t, Rows> rows;
    std::map<std::uint64_t, std::future<ErrorPtr>> under_way;
    const auto begin = [&](std::uint64_t step) {
      if (step >= steps) return;
      Rows& its = rows.emplace(step, Rows(ids_of(worker, step, "a"), ids_of(worker, step, "b"), job.servers))
                      .first->second;
      auto done = std::make_shared<std::promise<ErrorPtr>>();
      under_way.emplace(step, done->get_future());
      PullRequest pull;
      pull.min_version = step;
      pull.ahead = job.ahead ? step + 1 : 0;
      pull.ordered = {{its.ordered(), its.values.data()}};
      client.pull_async(
          std::move(pull), [done](ErrorPtr error) { done->set_value(std::move(error)); }, soon());
    };
    begin(0);
    for (std::uint64_t step = 0; step < steps; ++step) {
      begin(step + 1);  // while this step's round is open
      random_delay();
      const ErrorPtr error = under_way.at(step).get();
      ASSERT_EQ(error, nullptr) << error->message;
      Rows& its = rows.at(step);
      auto& pulled = outcome.pulled[static_cast<std::size_t>(worker)];
      pulled.insert(pulled.end(), its.values.begin(), its.values.end());
      std::vector<float> gradients = its.values;
      for (float& g : gradients) g = 0.5F * g + static_cast<float>(worker + 1);
      PushRequest push;
      push.step = step;
      push.params = {0.1F, 1.0F / static_cast<float>(job.workers), step};
      push.ordered = {{its.ordered(), gradients.data()}};
      client.push(std::move(push), soon());
      const std::vector<float> ones(5, 1.0F);
      PushRequest dense;
      dense.step = step;
      dense.sequence = 1;
      dense.params = {0.1F, 1.0F / static_cast<float>(job.workers), step};
      dense.dense = {{0, ones}};
      client.push(std::move(dense), soon());
      rows.erase(step);
      under_way.erase(step);
    }
    client.leave(soon());
    if (worker == 0) {
      outcome.counts = client.ahead_counts();
      for (const ServerStats& server : client.stats(soon()))
        outcome.rows_made += server.counters.at("rows_made");
    }
  });
  return outcome;
}

TEST(PullAheadTest, GivesTheBitsOfPullsInTheirTurnOnAnyNumberOfServers) {
  constexpr std::uint64_t kSteps = 40;
  for (const int workers : {1, 2, 3}) {
    const Outcome expected = train({1, workers, false}, kSteps);
    std::map<int, std::vector<float>> sorted;
    for (const int servers : {1, 2, 4}) {
      const Outcome plain = train({servers, workers, false, servers == 2}, kSteps);
      const Outcome ahead = train({servers, workers, true, servers == 2}, kSteps);
      EXPECT_EQ(ahead.pulled, plain.pulled) << workers << " workers, " << servers << " servers";
      EXPECT_EQ(ahead.rows_made, plain.rows_made) << "a pull ahead leaves no trace";
      EXPECT_GT(ahead.counts.repaired, 0U);
      EXPECT_LT(ahead.counts.repaired, ahead.counts.rows) << "rows that no round has touched travel once";
      EXPECT_EQ(ahead.counts.unknown, 0U);
      EXPECT_EQ(plain.counts.rows, 0U);
      // The order of rows depends on the servers, their values do not.
      for (std::size_t w = 0; w < plain.pulled.size(); ++w) {
        std::vector<float> one = expected.pulled[w], many = ahead.pulled[w];
        std::sort(one.begin(), one.end());
        std::sort(many.begin(), many.end());
        EXPECT_EQ(one, many) << workers << " workers, " << servers << " servers";
      }
    }
  }
}

TEST(PullAheadTest, OneThatTheServerHasForgottenIsMadeAgain) {
  constexpr int kPulls = 7;
  Cluster cluster({2, 1});
  auto chief = cluster.client(0);
  chief->create_tables(two_tables(1), soon());
  std::vector<Rows> rows;
  for (int i = 0; i < kPulls; ++i)
    rows.emplace_back(ids_of(0, static_cast<std::uint64_t>(i), "a"),
                      ids_of(0, static_cast<std::uint64_t>(i), "b"), 2);
  std::latch ended(kPulls);
  std::atomic<int> failed{0};
  // They wait for initial values, and are all made before the first repair.
  for (int i = 0; i < kPulls; ++i) {
    PullRequest pull;
    pull.ahead = static_cast<std::uint64_t>(i) + 1;
    pull.ordered = {
        {rows[static_cast<std::size_t>(i)].ordered(), rows[static_cast<std::size_t>(i)].values.data()}};
    chief->pull_async(
        std::move(pull),
        [&](const ErrorPtr& error) {
          if (error) ++failed;
          ended.count_down();
        },
        soon());
  }
  while (chief->stats(soon())[0].counters.at("pulls_parked") < kPulls ||
         chief->stats(soon())[1].counters.at("pulls_parked") < kPulls)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  chief->set_dense("w", std::vector<float>(5), soon());
  ended.wait();
  EXPECT_EQ(failed, 0);
  EXPECT_GT(chief->ahead_counts().unknown, 0U);
  for (Rows& its : rows) {
    std::vector<float> again(its.values.size());
    PullRequest pull;
    pull.ordered = {{its.ordered(), again.data()}};
    chief->pull(std::move(pull), soon());
    EXPECT_EQ(its.values, again);
  }
}

TEST(PullAheadTest, BadOrderedKeysAreRefusedWithTheReason) {
  TableSet set = two_tables(1);
  set.sparse.push_back({"c", kDim + 1, {InitKind::Zeros, 0, 0}, {1}});
  Cluster cluster({1, 1});
  auto chief = cluster.client(0);
  chief->create_tables(set, soon());
  chief->set_dense("w", std::vector<float>(5), soon());
  std::vector<std::int64_t> keys(2000), counts{2000};
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<std::int64_t>(i);  // out of order
  std::vector<float> rows(keys.size() * kDim);
  const auto refusal = [&](std::vector<int> tables, std::span<const std::int64_t> its) {
    PullRequest pull;
    pull.ordered = {{{tables, keys.data(), its}, rows.data()}};
    try {
      chief->pull(std::move(pull), soon());
    } catch (const InvalidArgument& error) {
      return std::string(error.what());
    }
    return std::string("taken");
  };
  EXPECT_NE(refusal({7}, counts).find("there is no sparse table 7"), std::string::npos);
  EXPECT_NE(refusal({0, 2}, std::vector<std::int64_t>{1, 1}).find("'a' and 'c' have rows of 3 and 4"),
            std::string::npos);
  EXPECT_NE(refusal({0, 1}, counts).find("1 counts for 2 tables on 1 servers"), std::string::npos);
  EXPECT_NE(refusal({0}, std::vector<std::int64_t>{-1}).find("-1 keys"), std::string::npos);
}

}  // namespace
}  // namespace braid::ps
