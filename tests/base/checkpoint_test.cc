// Shards and stores as they should be; tests/base/checkpoint_damage_test.cc has what can go wrong.
#include "base/checkpoint.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/files.h"
#include "base/init.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

std::vector<float> floats(std::size_t count, std::uint64_t step = 0) {
  std::vector<float> out(count);
  fill_normal01(make_rng_key(1, "checkpoint", step), 0, out);
  return out;
}

template <class T>
std::span<const std::byte> raw(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

CheckpointEntry entry(std::string name, std::size_t count) {
  return {std::move(name), DType::Float32, {static_cast<std::int64_t>(count)}, count * sizeof(float)};
}

/// A store with one whole checkpoint a step, each with one shard.
void save(CheckpointStore& store, std::uint64_t step) {
  const auto temporary = store.begin(step);
  ShardWriter writer(temporary / "worker-0.shard");
  const auto values = floats(100, step);
  writer.add(entry("w", 100), raw(values));
  store.commit(temporary, {.step = step, .job_name = "job"}, {writer.finish()});
}

std::vector<std::uint64_t> steps(const CheckpointStore& store) {
  std::vector<std::uint64_t> out;
  for (const CheckpointInfo& info : store.list()) out.push_back(info.meta.step);
  return out;
}

TEST(ShardTest, ReadsBackEntriesOfAllSizes) {
  TempDir dir;
  const auto path = dir.path() / "a.shard";
  const std::vector<std::size_t> counts = {0,       1,       1000,   262'143,
                                           262'144, 262'145, 700'000};  // around 1 MiB and above
  ShardWriter writer(path);
  for (std::size_t count : counts) {
    const auto values = floats(count, count);
    writer.add(entry("entry" + std::to_string(count), count), raw(values));
  }
  const std::vector<std::int64_t> keys = {-1, 1LL << 60};
  writer.add({"keys", DType::Int64, {2}, 16}, raw(keys));
  writer.add({"scalar", DType::Bool, {}, 1}, raw(std::vector<std::uint8_t>{1}));
  writer.add({"text", DType::String, {3}, 5}, raw(std::vector<char>{'a', 'b', 'c', 'd', 'e'}));
  const ShardInfo info = writer.finish();
  EXPECT_EQ(info.file, "a.shard");
  EXPECT_EQ(info.bytes, std::filesystem::file_size(path));

  const ShardReader reader(path);
  EXPECT_EQ(reader.info().crc, info.crc);
  EXPECT_EQ(reader.info().bytes, info.bytes);
  ASSERT_EQ(reader.entries().size(), counts.size() + 3);
  for (std::size_t count : counts) {
    const std::string name = "entry" + std::to_string(count);
    ASSERT_TRUE(reader.find(name));
    EXPECT_EQ(reader.find(name)->shape, (std::vector<std::int64_t>{static_cast<std::int64_t>(count)}));
    std::vector<float> got(count);
    reader.read(name, std::as_writable_bytes(std::span(got)));
    EXPECT_EQ(got, floats(count, count));
  }
  EXPECT_EQ(reader.find("keys")->dtype, DType::Int64);
  EXPECT_EQ(reader.read("text").size(), 5U);
  EXPECT_EQ(reader.find("scalar")->shape, std::vector<std::int64_t>{});
  EXPECT_EQ(reader.find("other"), nullptr);
  reader.verify();
}

TEST(ShardTest, AShardWithoutEntriesIsValid) {
  TempDir dir;
  ShardWriter(dir.path() / "empty.shard").finish();
  EXPECT_TRUE(ShardReader(dir.path() / "empty.shard").entries().empty());
}

TEST(ShardTest, RefusesWhatDoesNotFit) {
  TempDir dir;
  ShardWriter writer(dir.path() / "a.shard");
  const auto values = floats(4);
  EXPECT_ERROR(writer.add({"w", DType::Float32, {5}, 16}, raw(values)), InvalidArgument,
               HasSubstr("entry 'w' of type float32 and shape [5] cannot have 16 bytes"));
  EXPECT_ERROR(writer.add({"w", DType::Float32, {4}, 12}, raw(values)), InvalidArgument,
               HasSubstr("says 12 bytes and has 16"));
  EXPECT_ERROR(writer.add({"w", DType::Float32, {-4}, 16}, raw(values)), InvalidArgument,
               HasSubstr("shape [-4]"));
  EXPECT_ERROR(writer.add({"w", DType::Float32, {1LL << 62, 1LL << 62}, 16}, raw(values)), InvalidArgument,
               HasSubstr("cannot"));
  writer.add(entry("w", 4), raw(values));
  EXPECT_ERROR(writer.add(entry("w", 4), raw(values)), InvalidArgument, HasSubstr("is there already"));
  writer.finish();
  EXPECT_ERROR(writer.add(entry("v", 4), raw(values)), InvalidArgument, HasSubstr("after finish"));
  const ShardReader reader(dir.path() / "a.shard");
  EXPECT_ERROR(reader.read("v"), InvalidArgument, HasSubstr("has no entry 'v'"));
  std::vector<std::byte> small(15);
  EXPECT_ERROR(reader.read("w", small), InvalidArgument, HasSubstr("has 16 bytes, there is room for 15"));
}

TEST(ShardTest, AnUnfinishedShardIsRemoved) {
  TempDir dir;
  { ShardWriter(dir.path() / "a.shard").add(entry("w", 4), raw(floats(4))); }
  EXPECT_TRUE(list_directory(dir.path()).empty());
}

TEST(CheckpointStoreTest, MetaAndShardsComeBack) {
  TempDir dir;
  CheckpointStore store(dir.path() / "made/on/demand");
  EXPECT_TRUE(store.list().empty());
  const auto temporary = store.begin(120);
  std::vector<ShardInfo> shards;
  for (const char* name : {"worker-0.shard", "ps-0.shard"}) {
    ShardWriter writer(temporary / name);
    writer.add(entry(name, 10), raw(floats(10)));
    shards.push_back(writer.finish());
  }
  CheckpointMeta meta{
      .step = 120, .generation = 3, .plan_hash = 0xFEDCBA9876543210ULL, .job_name = "fashion \"mnist\""};
  meta.cursors["worker-0"] = std::string("\0\x01\xFFraw\n", 7);
  meta.metrics["loss"] = 0.1 + 0.2;
  meta.attributes["policy"] = "AUTO # crc32c: 00000000\n";
  store.commit(temporary, meta, shards);

  EXPECT_EQ(list_directory(store.root()), (std::vector<std::filesystem::path>{"step-000000000120"}));
  const auto newest = store.newest();
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->meta.step, 120U);
  EXPECT_EQ(newest->meta.generation, 3U);
  EXPECT_EQ(newest->meta.plan_hash, meta.plan_hash);
  EXPECT_EQ(newest->meta.job_name, meta.job_name);
  EXPECT_EQ(newest->meta.cursors, meta.cursors);
  EXPECT_EQ(newest->meta.metrics, meta.metrics);
  EXPECT_EQ(newest->meta.attributes, meta.attributes);
  ASSERT_EQ(newest->shards.size(), 2U);
  EXPECT_EQ(newest->shards[1].file, "ps-0.shard");
  EXPECT_EQ(ShardReader(newest->directory / "ps-0.shard").read("ps-0.shard").size(), 40U);
}

TEST(CheckpointStoreTest, ListIsOldestFirstAndPruneKeepsTheNewest) {
  TempDir dir;
  CheckpointStore store(dir.path());
  for (std::uint64_t step : {30ULL, 10ULL, 1'000'000'000'000ULL, 20ULL}) save(store, step);
  EXPECT_EQ(steps(store), (std::vector<std::uint64_t>{10, 20, 30, 1'000'000'000'000}));
  store.prune(0);
  EXPECT_EQ(steps(store).size(), 4U);
  store.prune(2);
  EXPECT_EQ(steps(store), (std::vector<std::uint64_t>{30, 1'000'000'000'000}));
  EXPECT_EQ(list_directory(dir.path()).size(), 2U);
  store.prune(5);
  EXPECT_EQ(steps(store).size(), 2U);
}

TEST(CheckpointStoreTest, TheSameStepIsReplaced) {
  TempDir dir;
  CheckpointStore store(dir.path());
  save(store, 7);
  const auto temporary = store.begin(7);
  store.commit(temporary, {.step = 7, .job_name = "second"}, {});
  EXPECT_EQ(store.newest()->meta.job_name, "second");
  EXPECT_EQ(list_directory(dir.path()), (std::vector<std::filesystem::path>{"step-000000000007"}));
}

TEST(CheckpointStoreTest, UnfinishedOnesAreNotListedAndAreCleanedUp) {
  TempDir dir;
  CheckpointStore store(dir.path());
  std::filesystem::create_directories(dir.path() / ".tmp-step-000000000005-1/leftover");
  std::filesystem::create_directories(dir.path() / ".tmp-step-000000000010-1");
  std::filesystem::create_directories(dir.path() / ".tmp-step-000000000099-1");
  std::filesystem::create_directories(dir.path() / "step-of-a-dance");
  EXPECT_TRUE(store.list().empty());
  save(store, 10);  // begin(10) removes the one of step 10
  store.prune(3);   // and this the one of step 5; that of step 99 may be under way
  EXPECT_EQ(list_directory(dir.path()),
            (std::vector<std::filesystem::path>{".tmp-step-000000000099-1", "step-000000000010",
                                                "step-of-a-dance"}));
}

TEST(CheckpointStoreTest, SlashesAtTheEndOfADirectoryMeanNothing) {
  TempDir dir;
  CheckpointStore store(dir.path() / "runs//a" / "");
  EXPECT_EQ(store.commit(store.begin(1), {.step = 1}, {}).meta.step, 1U);
  EXPECT_EQ(CheckpointStore(dir.path() / "runs/a").newest()->meta.step, 1U);
}

TEST(CheckpointStoreTest, CommitChecksWhatItIsGiven) {
  TempDir dir;
  CheckpointStore store(dir.path());
  const auto temporary = store.begin(1);
  EXPECT_ERROR(store.commit(temporary, {.step = 2}, {}), InvalidArgument,
               HasSubstr("was not begun for step 2"));
  EXPECT_ERROR(store.commit(dir.path() / "x", {.step = 1}, {}), InvalidArgument, HasSubstr("was not begun"));
  EXPECT_ERROR(store.commit(temporary, {.step = 1}, {{"../a", 1, 1}}), InvalidArgument, HasSubstr("'../a'"));
  EXPECT_ERROR(store.commit(temporary, {.step = 1}, {{"a.shard", 1, 1}}), DataLoss,
               HasSubstr("a.shard' is missing"));
  EXPECT_TRUE(store.list().empty());
}

}  // namespace
}  // namespace braid
