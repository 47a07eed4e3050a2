// Parts of files have the same bytes whichever way they are read; what goes wrong names file and byte.
#include "engine/input/files/file_reads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>
#include <random>
#include <thread>

#include "base/error.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

using testing::HasSubstr;

class FileReadsTest : public testing::TestWithParam<bool> {
 protected:
  FileReadsTest() : random_(7) {
    for (const std::size_t size :
         {std::size_t{0}, std::size_t{1}, std::size_t{4096}, std::size_t{100000}, std::size_t{3} << 20})
      contents_.push_back(made(size));
    for (std::size_t f = 0; f < contents_.size(); ++f) write(f);
  }

  std::vector<std::byte> made(std::size_t size) {
    std::vector<std::byte> bytes(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random_());
    return bytes;
  }
  std::filesystem::path path(std::size_t f) const { return dir_.path() / ("file" + std::to_string(f)); }
  void write(std::size_t f) const {
    std::ofstream(path(f), std::ios::binary)
        .write(reinterpret_cast<const char*>(contents_[f].data()),
               static_cast<std::streamsize>(contents_[f].size()));
  }
  std::size_t below(std::size_t bound) { return bound == 0 ? 0 : random_() % bound; }

  FileReadOptions options(std::size_t chunk = 8192, int depth = 4) const {
    FileReadOptions options;
    options.direct = GetParam();
    options.chunk_bytes = chunk;
    options.depth = depth;
    return options;
  }

  /// Extents, and their bytes.
  std::pair<std::vector<FileExtent>, std::vector<std::byte>> drawn() {
    std::pair<std::vector<FileExtent>, std::vector<std::byte>> all;
    std::uint64_t last_end = 0;
    std::size_t last = 0;
    for (std::size_t n = below(12); n > 0; --n) {
      const bool goes_on = !all.first.empty() && below(2) == 0;
      const std::size_t f = goes_on ? last : below(contents_.size());
      const std::vector<std::byte>& bytes = contents_[f];
      const std::uint64_t begin = goes_on ? last_end : below(bytes.size() + 1);
      const std::uint64_t end = begin + below(bytes.size() - begin + 1);
      all.first.push_back({path(f), begin, end});
      all.second.insert(all.second.end(), bytes.begin() + static_cast<std::ptrdiff_t>(begin),
                        bytes.begin() + static_cast<std::ptrdiff_t>(end));
      last = f;
      last_end = end;
    }
    return all;
  }

  /// In pieces of any size.
  void expect_read(ExtentReader& reader, std::span<const std::byte> expected, std::size_t most) {
    std::vector<std::byte> got(expected.size());
    for (std::size_t at = 0; at < got.size();) {
      const std::size_t n = std::min(got.size() - at, 1 + below(most));
      reader.read(std::span(got).subspan(at, n));
      at += n;
    }
    ASSERT_TRUE(std::ranges::equal(got, expected));
  }

  std::mt19937_64 random_;
  std::vector<std::vector<std::byte>> contents_;
  TempDir dir_;
};

TEST_P(FileReadsTest, GivesTheBytesOfRandomParts) {
  FileReads reads(options());
  const auto reader = reads.reader();
  std::uint64_t bytes = 0;
  for (int round = 0; round < 60; ++round) {
    const auto [extents, expected] = drawn();
    reader->begin(extents);
    expect_read(*reader, expected, round % 2 == 0 ? 100000 : 5000);
    bytes += expected.size();
  }
  EXPECT_GE(reads.totals().bytes, bytes);
  EXPECT_GT(reads.totals().seconds, 0);
  EXPECT_LE(reads.totals().direct_bytes, GetParam() ? reads.totals().bytes : 0);
}

TEST_P(FileReadsTest, DropsWhatNobodyHasRead) {
  FileReads reads(options());
  const auto reader = reads.reader();
  for (int round = 0; round < 20; ++round) {
    const auto [extents, expected] = drawn();
    reader->begin(extents);
    expect_read(*reader, std::span(expected).first(below(expected.size() + 1)), 30000);
  }
}

TEST_P(FileReadsTest, SeveralThreadsReadAtTheSameTime) {
  FileReads reads(options(std::size_t{64} << 10));
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < 40; ++i) {
        const std::size_t begin = random() % contents_[4].size();
        std::vector<std::byte> got(random() % (contents_[4].size() - begin));
        reads.read(path(4), begin, got);
        EXPECT_TRUE(
            std::equal(got.begin(), got.end(), contents_[4].begin() + static_cast<std::ptrdiff_t>(begin)));
      }
    });
}

TEST_P(FileReadsTest, AFileThatEndsBeforeIsToldWithItsPlace) {
  FileReads reads(options());
  const auto reader = reads.reader();
  for (const std::uint64_t size : {std::uint64_t{0}, std::uint64_t{4096}, std::uint64_t{50001}}) {
    std::filesystem::resize_file(path(3), size);
    reader->begin({{path(2), 0, 4096}, {path(3), 0, 100000}});
    std::vector<std::byte> got(104096);
    EXPECT_THAT(message_of<DataLoss>([&] { reader->read(got); }),
                testing::AllOf(HasSubstr(path(3).string()), HasSubstr("too soon")))
        << size;
  }
  const auto [extents, expected] =
      std::pair{std::vector<FileExtent>{{path(4), 5, 70000}}, std::span(contents_[4]).subspan(5, 69995)};
  reader->begin(extents);
  expect_read(*reader, expected, 10000);  // it reads on
}

TEST_P(FileReadsTest, AFileThatIsNotThereIsNamed) {
  FileReads reads(options());
  std::vector<std::byte> got(10);
  EXPECT_THAT(message_of<InvalidArgument>([&] { reads.read(dir_.path() / "none", 0, got); }),
              HasSubstr("none"));
}

TEST_P(FileReadsTest, AWaitHasADeadline) {
  FileReadOptions slow = options(std::size_t{1} << 20);
  slow.timeout = std::chrono::nanoseconds(1);
  FileReads reads(slow);
  const auto reader = reads.reader();
  int late = 0;
  for (int i = 0; i < 5; ++i) {
    reader->begin({{path(4), 0, contents_[4].size()}});
    std::vector<std::byte> got(contents_[4].size());
    try {
      reader->read(got);
      EXPECT_EQ(got, contents_[4]);
    } catch (const DeadlineExceeded& error) {
      ++late;
      EXPECT_THAT(std::string(error.message()), HasSubstr(path(4).string() + "' bytes"));
    }
  }
  if (!GetParam()) {
    EXPECT_EQ(late, 0) << "the page cache has no waits that end";
    return;
  }
  if (late == 0 && reads.totals().direct_bytes == 0) GTEST_SKIP() << "this file system has no direct reads";
  EXPECT_GT(late, 0);
}

/// As a container whose kernel has no io_uring for it.
TEST_P(FileReadsTest, WithoutAQueueOfTheKernelFilesAreReadThroughThePageCache) {
  FileReads reads(options());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{3, before.rlim_max};  // no descriptor for a queue
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const auto reader = reads.reader();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  reader->begin({{path(4), 5, 70000}});
  expect_read(*reader, std::span(contents_[4]).subspan(5, 69995), 10000);
  EXPECT_EQ(reads.totals().direct_bytes, 0U);
  EXPECT_EQ(reads.totals().bytes, 69995U);
}

INSTANTIATE_TEST_SUITE_P(Ways, FileReadsTest, testing::Bool(),
                         [](const auto& way) { return way.param ? "Direct" : "Cached"; });

}  // namespace
}  // namespace braid
