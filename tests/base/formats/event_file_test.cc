#include "base/formats/event_file.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <cstring>
#include <limits>

#include "base/crc32c.h"
#include "base/files.h"
#include "base/formats/proto_wire.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

using ::testing::HasSubstr;

template <class T>
T number_at(const std::string& bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

/// The records of a file whose CRCs all fit.
std::vector<std::string> records_of(const std::string& bytes) {
  const auto crc = [](const std::string& of) { return crc32c_mask(crc32c(std::as_bytes(std::span(of)))); };
  std::vector<std::string> records;
  for (std::size_t at = 0; at < bytes.size();) {
    const auto length = number_at<std::uint64_t>(bytes, at);
    EXPECT_EQ(number_at<std::uint32_t>(bytes, at + 8), crc(bytes.substr(at, 8)));
    records.push_back(bytes.substr(at + 12, length));
    EXPECT_EQ(number_at<std::uint32_t>(bytes, at + 12 + length), crc(records.back()));
    at += length + 16;
  }
  return records;
}

class EventFileTest : public ::testing::Test {
 protected:
  EventFileTest() {
    file_.scalar("loss", 1, 0.5);
    file_.scalar("loss", 7, 0.25);
    const std::vector<float> values{-1, 0, 0.5F, 0.5F, 2, std::numeric_limits<float>::quiet_NaN()};
    file_.histogram("dense/kernel", 7, values);
    file_.histogram("empty", 7, {});
    file_.text("job", "name: \"x\"");
    file_.graph({{"a", "Placeholder", "", {}}, {"b", "MatMul", "/stream:compute0", {"a"}}});
    file_.hyper_parameters({{"learning_rate", 0.01}}, {{"optimizer", "ADAM"}});
  }
  TempDir directory_;
  EventFile file_{directory_.path() / "events"};
};

TEST_F(EventFileTest, RecordsAreFramedAndTheFirstSaysTheVersion) {
  const std::vector<std::string> records = records_of(read_file(file_.path()));
  ASSERT_EQ(records.size(), 8U);
  EXPECT_THAT(records[0], HasSubstr("brain.Event:2"));
  WireReader event(records[2]);
  std::uint64_t step = 0;
  while (event.next())
    if (event.is(2, WireType::Varint)) step = event.varint();
  EXPECT_EQ(step, 7U);
  EXPECT_THAT(file_.path().filename().string(), ::testing::StartsWith("events.out.tfevents."));
}

TEST_F(EventFileTest, TensorBoardReadsIt) {
  const char* given = std::getenv("BRAID_PYTHON");
  const std::string python = given ? given : "python3";
  if (std::system((python + " -c 'import tensorboard' 2>/dev/null").c_str()) != 0)
    GTEST_SKIP() << python << " has no tensorboard: python3 -m venv V && V/bin/pip install tensorboard, then "
                 << "BRAID_PYTHON=V/bin/python";
  const std::string command = python + " " BRAID_SOURCE_DIR "/tests/base/formats/read_events.py " +
                              file_.path().parent_path().string();
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace braid
