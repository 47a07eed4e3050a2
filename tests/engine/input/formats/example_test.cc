// tf.train.Example against protobuf's own code for the same messages, on records of other writers and on
// noise.
#include "engine/input/formats/example.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/formats/proto_wire.h"
#include "engine/input/formats/tfrecord.h"
#include "proto/example.pb.h"
#include "tests/support/expect_error.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

void expect_same(const ExampleReader& got, const proto::Example& expected) {
  ASSERT_EQ(got.features().size(), static_cast<std::size_t>(expected.features().feature_size()));
  for (const auto& [name, feature] : expected.features().feature()) {
    const Feature* found = got.find(name);
    ASSERT_NE(found, nullptr) << name;
    switch (feature.kind_case()) {
      case proto::Feature::kBytesList:
        ASSERT_EQ(found->kind, FeatureKind::Bytes);
        EXPECT_THAT(got.bytes(*found), testing::ElementsAreArray(feature.bytes_list().value()));
        break;
      case proto::Feature::kFloatList:
        ASSERT_EQ(found->kind, FeatureKind::Float);
        EXPECT_THAT(got.floats(*found), testing::ElementsAreArray(feature.float_list().value()));
        break;
      case proto::Feature::kInt64List:
        ASSERT_EQ(found->kind, FeatureKind::Int64);
        EXPECT_THAT(got.ints(*found), testing::ElementsAreArray(feature.int64_list().value()));
        break;
      default:
        EXPECT_EQ(found->kind, FeatureKind::None);
    }
  }
}

proto::Example random_example(std::mt19937& random) {
  proto::Example example;
  auto& features = *example.mutable_features()->mutable_feature();
  for (std::uint32_t f = random() % 6; f > 0; --f) {
    proto::Feature& feature = features["feature" + std::to_string(random() % 9)];
    const std::uint32_t count = random() % 5;
    switch (random() % 4) {
      case 0:
        feature.mutable_bytes_list();
        for (std::uint32_t i = 0; i < count; ++i)
          feature.mutable_bytes_list()->add_value(std::string(random() % 300, 'b'));
        break;
      case 1:
        feature.mutable_float_list();
        for (std::uint32_t i = 0; i < count; ++i)
          feature.mutable_float_list()->add_value(static_cast<float>(random()) * 1e-3F);
        break;
      case 2:
        feature.mutable_int64_list();
        for (std::uint32_t i = 0; i < count; ++i)
          feature.mutable_int64_list()->add_value(
              static_cast<std::int64_t>(std::uint64_t{random()} << (random() % 33)) - 5);
        break;
      default:
        break;
    }
  }
  return example;
}

TEST(ExampleTest, ReadsWhatProtobufWrites) {
  std::mt19937 random(3);
  ExampleReader reader;
  for (int i = 0; i < 2000; ++i) {
    const proto::Example example = random_example(random);
    const std::string record = example.SerializeAsString();
    reader.parse(record);
    expect_same(reader, example);
  }
}

TEST(ExampleTest, ProtobufReadsWhatItWrites) {
  ExampleWriter writer;
  for (int round = 0; round < 2; ++round) {
    writer.add("text", std::vector<std::string_view>{"a", "", "long"});
    writer.add("number", std::vector<float>{1.5F, -2});
    writer.add("id", std::vector<std::int64_t>{-1, 0, std::int64_t{1} << 62});
    writer.add("empty", std::vector<float>{});
    const std::string record(writer.finish());
    proto::Example example;
    ASSERT_TRUE(example.ParseFromString(record));
    EXPECT_EQ(example.features().feature_size(), 4);
    EXPECT_TRUE(example.features().feature().at("empty").has_float_list());
    ExampleReader reader;
    reader.parse(record);
    expect_same(reader, example);
  }
}

TEST(ExampleTest, NumbersThatAreNotPackedAreRead) {
  std::string ints, floats, feature, entry, features, record;
  put_varint_field(ints, 1, 7);
  put_varint_field(ints, 1, static_cast<std::uint64_t>(-3));
  put_fixed32_field(floats, 1, 0x40490FDB);
  put_bytes_field(feature, 3, ints);
  put_bytes_field(entry, 1, "i");
  put_bytes_field(entry, 2, feature);
  put_bytes_field(features, 1, entry);
  feature.clear();
  entry.clear();
  put_bytes_field(feature, 2, floats);
  put_bytes_field(entry, 2, feature);  // the value in front of the key
  put_bytes_field(entry, 1, "f");
  put_bytes_field(features, 1, entry);
  put_bytes_field(record, 1, features);
  ExampleReader reader;
  reader.parse(record);
  EXPECT_THAT(reader.ints(*reader.find("i")), ElementsAre(7, -3));
  EXPECT_THAT(reader.floats(*reader.find("f")), ElementsAre(3.14159274F));
}

TEST(ExampleTest, OfEqualNamesTheLastCounts) {
  ExampleWriter writer;
  writer.add("x", std::vector<std::int64_t>{1});
  writer.add("y", std::vector<std::int64_t>{2});
  writer.add("x", std::vector<std::int64_t>{3});
  const std::string record(writer.finish());
  ExampleReader reader;
  for (int round = 0; round < 2; ++round) {
    reader.parse(record);
    EXPECT_EQ(reader.features().size(), 2U);
    EXPECT_THAT(reader.ints(*reader.find("x")), ElementsAre(3));
  }
}

TEST(ExampleTest, TheLayoutChangesWithNamesAndOrder) {
  const auto record = [](std::vector<const char*> names) {
    ExampleWriter writer;
    for (const char* name : names) writer.add(name, std::vector<float>{1});
    return std::string(writer.finish());
  };
  const std::string ab = record({"a", "b"}), ba = record({"b", "a"}), a = record({"a"});
  ExampleReader reader;
  reader.parse(ab);
  const auto first = reader.layout();
  reader.parse(ab);
  EXPECT_EQ(reader.layout(), first);
  reader.parse(ba);
  EXPECT_NE(reader.layout(), first);
  const auto second = reader.layout();
  reader.parse(a);
  EXPECT_NE(reader.layout(), second);
}

TEST(ExampleTest, ListsOfFeaturesOfASequence) {
  proto::SequenceExample sequence;
  (*sequence.mutable_context()->mutable_feature())["user"].mutable_int64_list()->add_value(5);
  auto& list = (*sequence.mutable_feature_lists()->mutable_feature_list())["clicks"];
  for (int step = 0; step < 3; ++step) {
    auto* values = list.add_feature()->mutable_int64_list();
    for (int i = 0; i < step; ++i) values->add_value(10 * step + i);
  }
  const std::string record = sequence.SerializeAsString();
  ExampleReader reader;
  reader.parse(record);
  EXPECT_EQ(reader.find("user")->steps, std::nullopt);
  EXPECT_EQ(reader.find("clicks")->steps, 3);
  EXPECT_THAT(reader.ints(*reader.find("clicks")), ElementsAre(10, 20, 21));
}

TEST(ExampleTest, AContextAndAListMayHaveOneName) {
  proto::SequenceExample sequence;
  (*sequence.mutable_context()->mutable_feature())["x"].mutable_int64_list()->add_value(5);
  auto& list = (*sequence.mutable_feature_lists()->mutable_feature_list())["x"];
  list.add_feature()->mutable_float_list()->add_value(0.5F);
  const std::string record = sequence.SerializeAsString();
  ExampleReader reader;
  reader.parse(record);
  ASSERT_EQ(reader.features().size(), 2U);
  EXPECT_THAT(reader.ints(*reader.find("x")), ElementsAre(5)) << "the context counts";
}

TEST(ExampleTest, DamageIsRefusedWithItsByteAndNoiseNeverCrashes) {
  ExampleWriter writer;
  writer.add("name", std::vector<float>{1, 2});
  const std::string record(writer.finish());
  ExampleReader reader;
  EXPECT_ERROR(reader.parse(record.substr(0, 9)), DataLoss,
               testing::AllOf(HasSubstr("not a tf.train.Example"), HasSubstr("byte 2")));
  EXPECT_ERROR(reader.parse("\x0A\x05hello"), DataLoss, HasSubstr("byte"));
  std::mt19937 random(5);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = record;
    for (std::uint32_t flips = 1 + random() % 3; flips > 0; --flips)
      damaged[random() % damaged.size()] = static_cast<char>(random());
    try {
      reader.parse(damaged);
    } catch (const DataLoss&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

/// Written by golden/make_records.py.
TEST(ExampleTest, RecordsThatTensorFlowWroteHaveTheirValues) {
  std::ifstream golden(std::filesystem::path(BRAID_SOURCE_DIR) / "tests/engine/input/golden/examples.json");
  const auto recorded = nlohmann::json::parse(golden);
  const TempDir dir;
  for (const char* packing : {"plain", "gzip"}) {
    std::ofstream(dir.path() / packing, std::ios::binary) << from_hex(recorded[packing]);
    TfRecordReader records(dir.path() / packing);
    ExampleReader reader;
    for (const auto& expected : recorded["records"]) {
      const auto record = records.next();
      ASSERT_TRUE(record.has_value()) << packing;
      reader.parse(*record);
      std::vector<std::int64_t> ids;
      for (const std::string id : expected["id"]) ids.push_back(std::stoll(id));
      EXPECT_THAT(reader.ints(*reader.find("id")), testing::ElementsAreArray(ids)) << packing;
      EXPECT_THAT(reader.floats(*reader.find("score")),
                  testing::ElementsAreArray(expected["score"].get<std::vector<float>>()));
      EXPECT_THAT(reader.bytes(*reader.find("word")),
                  testing::ElementsAreArray(expected["word"].get<std::vector<std::string>>()));
    }
    EXPECT_FALSE(records.next().has_value()) << packing;
  }
}

}  // namespace
}  // namespace braid
