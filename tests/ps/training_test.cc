// Whole training loops of several workers over several servers, beside a serial reference: the same bits.
#include <latch>
#include <map>

#include "ps/server/server_core.h"
#include "tests/ps/cluster.h"

namespace braid::ps {
namespace {

/// What the servers must hold after `steps` rounds.
class ReferenceModel {
 public:
  explicit ReferenceModel(const TableSet& set) : set_(set) {
    for (const auto& spec : set.dense) dense_.emplace_back(set.optimizer, initial_dense(spec));
    for (const auto& spec : set.sparse) sparse_.emplace_back(set.optimizer, initial_rows(spec));
  }

  void round(std::uint64_t step, const UpdateParams& params) {
    for (std::size_t t = 0; t < dense_.size(); ++t) {
      std::vector<std::vector<float>> gradients;
      for (int w = 0; w < set_.workers; ++w)
        gradients.push_back(dense_gradient(set_.dense[t].name, w, step, set_.dense[t].elements));
      dense_[t].apply(params, gradients);
    }
    const auto dim = static_cast<std::size_t>(set_.sparse[0].dim);
    // key -> each worker's sum over its repetitions, by worker
    std::map<std::int64_t, std::vector<std::vector<float>>> by_key;
    for (int w = 0; w < set_.workers; ++w) {
      const auto keys = keys_of(w, step);
      const auto gradients = row_gradients(w, step, keys.size() * dim);
      std::map<std::int64_t, std::vector<float>> own;
      for (std::size_t i = 0; i < keys.size(); ++i) {
        auto& sum = own[keys[i]];
        const float* row = gradients.data() + i * dim;
        if (sum.empty())
          sum.assign(row, row + dim);
        else
          for (std::size_t c = 0; c < dim; ++c) sum[c] += row[c];
      }
      for (auto& [key, sum] : own) by_key[key].push_back(sum);
    }
    for (const auto& [key, gradients] : by_key)
      sparse_[0].apply(params, gradients, static_cast<std::size_t>(key) * dim);
  }

  const std::vector<float>& dense(std::size_t t) const { return dense_[t].values(); }
  const std::vector<float>& rows() const { return sparse_[0].values(); }

 private:
  TableSet set_;
  std::vector<ReferenceVariable> dense_;
  std::vector<ReferenceVariable> sparse_;
};

std::vector<std::int64_t> keys_of_model() {
  std::vector<std::int64_t> keys(kRows);
  for (std::int64_t k = 0; k < kRows; ++k) keys[static_cast<std::size_t>(k)] = k;
  return keys;
}

/// Every value of the model, read without inserting.
std::vector<std::vector<float>> read_model(PsClient& client, std::uint64_t version) {
  const TableSet& set = client.tables();
  std::vector<std::vector<float>> out;
  PullRequest pull;
  pull.min_version = version;
  pull.insert = false;
  for (std::size_t t = 0; t < set.dense.size(); ++t) {
    out.emplace_back(static_cast<std::size_t>(set.dense[t].elements));
    pull.dense.push_back({static_cast<int>(t), out.back()});
  }
  const auto keys = keys_of_model();
  out.emplace_back(keys.size() * static_cast<std::size_t>(set.sparse[0].dim));
  pull.sparse.push_back({0, keys, out.back().data(), true});
  client.pull(std::move(pull), soon());
  return out;
}

void set_initial_values(PsClient& chief) {
  for (const auto& spec : chief.tables().dense) chief.set_dense(spec.name, initial_dense(spec), soon());
}

UpdateParams params_of(std::uint64_t step, int workers) {
  return {0.01F / static_cast<float>(step + 1), 1.0F / static_cast<float>(workers), step};
}

/// A step's gradients as two pushes, in a random order: w1 alone, then the rest with the rows.
void push_step(PsClient& client, int worker, std::uint64_t step, std::uint64_t seed) {
  const TableSet& set = client.tables();
  std::vector<std::vector<float>> gradients;
  for (const auto& spec : set.dense)
    gradients.push_back(dense_gradient(spec.name, worker, step, spec.elements));
  const auto keys = keys_of(worker, step);
  const auto rows = row_gradients(worker, step, keys.size() * static_cast<std::size_t>(set.sparse[0].dim));
  PushRequest first, second;
  for (PushRequest* request : {&first, &second}) {
    request->step = step;
    request->sequence = request == &first ? 0 : 1;
    request->examples = 32;
    request->params = params_of(step, set.workers);
  }
  first.dense = {{0, gradients[0]}};
  for (int t = 1; t < static_cast<int>(set.dense.size()); ++t)
    second.dense.push_back({t, gradients[static_cast<std::size_t>(t)]});
  second.sparse = {{0, keys, rows.data()}};
  if ((step + seed + static_cast<std::uint64_t>(worker)) % 2 == 0) std::swap(first, second);
  std::latch ended(2);
  std::atomic<bool> failed{false};
  auto done = [&](ErrorPtr error) {
    if (error) failed = true;
    EXPECT_EQ(error, nullptr) << error->message;
    ended.count_down();
  };
  client.push_async(std::move(first), done, soon());
  random_delay();
  client.push_async(std::move(second), done, soon());
  ended.wait();
}

void pull_step(PsClient& client, int worker, std::uint64_t step) {
  const TableSet& set = client.tables();
  std::vector<float> w2(static_cast<std::size_t>(set.dense[2].elements));
  const auto keys = keys_of(worker, step);
  std::vector<float> rows(keys.size() * static_cast<std::size_t>(set.sparse[0].dim));
  PullRequest pull;
  pull.min_version = step;
  pull.dense = {{2, w2}};
  pull.sparse = {{0, keys, rows.data()}};
  client.pull(std::move(pull), soon());
}

struct Case {
  std::size_t optimizer;
  int servers;
  int workers;
  bool unix_socket;
};

class BspTrainingTest : public testing::TestWithParam<Case> {};

TEST_P(BspTrainingTest, EqualsTheSerialReferenceBitwise) {
  constexpr std::uint64_t kSteps = 5;
  const Case c = GetParam();
  const TableSet set = small_model(all_optimizers()[c.optimizer], Consistency::Bsp, c.workers);
  ReferenceModel reference(set);
  Cluster cluster({c.servers, c.workers, c.unix_socket});
  std::vector<std::vector<float>> result;
  cluster.run_workers([&](int worker, PsClient& client) {
    random_delay();
    client.create_tables(set, soon());
    if (worker == 0) set_initial_values(client);
    EXPECT_EQ(client.wait_initialized(soon()), 0U);
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      pull_step(client, worker, step);
      random_delay();
      push_step(client, worker, step, c.optimizer);
    }
    if (worker == 0) result = read_model(client, kSteps);
    client.leave(soon());
  });
  for (std::uint64_t step = 0; step < kSteps; ++step) reference.round(step, params_of(step, c.workers));
  for (std::size_t t = 0; t < set.dense.size(); ++t)
    EXPECT_EQ(result[t], reference.dense(t)) << set.dense[t].name;
  EXPECT_EQ(result.back(), reference.rows());
  std::uint64_t applied = 0, parked_requests = 0;
  for (int s = 0; s < c.servers; ++s) {
    applied += cluster.server(s).core().counters()->value(Count::PushesApplied);
    parked_requests += cluster.server(s).core().counters()->value(Count::RequestsRefused);
    EXPECT_TRUE(cluster.server(s).core().all_gone());
  }
  EXPECT_EQ(applied, kSteps * static_cast<std::uint64_t>(c.workers * 2 * c.servers))
      << "steps x workers x pushes of a step x servers";
  EXPECT_EQ(parked_requests, 0U);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (std::size_t optimizer = 0; optimizer < all_optimizers().size(); ++optimizer)
    for (int servers : {1, 2, 3}) all.push_back({optimizer, servers, servers == 2 ? 2 : 3, servers == 3});
  all.push_back({0, 2, 1, false});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Jobs, BspTrainingTest, testing::ValuesIn(cases()), [](const auto& info) {
  const OptimizerSpec spec = all_optimizers()[info.param.optimizer];
  return std::string(optimizer_name(spec.kind)) + (spec.nesterov ? "Nesterov" : "") +
         (spec.centered ? "Centered" : "") + (spec.adagrad_epsilon > 0 ? "Epsilon" : "") + "_" +
         std::to_string(info.param.servers) + "servers_" + std::to_string(info.param.workers) + "workers";
});

TEST(AspTrainingTest, EveryPushAppliesOnce) {
  constexpr int kWorkers = 3;
  constexpr std::uint64_t kSteps = 20;
  TableSet set;
  set.dense = {{"w", 20000}};
  set.sparse = {{"emb", 3, {InitKind::Zeros, 0, 0}, {1}}};
  set.consistency = Consistency::Asp;
  set.workers = kWorkers;
  Cluster cluster({2, kWorkers});
  std::vector<float> values(20000), row(3);
  cluster.run_workers([&](int worker, PsClient& client) {
    client.create_tables(set, soon());
    if (worker == 0) client.set_dense("w", std::vector<float>(20000), soon());
    client.wait_initialized(soon());
    const std::vector<float> ones(20000, 1.0F);
    const std::vector<std::int64_t> keys{7, 7, 100 + worker};
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      PushRequest push;
      push.step = step;
      push.params = {1.0F, 1.0F, step};
      push.dense = {{0, ones}};
      push.sparse = {{0, keys, ones.data()}};
      client.push(std::move(push), soon());
      random_delay();
    }
    client.leave(soon());
    EXPECT_EQ(client.push_counts().applied, 2 * kSteps);
    EXPECT_EQ(client.push_counts().dropped, 0U);
  });
  auto observer = cluster.client(kObserver);
  observer->create_tables(set, soon());
  observer->read_dense("w", values, soon());
  EXPECT_EQ(values, std::vector<float>(20000, -static_cast<float>(kSteps * kWorkers)));
  const std::vector<std::int64_t> key{7};
  PullRequest pull;
  pull.sparse = {{0, key, row.data()}};
  observer->pull(std::move(pull), soon());
  EXPECT_EQ(row, std::vector<float>(3, -2.0F * kSteps * kWorkers));
}

TEST(PsClientTest, AnObserverNeitherInsertsNorPushes) {
  TableSet set;
  set.sparse = {{"emb", 2, {InitKind::Constant, 3.0F, 0}, {1}}};
  set.consistency = Consistency::Asp;
  Cluster cluster({1, 1});
  auto chief = cluster.client(0);
  chief->create_tables(set, soon());
  EXPECT_EQ(chief->wait_initialized(soon()), 0U) << "a set without dense tables is started by the chief";
  auto observer = cluster.client(kObserver);
  observer->create_tables(set, soon());
  const std::vector<std::int64_t> keys{1, 2, 1};
  std::vector<float> rows(6);
  PullRequest pull;
  pull.sparse = {{0, keys, rows.data()}};
  observer->pull(pull, soon());
  EXPECT_EQ(rows, std::vector<float>(6, 3.0F));
  EXPECT_EQ(chief->stats(soon())[0].counters.at("rows_made"), 0U);
  chief->pull(pull, soon());
  EXPECT_EQ(chief->stats(soon())[0].counters.at("rows_made"), 2U);
  PushRequest push;
  push.sparse = {{0, keys, rows.data()}};
  EXPECT_THROW(observer->push(push, soon()), InvalidArgument);
}

TEST(PsClientTest, APullThatAsksForVotesHearsServersThatHaveNothingForIt) {
  TableSet set;
  set.dense = {{"w", 1}};  // on one of the servers
  Cluster cluster({3, 1});
  for (const Consistency consistency : {Consistency::Bsp, Consistency::Asp}) {
    set.consistency = consistency;
    const bool bsp = consistency == Consistency::Bsp;
    auto client = cluster.client(0, bsp ? 1 : 2);
    client->create_tables(set, soon());
    std::vector<float> value(1);
    client->set_dense("w", value, soon());
    for (std::uint64_t step = 0; step < 2; ++step) {
      float vote = -1;
      client->pull({{{0, value}}, {}, bsp ? step : 0, true, &vote}, soon());
      EXPECT_EQ(vote, static_cast<float>(step));
      client->push({step, 0, {}, 1, {{0, value}}, {}, false}, soon());
      cluster.server(2).core().vote_to_stop();
    }
    cluster.restart_server(2);
  }
}

TEST(PsClientTest, BadRequestsAreRefusedBeforeTheyTravel) {
  TableSet set;
  set.dense = {{"w", 10}};
  set.consistency = Consistency::Asp;
  Cluster cluster({1, 1});
  auto client = cluster.client(0);
  std::vector<float> values(10);
  EXPECT_THROW(client->pull({{{0, values}}, {}, 0, true}, soon()), InvalidArgument) << "before create_tables";
  client->create_tables(set, soon());
  EXPECT_THROW(client->set_dense("nope", values, soon()), InvalidArgument);
  EXPECT_THROW(client->set_dense("w", std::span(values).first(9), soon()), InvalidArgument);
  client->set_dense("w", values, soon());
  EXPECT_THROW(client->set_dense("w", values, soon()), InvalidArgument) << "a second start";
  EXPECT_THROW(client->pull({{{1, values}}, {}, 0, true}, soon()), InvalidArgument);
  EXPECT_THROW(client->pull({{{0, std::span(values).first(9)}}, {}, 0, true}, soon()), InvalidArgument);
  EXPECT_NO_THROW(client->pull({{{0, values}}, {}, 0, true}, soon()));
}

}  // namespace
}  // namespace braid::ps
