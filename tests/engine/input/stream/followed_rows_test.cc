// Files that appear while they are read: which ones count, in which order, how they end, and that batches are
// a function of the files alone.
#include "engine/input/stream/followed_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <future>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "engine/input/formats/readers.h"
#include "engine/input/stream/row_blocks.h"
#include "engine/input/stream/streamed_rows.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

class FollowedTest : public testing::Test {
 protected:
  void write(const std::string& name, int first, int rows) const {
    std::ofstream out(dir_.path() / ("." + name));
    for (int r = 0; r < rows; ++r) out << first + r << "\n";
    out.close();
    std::filesystem::rename(dir_.path() / ("." + name), dir_.path() / name);
  }
  void end() const { std::ofstream(dir_.path() / "_END"); }

  GrowingDirectory directory() const {
    GrowingDirectory growing;
    growing.list = [path = dir_.path()] {
      std::vector<std::filesystem::path> files;
      for (const auto& each : list_directory(path))
        if (!each.string().starts_with('.') && !each.string().starts_with('_') &&
            each.extension() != ".braid_index")
          files.push_back(path / each);
      return files;
    };
    growing.has_ended = [path = dir_.path() / "_END"] { return std::filesystem::exists(path); };
    growing.poll = 10ms;
    growing.idle = 60s;
    return growing;
  }
  std::shared_ptr<FileFeed> feed(std::vector<TakenFile> taken = {}) const {
    return follow_directory(directory(), std::move(taken));
  }
  std::shared_ptr<FollowedFiles> files(const std::shared_ptr<FileFeed>& from) const {
    return std::make_shared<FollowedFiles>(from, [](const std::string& file) -> std::shared_ptr<BlockSource> {
      const MakeRowStream make = [](const ReadOptions& read) {
        CsvOptions options;
        options.columns = {{.name = "y", .kind = ColumnKind::Label}};
        options.read = read;
        return stream_csv({}, options);
      };
      BlockIndexOptions index;
      index.block_bytes = 64;
      index.layout = RecordLayout::Fields;
      return make_row_blocks(block_indexes({file}, [&](const std::filesystem::path&) { return index; }), make,
                             0);
    });
  }
  static std::unique_ptr<Batcher> batcher(const std::shared_ptr<FollowedFiles>& from, BatchOptions batches,
                                          int readers = 1) {
    FollowedOptions options{.global_batch = batches.global_batch,
                            .window_rows = 40,
                            .shuffle = batches.shuffle,
                            .seed = batches.seed};
    auto rows = std::make_shared<StreamedRows>(from, std::make_unique<FollowPlan>(from, options),
                                               StreamedRowsOptions{.threads = readers}, batches);
    return std::make_unique<Batcher>(std::move(rows), std::vector<std::string>{"label"}, batches);
  }
  static std::vector<int> rows_of(const Batch& batch) {
    std::vector<int> rows;
    for (const float row : batch.tensors[0].data<float>()) rows.push_back(static_cast<int>(row));
    return rows;
  }
  std::string name_of(const TakenFile& file) const {
    return std::filesystem::path(file.name).filename().string();
  }

  TempDir dir_;
};

TEST_F(FollowedTest, WhatOneLookFindsIsOrderedByNameBehindWhatWasTaken) {
  write("b", 0, 1);
  write("a", 0, 1);
  const auto from = feed();
  EXPECT_EQ(name_of(*from->get(0, {})), "a");
  EXPECT_EQ(name_of(*from->get(1, {})), "b");
  write("0", 0, 1);
  EXPECT_EQ(name_of(*from->get(2, {})), "0");
  end();
  EXPECT_FALSE(from->get(3, {}));
  write("late", 0, 1);
  EXPECT_FALSE(from->get(3, {})) << "the end is one";
}

TEST_F(FollowedTest, AFileThatIsStillWrittenIsNotTaken) {
  std::ofstream slow(dir_.path() / "slow");
  std::atomic<bool> done = false;
  std::jthread writer([&] {
    for (int i = 0; i < 60; ++i) {
      slow << i << std::endl;
      std::this_thread::sleep_for(5ms);
    }
    slow.close();
    done = true;
  });
  GrowingDirectory patient = directory();
  patient.poll = 100ms;
  const auto from = follow_directory(patient, {});
  ASSERT_EQ(name_of(*from->get(0, {})), "slow");
  EXPECT_TRUE(done);
}

TEST_F(FollowedTest, EndsWhenNothingComesOrTheProcessIsAskedTo) {
  GrowingDirectory growing = directory();
  growing.idle = 50ms;
  EXPECT_FALSE(follow_directory(growing, {})->get(0, {}));

  std::atomic<bool> asked = false;
  growing.idle = 60s;
  growing.asked_to_stop = [&] { return asked.load(); };
  const auto from = follow_directory(growing, {});
  auto waits = std::async(std::launch::async, [&] { return from->get(0, {}); });
  EXPECT_EQ(waits.wait_for(50ms), std::future_status::timeout);
  asked = true;
  EXPECT_FALSE(waits.get());

  asked = false;
  std::stop_source stop;
  auto cancelled = std::async(std::launch::async, [&] { return from->get(0, stop.get_token()); });
  stop.request_stop();
  EXPECT_ERROR(cancelled.get(), Cancelled, HasSubstr("new files"));
}

TEST_F(FollowedTest, TextKeepsWhatWasTaken) {
  const std::vector<TakenFile> files{{"/data/a b", 12, 99}, {"c", -1, 0}};
  EXPECT_EQ(taken_files(text_of(files)), files);
  EXPECT_THAT(taken_files(""), SizeIs(0));
  for (const char* bad : {"x", "1", "1 2", "1 x name"})
    EXPECT_ERROR(taken_files(bad), DataLoss, HasSubstr("no file of an input"));
}

TEST_F(FollowedTest, BatchesCrossTheEndsOfFilesAndHaveEachRowOnce) {
  for (const bool shuffle : {false, true}) {
    write("a", 0, 50);
    write("b", 50, 0);
    write("c", 50, 75);
    const auto made = batcher(files(feed()), {.global_batch = 10, .shuffle = shuffle, .seed = 4});
    std::vector<int> all;
    for (std::uint64_t t = 0; t < 12; ++t)
      for (const int row : rows_of(made->make(t))) all.push_back(row);
    EXPECT_EQ(std::ranges::is_sorted(all), !shuffle);
    std::vector<int> of_first(all.begin(), all.begin() + 50);
    EXPECT_LT(std::ranges::max(of_first), 50) << "a file's rows come before those of the next";
    write("d", 125, 20);
    for (std::uint64_t t = 12; t < 14; ++t)
      for (const int row : rows_of(made->make(t))) all.push_back(row);
    std::ranges::sort(all);
    EXPECT_EQ(std::ranges::unique(all).size(), 0U);
    EXPECT_THAT(all, SizeIs(140));
    end();
    EXPECT_ERROR(made->make(14), OutOfRange, HasSubstr("no rows for batch 14"));  // 5 rows fill none
    std::filesystem::remove_all(dir_.path());
    std::filesystem::create_directories(dir_.path());
  }
}

TEST_F(FollowedTest, ARestartMakesTheSameBatchesWhateverTheNames) {
  write("m", 0, 64);
  const auto from = feed();
  const auto whole = batcher(files(from), {.global_batch = 16, .seed = 9}, 2);
  whole->make(3);
  write("a", 64, 64);  // by its name before the first
  std::vector<std::vector<int>> expected;
  for (std::uint64_t t = 0; t < 8; ++t) expected.push_back(rows_of(whole->make(t)));
  const std::string kept = text_of(from->taken());
  std::filesystem::remove(dir_.path() / "m");
  write("b", 128, 32);
  end();

  const auto again = feed(taken_files(kept));
  const auto resumed = batcher(files(again), {.global_batch = 16, .seed = 9}, 0);
  for (std::uint64_t t = 4; t < 8; ++t) EXPECT_EQ(rows_of(resumed->make(t)), expected[t]) << t;
  EXPECT_LT(127, std::ranges::min(rows_of(resumed->make(8))));
  EXPECT_EQ(resumed->cursor(5), whole->cursor(5));
  EXPECT_THAT(resumed->cursor(5), HasSubstr("ticket=5 row=80 batch=16 seed=9 stream="));
  EXPECT_EQ(Batcher::ticket_of(resumed->cursor(5)), 5U);

  std::vector<int> parts;
  for (int rank = 0; rank < 3; ++rank) {
    const auto worker =
        batcher(files(feed(taken_files(kept))), {.global_batch = 16, .rank = rank, .world = 3, .seed = 9});
    for (const int row : rows_of(worker->make(5))) parts.push_back(row);
  }
  EXPECT_EQ(parts, expected[5]) << "workers share the batch";
}

TEST_F(FollowedTest, AFileThatChangedSinceIsNamed) {
  write("a", 0, 64);
  const auto from = feed();
  batcher(files(from), {.global_batch = 16})->make(0);
  std::ofstream(dir_.path() / "a", std::ios::app) << "1\n2\n";
  EXPECT_ERROR(files(feed(from->taken())), DataLoss,
               testing::AllOf(HasSubstr("/a'"), HasSubstr("it had 64 rows, and has 66")));
}

TEST_F(FollowedTest, WithoutAnyRowIsRefused) {
  write("empty", 0, 0);
  end();
  EXPECT_ERROR(files(feed()), InvalidArgument, HasSubstr("no file with rows has come"));
}

}  // namespace
}  // namespace braid
