// Checkpoints of K servers restored onto K' of them, with the same bits, in BSP and ASP.
#include <filesystem>
#include <set>

#include "ps/server/server_core.h"
#include "tests/ps/cluster.h"
#include "tests/support/message_of.h"

namespace braid::ps {
namespace {

constexpr int kWorkers = 2;

class Directory {
 public:
  Directory() : path_(scratch_path("-checkpoint")) { std::filesystem::create_directories(path_); }
  ~Directory() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

std::vector<std::int64_t> all_keys() {
  std::vector<std::int64_t> keys;
  for (std::int64_t k = -3; k < kRows; ++k) keys.push_back(k);
  return keys;
}

void push_step(PsClient& client, int worker, std::uint64_t step) {
  const TableSet& set = client.tables();
  std::vector<std::vector<float>> gradients;
  PushRequest push;
  push.step = step;
  push.params = {0.05F, 0.5F, step};
  for (const auto& spec : set.dense)
    gradients.push_back(dense_gradient(spec.name, worker, step, spec.elements));
  for (std::size_t t = 0; t < gradients.size(); ++t)
    push.dense.push_back({static_cast<int>(t), gradients[t]});
  const auto keys = keys_of(worker, step);
  const auto rows = row_gradients(worker, step, keys.size() * 5);
  push.sparse = {{0, keys, rows.data()}};
  client.push(std::move(push), soon());
}

std::vector<std::vector<float>> read_all(PsClient& client, std::uint64_t version) {
  std::vector<std::vector<float>> out;
  PullRequest pull;
  pull.min_version = version;
  pull.insert = false;
  const TableSet& set = client.tables();
  for (std::size_t t = 0; t < set.dense.size(); ++t) {
    out.emplace_back(static_cast<std::size_t>(set.dense[t].elements));
    pull.dense.push_back({static_cast<int>(t), out.back()});
  }
  const auto keys = all_keys();
  out.emplace_back(keys.size() * 5);
  pull.sparse.push_back({0, keys, out.back().data()});
  client.pull(std::move(pull), soon());
  return out;
}

/// Steps [first, last) by all workers, alone on the cluster; the values after them. `from`: restored before.
std::vector<std::vector<float>> train(Cluster& cluster, const TableSet& set,
                                      const std::filesystem::path* from, std::uint64_t first,
                                      std::uint64_t last, const std::filesystem::path* to) {
  std::vector<std::vector<float>> values;
  cluster.run_workers([&](int worker, PsClient& client) {
    client.create_tables(set, soon());
    if (worker == 0) {
      if (from) {
        EXPECT_EQ(client.restore(*from, soon()), first);
      } else {
        for (const auto& spec : set.dense) client.set_dense(spec.name, initial_dense(spec), soon());
      }
    }
    EXPECT_EQ(client.wait_initialized(soon()), first);
    for (std::uint64_t step = first; step < last; ++step) {
      std::vector<float> pulled(static_cast<std::size_t>(set.dense[2].elements));
      client.pull({{{2, pulled}}, {}, step, true}, soon());
      push_step(client, worker, step);
    }
    if (worker == 0) {
      values = read_all(client, last);
      if (to) {
        const auto shards = client.checkpoint(*to, last, soon());
        for (const ShardInfo& shard : shards)
          EXPECT_EQ(std::filesystem::file_size(*to / shard.file), shard.bytes);
      }
    }
    client.leave(soon());
  });
  return values;
}

TEST(PsCheckpointTest, RestoresOntoAnyNumberOfServersAndGoesOnWithTheSameBits) {
  OptimizerSpec adam;
  adam.kind = OptimizerKind::Adam;
  const TableSet set = small_model(adam, Consistency::Bsp, kWorkers);
  Cluster whole({2, kWorkers});
  const auto expected = train(whole, set, nullptr, 0, 6, nullptr);
  for (int writers : {1, 2, 3}) {
    Directory directory;
    Cluster first({writers, kWorkers});
    const auto at_checkpoint = train(first, set, nullptr, 0, 3, &directory.path());
    for (int readers : {1, 2, 3}) {
      Cluster restored({readers, kWorkers});
      auto chief = restored.client(kObserver);
      Cluster second({readers, kWorkers});
      EXPECT_EQ(train(second, set, &directory.path(), 3, 3, nullptr), at_checkpoint)
          << writers << " -> " << readers;
      Cluster third({readers, kWorkers});
      EXPECT_EQ(train(third, set, &directory.path(), 3, 6, nullptr), expected)
          << writers << " -> " << readers;
    }
  }
}

// Tables are named after columns now; what was written before knows them by their positions, and with more
// rows.
TEST(PsCheckpointTest, TablesAreFoundByTheirFormerNames) {
  OptimizerSpec adam;
  adam.kind = OptimizerKind::Adam;
  const TableSet written = small_model(adam, Consistency::Bsp, kWorkers);
  TableSet renamed = written;
  for (DenseTableSpec& table : renamed.dense) table.name = "new/" + (table.former_name = table.name);
  for (SparseTableSpec& table : renamed.sparse) table.name = "new/" + (table.former_name = table.name);
  Directory directory;
  Cluster first({2, kWorkers});
  const auto values = train(first, written, nullptr, 0, 3, &directory.path());
  Cluster second({1, kWorkers});
  EXPECT_EQ(train(second, renamed, &directory.path(), 3, 3, nullptr), values);
  TableSet smaller = renamed;
  smaller.dense[0].elements -= 1;
  Cluster third({1, kWorkers});
  auto expected = values;
  expected[0].pop_back();
  EXPECT_EQ(train(third, smaller, &directory.path(), 3, 3, nullptr), expected);
}

TEST(PsCheckpointTest, AKeyIsSavedFromOneInstantWhileOthersWrite) {
  // Every push adds 1 to all of the row and, by Adagrad's rule with this start, the same to the accumulator:
  // in a state between two pushes the columns are equal and the accumulator says how many there were.
  TableSet set;
  set.dense = {{"w", 600000}};
  set.sparse = {{"emb", 64, {InitKind::Zeros, 0, 0}, {1}}};
  set.optimizer.kind = OptimizerKind::Adagrad;
  set.optimizer.initial_accumulator = 0.0F;
  set.consistency = Consistency::Asp;
  set.workers = 1;
  Cluster cluster({2, 1});
  auto worker = cluster.client(0);
  worker->create_tables(set, soon());
  worker->set_dense("w", std::vector<float>(600000), soon());
  std::vector<std::int64_t> keys;
  for (std::int64_t k = 0; k < 200; ++k) keys.push_back(k);
  const std::vector<float> ones(200 * 64, 1.0F);
  const std::vector<float> dense_ones(600000, 1.0F);
  std::atomic<std::uint64_t> pushed{0};
  std::jthread writer([&](const std::stop_token& stop) {
    for (std::uint64_t step = 0; !stop.stop_requested(); ++step) {
      PushRequest push;
      push.step = step;
      push.params = {0.1F, 1.0F, step};
      push.dense = {{0, dense_ones}};
      push.sparse = {{0, keys, ones.data(), true}};
      worker->push(std::move(push), soon());
      ++pushed;
    }
  });
  std::set<float> seen;
  for (int round = 0; round < 5; ++round) {
    for (const std::uint64_t before = pushed; pushed < before + 2;)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    Directory directory;
    worker->checkpoint(directory.path(), static_cast<std::uint64_t>(round), soon());
    for (int s = 0; s < 2; ++s) {
      const ShardReader shard(directory.path() / ("ps-" + std::to_string(s) + ".shard"));
      auto floats = [&](const std::string& name) {
        const auto bytes = shard.read(name);
        std::vector<float> values(bytes.size() / sizeof(float));
        if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
        return values;
      };
      const auto rows = floats("emb@rows");
      const auto accumulators = floats("emb/accumulator@rows");
      ASSERT_EQ(rows.size(), accumulators.size());
      float pushes = -1;
      for (const auto& entry : shard.entries())
        if (entry.name.starts_with("w/accumulator@")) {
          const auto values = floats(entry.name);
          pushes = values[0];
          EXPECT_EQ(values, std::vector<float>(values.size(), pushes)) << "the dense table is of one instant";
        }
      seen.insert(pushes);
      EXPECT_EQ(accumulators, std::vector<float>(accumulators.size(), pushes))
          << "all tables are of one instant";
      EXPECT_EQ(rows, std::vector<float>(rows.size(), rows.empty() ? 0.0F : rows[0]));
    }
  }
  EXPECT_GT(seen.size(), 2U) << "the writer did not run beside the checkpoints";
}

TEST(PsCheckpointTest, WhatIsMissingOrForeignIsNamed) {
  const TableSet set = small_model(OptimizerSpec(), Consistency::Bsp, 1);
  Directory directory;
  Cluster cluster({2, 1});
  auto client = cluster.client(0);
  client->create_tables(set, soon());
  for (const auto& spec : set.dense) client->set_dense(spec.name, initial_dense(spec), soon());
  auto message = [&](PsClient& by, const std::filesystem::path& from) {
    return message_of<Error>([&] { by.restore(from, soon()); });
  };
  EXPECT_NE(message(*client, directory.path()).find("no shards of parameter servers here"),
            std::string::npos);
  client->checkpoint(directory.path(), 0, soon());

  Cluster other({1, 1});
  auto stranger = other.client(0);
  TableSet changed = set;
  changed.dense[2].elements += 1;
  stranger->create_tables(changed, soon());
  EXPECT_NE(message(*stranger, directory.path()).find("table 'w2' has 9000 elements, the job's has 9001"),
            std::string::npos);

  std::filesystem::remove(directory.path() / "ps-1.shard");
  EXPECT_NE(message(*client, directory.path()).find("ps-1.shard: this shard of 2 servers is missing"),
            std::string::npos);
  std::vector<float> values(3);
  EXPECT_NO_THROW(client->read_dense("b2", values, soon())) << "a failed restore changes nothing";
  EXPECT_EQ(values, initial_dense(set.dense[3]));
}

TEST(PsCheckpointTest, ShardsOfTwoRunsAreNotPutTogether) {
  const TableSet set = small_model(OptimizerSpec(), Consistency::Bsp, 1);
  Directory first, second;
  Cluster cluster({2, 1});
  auto client = cluster.client(0);
  client->create_tables(set, soon());
  for (const auto& spec : set.dense) client->set_dense(spec.name, initial_dense(spec), soon());
  client->checkpoint(first.path(), 0, soon(), "00000000000000aa");
  client->checkpoint(second.path(), 0, soon(), "00000000000000bb");
  EXPECT_NO_THROW(client->restore(first.path(), soon()));
  std::filesystem::copy_file(second.path() / "ps-1.shard", first.path() / "ps-1.shard",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_NE(message_of<InvalidArgument>([&] {
              client->restore(first.path(), soon());
            }).find("ps-1.shard: of another run than"),
            std::string::npos);
}

TEST(PsCheckpointTest, MomentumRestoredIntoAdamKeepsValuesAndInitialisesSlots) {
  OptimizerSpec momentum, adam;
  momentum.kind = OptimizerKind::Momentum;
  adam.kind = OptimizerKind::Adam;
  Directory directory;
  Cluster first({2, kWorkers}), second({1, kWorkers});
  const auto values =
      train(first, small_model(momentum, Consistency::Bsp, kWorkers), nullptr, 0, 2, &directory.path());
  EXPECT_EQ(train(second, small_model(adam, Consistency::Bsp, kWorkers), &directory.path(), 2, 2, nullptr),
            values);
}

}  // namespace
}  // namespace braid::ps
