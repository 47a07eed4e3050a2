// TFRecord framing on real files of three writers, and on damage of every kind.
#include "engine/input/formats/tfrecord.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>
#include <random>

#include "base/error.h"
#include "base/files.h"
#include "tests/support/expect_error.h"
#include "tests/support/missing.h"
#include "tests/support/outside_data.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

std::vector<std::string> records_of(const fs::path& file) {
  std::vector<std::string> records;
  TfRecordReader reader(file);
  while (const auto record = reader.next()) records.emplace_back(*record);
  return records;
}

class TfRecordTest : public testing::Test {
 protected:
  fs::path write(const std::string& name, const std::vector<std::string>& records,
                 Compression compression = Compression::None) {
    TfRecordWriter writer(dir_.path() / name, compression);
    for (const auto& record : records) writer.write(record);
    writer.finish();
    return dir_.path() / name;
  }
  fs::path raw(const std::string& name, const std::string& bytes) {
    std::ofstream(dir_.path() / name, std::ios::binary) << bytes;
    return dir_.path() / name;
  }
  TempDir dir_;
};

TEST_F(TfRecordTest, EmptyLongAndBinaryRecordsComeBackInEveryPacking) {
  std::vector<std::string> records{"", std::string(1, '\0'), "abc", std::string(3'000'000, 'x')};
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    std::string& r = records.emplace_back(random() % 700, '\0');
    for (char& c : r) c = static_cast<char>(random());
  }
  for (const Compression packing : {Compression::None, Compression::Gzip, Compression::Zlib}) {
    const fs::path file = write(compression_name(packing), records, packing);
    EXPECT_TRUE(records_of(file) == records) << compression_name(packing);
    EXPECT_EQ(TfRecordReader(file).compression(), packing);
    EXPECT_TRUE(is_tfrecord_file(file));
  }
  EXPECT_TRUE(records_of(write("none", {})).empty());
}

TEST_F(TfRecordTest, TheFirstRecordOfAKnownFileHasTheBytesOfTheFormat) {
  // length 3, its masked CRC, "abc", its masked CRC; the CRCs computed with TensorFlow 2.15.
  EXPECT_EQ(read_file(write("known", {"abc"})),
            std::string("\x03\0\0\0\0\0\0\0", 8) + "\xb0\x99\x49\x0e" + "abc" + "\x6e\x57\xf1\x21");
}

TEST_F(TfRecordTest, RealFilesOfOtherWritersAreRead) {
  const fs::path root = outside_data("tfrecord");
  SKIP_WITHOUT_OUTSIDE_DATA(root);
  EXPECT_EQ(records_of(root / "deepctr_criteo/criteo_sample.tr.tfrecords").size(), 160U);
  EXPECT_EQ(records_of(root / "ecosystem_hadoop/part-m-00000").size(), 5U);
  EXPECT_EQ(records_of(root / "ecosystem_hadoop/part-m-00000.gz"),
            records_of(root / "ecosystem_hadoop/part-m-00000"));
  EXPECT_EQ(records_of(root / "tfx_penguin/Split-train-00000-of-00001.gz").size(), 234U);
}

TEST_F(TfRecordTest, GzipMembersOneAfterTheOtherAreOneFile) {
  const std::string first = read_file(write("a", {"one", "two"}, Compression::Gzip));
  const std::string second = read_file(write("b", {"three"}, Compression::Gzip));
  EXPECT_EQ(records_of(raw("both", first + second)), (std::vector<std::string>{"one", "two", "three"}));
  EXPECT_EQ(records_of(raw("padded", first + std::string(512, '\0'))).size(), 2U);
  EXPECT_ERROR(records_of(raw("tail", first + "tail")), DataLoss, HasSubstr("damaged gzip data after"));
}

TEST_F(TfRecordTest, EveryCutIsNoticedWithItsRecordAndByte) {
  const std::string whole = read_file(write("whole", {"first", "second"}));
  for (std::size_t size = 1; size < whole.size(); ++size) {
    SCOPED_TRACE(size);
    const fs::path cut = raw("cut", whole.substr(0, size));
    if (size == 16 + 5) {
      EXPECT_EQ(records_of(cut).size(), 1U) << "a cut between two records is a shorter file";
      continue;
    }
    EXPECT_ERROR(records_of(cut), DataLoss,
                 AllOf(HasSubstr("cut' record " + std::string(size < 21 ? "1 at byte 0" : "2 at byte 21")),
                       HasSubstr("truncated")));
  }
  const std::string packed = read_file(write("packed", {"first", "second"}, Compression::Gzip));
  for (std::size_t size = 12; size < packed.size(); ++size)
    EXPECT_ERROR(records_of(raw("cut", packed.substr(0, size))), DataLoss, HasSubstr("gzip data ends early"));
}

TEST_F(TfRecordTest, EveryFlippedBitIsNoticed) {
  const std::string whole = read_file(write("whole", {"first", "second"}));
  for (std::size_t byte = 0; byte < whole.size(); ++byte)
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = whole;
      damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << bit));
      EXPECT_THROW(records_of(raw("damaged", damaged)), DataLoss) << byte << "." << bit;
    }
}

TEST_F(TfRecordTest, AfterAWrongDataCrcTheNextRecordIsReadAfterAWrongLengthNone) {
  std::string bytes = read_file(write("x", {"first", "second", "third"}));
  bytes[12] = 'F';
  {
    TfRecordReader reader(raw("data", bytes));
    EXPECT_ERROR(reader.next(), DataLoss, HasSubstr("record 1 at byte 0: the CRC of its 5 bytes of data"));
    EXPECT_TRUE(reader.can_go_on());
    EXPECT_EQ(reader.next(), "second");
    EXPECT_EQ(reader.number(), 2);
    EXPECT_EQ(reader.offset(), 21U);
  }
  bytes[21] = 'x';
  TfRecordReader reader(raw("length", bytes));
  EXPECT_THROW(reader.next(), DataLoss);
  EXPECT_ERROR(reader.next(), DataLoss, HasSubstr("record 2 at byte 21: the CRC of its length"));
  EXPECT_FALSE(reader.can_go_on());
  EXPECT_EQ(reader.next(), std::nullopt);
}

TEST_F(TfRecordTest, OtherFilesAreNotTakenForTfRecords) {
  EXPECT_FALSE(is_tfrecord_file(raw("text", "label,I1,I2\n1,2,3\n")));
  EXPECT_FALSE(is_tfrecord_file(raw("short", "abc")));
  EXPECT_FALSE(is_tfrecord_file(raw("empty", "")));
  EXPECT_ERROR(records_of(raw("text", "label,I1,I2\n1,2,3\n")), DataLoss, HasSubstr("not a TFRecord file"));
  // A length of 376 bytes begins with the two bytes of a zlib header.
  std::string damaged = read_file(write("long", {std::string(376, 'x')}));
  damaged[8] ^= 1;
  EXPECT_ERROR(records_of(raw("bad", damaged)), DataLoss, HasSubstr("the CRC of its length"));
  EXPECT_ERROR(records_of(dir_.path() / "none"), InvalidArgument, HasSubstr("No such file"));
  EXPECT_ERROR(records_of(dir_.path()), InvalidArgument, HasSubstr("directory"));
}

TEST_F(TfRecordTest, AnUnfinishedFileLeavesNothing) {
  { TfRecordWriter(dir_.path() / "left").write("abc"); }
  EXPECT_TRUE(fs::is_empty(dir_.path()));
  EXPECT_ERROR(TfRecordWriter(dir_.path() / "none/file"), InvalidArgument,
               AllOf(HasSubstr("cannot write"), HasSubstr("none/file")));
  EXPECT_ERROR(TfRecordWriter{dir_.path()}, InvalidArgument, HasSubstr("it is a directory"));
}

TEST_F(TfRecordTest, AFullDiskIsSaidWithThePath) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << missing::kDevFull;
  // The temporary name is a link to /dev/full, so that every write fails as on a full disk.
  fs::create_symlink("/dev/full", dir_.path() / (".tmp-full-" + std::to_string(::getpid())));
  TfRecordWriter writer(dir_.path() / "full");
  writer.write("abc");
  EXPECT_ERROR(writer.finish(), Unavailable, AllOf(HasSubstr("full"), HasSubstr("No space left")));
}

}  // namespace
}  // namespace braid
