// Damaged and unwritable checkpoints: every bit, every cut, missing files, full and forbidden disks.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "base/checkpoint.h"
#include "base/files.h"
#include "base/init.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

template <class T>
std::span<const std::byte> raw_values(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

std::vector<float> drawn(std::size_t count) {
  std::vector<float> out(count);
  fill_normal01(make_rng_key(1, "damage"), 0, out);
  return out;
}

ShardInfo write_shard(const fs::path& path, const std::vector<std::size_t>& counts) {
  ShardWriter writer(path);
  for (std::size_t i = 0; i < counts.size(); ++i)
    writer.add(
        {"entry" + std::to_string(i), DType::Float32, {static_cast<std::int64_t>(counts[i])}, counts[i] * 4},
        raw_values(drawn(counts[i])));
  return writer.finish();
}

void overwrite(const fs::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(content.data(), static_cast<std::streamsize>(content.size()));
}

/// Inverts one bit in place; a second time restores it.
void flip(const fs::path& path, std::size_t bit) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekg(static_cast<std::streamoff>(bit / 8));
  const char byte = static_cast<char>(file.get() ^ (1 << (bit % 8)));
  file.seekp(static_cast<std::streamoff>(bit / 8));
  file.put(byte);
}

/// What opening and reading everything throws; empty if nothing.
std::string complaint(const fs::path& path) {
  try {
    ShardReader(path).verify();
    return {};
  } catch (const DataLoss& e) {
    return e.message();
  }
}

TEST(ShardDamageTest, EveryFlippedBitIsFoundAndTheFileIsNamed) {
  TempDir dir;
  const auto path = dir.path() / "a.shard";
  write_shard(path, {3, 0, 40, 1});
  const std::string good = read_file(path);
  ASSERT_EQ(complaint(path), "");
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    flip(path, bit);
    ASSERT_THAT(complaint(path), HasSubstr("'" + path.string() + "'"))
        << "bit " << bit << " of " << good.size() * 8;
    flip(path, bit);
  }
}

TEST(ShardDamageTest, EveryCutAndEveryAppendedByteIsFound) {
  TempDir dir;
  const auto path = dir.path() / "a.shard";
  write_shard(path, {3, 0, 40, 1});
  const std::string good = read_file(path);
  for (std::size_t size = good.size(); size-- > 0;) {
    fs::resize_file(path, size);
    ASSERT_NE(complaint(path), "") << "cut to " << size << " of " << good.size();
  }
  overwrite(path, good + '\0');
  EXPECT_THAT(complaint(path), HasSubstr("truncated or not finished"));
  overwrite(path, good + good.substr(good.size() - 40));  // a second footer
  EXPECT_THAT(complaint(path), HasSubstr("truncated or grown"));
}

TEST(ShardDamageTest, ABitInAnyBlockIsReportedWithEntryBlockAndByte) {
  TempDir dir;
  const auto path = dir.path() / "a.shard";
  constexpr std::size_t kBlock = 1 << 20;
  write_shard(path, {10, 3 * kBlock / 4 - 5});  // the second has three blocks, the last one shorter
  for (std::size_t block = 0; block < 3; ++block) {
    const std::size_t begin = 12 + 40 + block * kBlock;
    for (std::size_t at : {begin, begin + kBlock / 2, begin + kBlock - 21}) {
      flip(path, at * 8 + 4);
      const ShardReader reader(path);
      EXPECT_EQ(reader.read("entry0").size(), 40U);  // the other entry is still good
      EXPECT_ERROR(reader.read("entry1"), DataLoss,
                   AllOf(HasSubstr("entry 'entry1', block " + std::to_string(block) + " at byte " +
                                   std::to_string(begin)),
                         ContainsRegex("have CRC [0-9a-f]{8}, the index says [0-9a-f]{8}")));
      flip(path, at * 8 + 4);
    }
  }
}

TEST(ShardDamageTest, AFileCutWhileItIsOpenIsReportedWithItsEntry) {
  TempDir dir;
  const auto path = dir.path() / "a.shard";
  write_shard(path, {1000});
  const ShardReader reader(path);
  fs::resize_file(path, 2000);
  EXPECT_ERROR(reader.read("entry0"), DataLoss,
               AllOf(HasSubstr("entry 'entry0', block 0"), HasSubstr("ends at byte 2000")));
}

TEST(ShardDamageTest, AnotherVersionIsNamed) {
  TempDir dir;
  const auto path = dir.path() / "a.shard";
  write_shard(path, {1});
  std::string bad = read_file(path);
  bad[8] = 2;
  overwrite(path, bad);
  EXPECT_THAT(complaint(path), HasSubstr("version 2 of the format, this program knows 1"));
}

class StoreDamageTest : public ::testing::Test {
 protected:
  StoreDamageTest() : store_(dir_.path()) {
    for (std::uint64_t step : {10, 20}) {
      const auto temporary = store_.begin(step);
      std::vector<ShardInfo> shards{write_shard(temporary / "worker-0.shard", {100, 200}),
                                    write_shard(temporary / "ps-0.shard", {50})};
      store_.commit(temporary, {.step = step, .job_name = "job", .metrics = {{"loss", 0.5}}}, shards);
    }
  }
  fs::path newest() const { return dir_.path() / "step-000000000020"; }
  /// The damaged newest one is left out of the list, the older one is used.
  void expect_fallback() const {
    const auto list = store_.list();
    ASSERT_EQ(list.size(), 1U);
    EXPECT_EQ(list[0].meta.step, 10U);
    EXPECT_EQ(store_.newest()->meta.step, 10U);
  }

  TempDir dir_;
  CheckpointStore store_;
};

TEST_F(StoreDamageTest, AMissingManifestIsNamed) {
  fs::remove(newest() / "MANIFEST");
  EXPECT_ERROR(read_checkpoint(newest()), DataLoss, HasSubstr("'" + newest().string() + "' has no MANIFEST"));
  expect_fallback();
}

TEST_F(StoreDamageTest, AMissingShardIsNamed) {
  fs::remove(newest() / "ps-0.shard");
  EXPECT_ERROR(read_checkpoint(newest()), DataLoss,
               HasSubstr("shard '" + (newest() / "ps-0.shard").string() + "' is missing"));
  expect_fallback();
}

TEST_F(StoreDamageTest, ATruncatedShardIsNamedWithBothSizes) {
  const auto size = fs::file_size(newest() / "ps-0.shard");
  fs::resize_file(newest() / "ps-0.shard", size - 1);
  EXPECT_ERROR(read_checkpoint(newest()), DataLoss,
               AllOf(HasSubstr("ps-0.shard' has " + std::to_string(size - 1)),
                     HasSubstr("the manifest says " + std::to_string(size))));
  expect_fallback();
}

TEST_F(StoreDamageTest, AnotherShardOfTheSameSizeIsNoticed) {
  ShardWriter writer(newest() / "ps-0.shard");
  writer.add({"entry0", DType::Float32, {50}, 200}, raw_values(std::vector<float>(50, 1.0F)));
  writer.finish();
  EXPECT_ERROR(read_checkpoint(newest()), DataLoss, HasSubstr("has an index with CRC"));
  expect_fallback();
}

TEST_F(StoreDamageTest, EveryFlippedBitAndEveryCutOfTheManifestIsFound) {
  const auto path = newest() / "MANIFEST";
  const std::string good = read_file(path);
  for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
    flip(path, bit);
    EXPECT_ERROR(read_checkpoint(newest()), DataLoss, HasSubstr("MANIFEST'"));
    flip(path, bit);
  }
  for (std::size_t size = good.size(); size-- > 0;) {
    fs::resize_file(path, size);
    EXPECT_ERROR(read_checkpoint(newest()), DataLoss, HasSubstr("MANIFEST'"));
  }
  expect_fallback();
}

TEST_F(StoreDamageTest, AManifestOfAnotherStepIsNoticed) {
  fs::copy_file(dir_.path() / "step-000000000010/MANIFEST", newest() / "MANIFEST",
                fs::copy_options::overwrite_existing);
  expect_fallback();
}

TEST_F(StoreDamageTest, PruneCountsWholeOnesAndLeavesDamagedOnes) {
  fs::remove(newest() / "MANIFEST");
  store_.prune(1);
  expect_fallback();
  EXPECT_TRUE(fs::exists(newest()));
}

// A write that fails after part of the data: the limit of a file's size stands in for the end of the disk.
TEST(DiskTest, AWriteThatStopsInTheMiddleNamesEntryFileAndByte) {
  TempDir dir;
  rlimit before;
  ::getrlimit(RLIMIT_FSIZE, &before);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 3 << 20;
  ::setrlimit(RLIMIT_FSIZE, &small);
  {
    ShardWriter writer(dir.path() / "a.shard");
    writer.add({"small", DType::Float32, {10}, 40}, raw_values(drawn(10)));
    EXPECT_ERROR(
        writer.add({"big", DType::Float32, {2 << 20}, 8 << 20}, raw_values(drawn(2 << 20))), Unavailable,
        AllOf(HasSubstr("entry 'big'"), HasSubstr("a.shard' at byte 3145728"), HasSubstr("File too large")));
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_TRUE(list_directory(dir.path()).empty());
}

TEST(DiskTest, AFullDiskIsUnavailableAndTheOlderCheckpointStays) {
  TempDir dir;
  if (::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=2m") != 0)
    GTEST_SKIP() << "cannot mount a small tmpfs (" << std::generic_category().message(errno)
                 << "): run it as root, in a container with --cap-add SYS_ADMIN";
  {
    CheckpointStore store(dir.path());
    const auto first = store.begin(1);
    store.commit(first, {.step = 1}, {write_shard(first / "a.shard", {1000})});
    const auto second = store.begin(2);
    EXPECT_ERROR(write_shard(second / "a.shard", {1 << 20}), Unavailable,
                 AllOf(HasSubstr("entry 'entry0'"), HasSubstr((second / "a.shard").string()),
                       HasSubstr("No space left on device")));
    EXPECT_EQ(store.newest()->meta.step, 1U);
    const auto third = store.begin(2);  // the space of the failed one is free again
    store.commit(third, {.step = 2}, {write_shard(third / "a.shard", {1000})});
    EXPECT_EQ(store.newest()->meta.step, 2U);
  }
  ::umount2(dir.path().c_str(), MNT_DETACH);
}

TEST(DiskTest, AForbiddenDirectoryIsUnavailableAndNamed) {
  TempDir dir;
  fs::create_directory(dir.path() / "closed");
  fs::permissions(dir.path(), fs::perms(0755));
  fs::permissions(dir.path() / "closed", fs::perms(0555));
  const uid_t user = ::geteuid();
  if (user == 0 && ::seteuid(65534) != 0)
    GTEST_SKIP() << "root writes everywhere, and the user cannot be changed: run it as another user";
  CheckpointStore store(dir.path() / "closed");
  EXPECT_ERROR(store.begin(1), Unavailable,
               AllOf(HasSubstr("closed/.tmp-step-000000000001-"), HasSubstr("Permission denied")));
  EXPECT_ERROR(ShardWriter(dir.path() / "closed/a.shard"), Unavailable,
               AllOf(HasSubstr("a.shard"), HasSubstr("Permission denied")));
  ASSERT_TRUE(user != 0 || ::seteuid(user) == 0);
}

TEST(DiskTest, AFileInThePlaceOfTheRootIsNamed) {
  TempDir dir;
  overwrite(dir.path() / "file", "x");
  EXPECT_ERROR(CheckpointStore(dir.path() / "file/root").begin(1), Unavailable,
               AllOf(HasSubstr("file/root"), HasSubstr("Not a directory")));
}

}  // namespace
}  // namespace braid
