#include "base/files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <thread>

#include "tests/support/expect_error.h"
#include "tests/support/missing.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::span<const std::byte> text_bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(FilesTest, ReadsBackWhatWasWritten) {
  TempDir dir;
  const auto path = dir.path() / "a";
  const std::string content("line\nwith a \0 byte", 18);
  write_file_atomically(path, content);
  EXPECT_EQ(read_file(path), content);
  write_file_atomically(path, "");
  EXPECT_EQ(read_file(path), "");
  EXPECT_EQ(list_directory(dir.path()), (std::vector<std::filesystem::path>{"a"}));  // no temporary is left
}

TEST(FilesTest, ReadersSeeTheOldContentOrTheNewWhileManyWrite) {
  TempDir dir;
  const auto path = dir.path() / "state";
  write_file_atomically(path, std::string(5000, 'a'));
  std::vector<std::thread> writers;
  for (char c : {'b', 'c', 'd'})
    writers.emplace_back([&, c] {
      for (int i = 0; i < 20; ++i) write_file_atomically(path, std::string(5000, c));
    });
  for (int i = 0; i < 200; ++i) {
    const std::string seen = read_file(path);
    ASSERT_EQ(seen, std::string(5000, seen.at(0)));
  }
  for (std::thread& writer : writers) writer.join();
}

TEST(FilesTest, ErrorsOfReadingNameThePath) {
  TempDir dir;
  EXPECT_ERROR(read_file(dir.path() / "none"), InvalidArgument,
               AllOf(HasSubstr("cannot open '" + (dir.path() / "none").string()), HasSubstr("No such file")));
  EXPECT_ERROR(read_file(dir.path()), InvalidArgument, HasSubstr("Is a directory"));
  ASSERT_EQ(::mkfifo((dir.path() / "pipe").c_str(), 0600), 0);
  EXPECT_ERROR(read_file(dir.path() / "pipe"), InvalidArgument, HasSubstr("pipe': it is a pipe"));
  EXPECT_ERROR(list_directory(dir.path() / "none"), InvalidArgument, HasSubstr("none"));
}

TEST(FilesTest, AFileThatEndsTooSoonIsDataLoss) {
  TempDir dir;
  write_file_atomically(dir.path() / "short", "12345");
  const File file = File::open(dir.path() / "short");
  std::vector<std::byte> out(10);
  EXPECT_ERROR(file.read_at(2, out), DataLoss, HasSubstr("ends at byte 5, 7 bytes too soon"));
}

TEST(FilesTest, AFullDiskIsUnavailableAndNamesTheByte) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << missing::kDevFull;
  File full = File::create("/dev/full");
  EXPECT_ERROR(full.write(text_bytes("x")), Unavailable,
               AllOf(HasSubstr("'/dev/full' at byte 0"), HasSubstr("No space left on device")));
}

TEST(FilesTest, AFailedAtomicWriteKeepsTheOldContent) {
  TempDir dir;
  std::filesystem::create_directory(dir.path() / "taken");  // a file cannot be renamed over a directory
  EXPECT_ERROR(write_file_atomically(dir.path() / "taken", "x"), Unavailable, HasSubstr("taken"));
  EXPECT_EQ(list_directory(dir.path()), (std::vector<std::filesystem::path>{"taken"}));
  EXPECT_ERROR(write_file_atomically(dir.path() / "none/file", "x"), Unavailable, HasSubstr("No such file"));
}

TEST(FilesTest, DirectoriesAreMadeListedGlobbedAndRemoved) {
  TempDir dir;
  make_directories(dir.path() / "x/y");
  make_directories(dir.path() / "x/y");
  for (const char* name : {"b.csv", "a.csv", "c.txt"}) write_file_atomically(dir.path() / "x" / name, name);
  EXPECT_EQ(list_directory(dir.path() / "x"),
            (std::vector<std::filesystem::path>{"a.csv", "b.csv", "c.txt", "y"}));
  EXPECT_EQ(glob((dir.path() / "x/*.csv").string()),
            (std::vector<std::filesystem::path>{dir.path() / "x/a.csv", dir.path() / "x/b.csv"}));
  EXPECT_TRUE(glob((dir.path() / "x/*.bin").string()).empty());
  rename_path(dir.path() / "x/y", dir.path() / "z");
  sync_directory(dir.path());
  remove_tree(dir.path() / "x");
  remove_tree(dir.path() / "x");
  EXPECT_EQ(list_directory(dir.path()), (std::vector<std::filesystem::path>{"z"}));
}

TEST(FilesTest, MovingAFileMovesItsDescriptor) {
  TempDir dir;
  File a = File::create(dir.path() / "a");
  File b = std::move(a);
  b.write(text_bytes("12"));
  b.write(text_bytes("34"));
  b.sync();
  EXPECT_EQ(b.size(), 4U);
  b.close();
  EXPECT_EQ(read_file(dir.path() / "a"), "1234");
}

}  // namespace
}  // namespace braid
