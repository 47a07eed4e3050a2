// What is read of .meta files and SavedModels beside the graph.
#include "engine/import/meta_graph.h"

#include <gmock/gmock.h>

#include "base/files.h"
#include "base/formats/proto_wire.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/graph_text.h"
#include "tests/support/temp_dir.h"

namespace braid {
namespace {

using ::testing::ElementsAre;

std::string bytes_field(int field, std::string_view bytes) {
  std::string out;
  put_bytes_field(out, field, bytes);
  return out;
}

std::string entry(int field, std::string_view key, std::string_view value) {
  return bytes_field(field, bytes_field(1, key) + bytes_field(2, value));
}

std::string names(std::initializer_list<std::string> values) {
  std::string list;
  for (const std::string& value : values) list += bytes_field(1, value);
  return list;
}

std::string meta_graph() {
  const std::string info = bytes_field(4, "serve");
  const GraphDef graph = parse_graph(node("a", "NoOp", ""));
  std::string meta = bytes_field(1, info) + bytes_field(2, graph.SerializeAsString());
  meta += bytes_field(3, bytes_field(1, "save/Const:0") + bytes_field(3, "save/restore_all"));
  meta += entry(4, "update_ops", bytes_field(1, names({"bn/AssignSub"})));
  const std::string variable = bytes_field(1, "w:0") + bytes_field(6, "w/zeros:0");
  meta += entry(4, "trainable_variables", bytes_field(2, names({variable})));
  meta += entry(4, "local_variables", bytes_field(2, names({bytes_field(1, "count:0")})));
  meta += entry(5, "train",
                entry(1, "x", bytes_field(1, "train_x:0")) + entry(2, "loss", bytes_field(1, "out:1")));
  return meta;
}

void expect_facts(const MetaGraphFacts& facts) {
  EXPECT_THAT(facts.update_ops, ElementsAre("bn/AssignSub"));
  ASSERT_TRUE(facts.trainable);
  EXPECT_THAT(*facts.trainable, ElementsAre("w"));
  EXPECT_EQ(facts.initial_values.at("w"), "w/zeros:0");
  EXPECT_THAT(facts.local_variables, ElementsAre("count"));
  EXPECT_EQ(facts.saver_filename, "save/Const:0");
  EXPECT_EQ(facts.restore_op, "save/restore_all");
  EXPECT_EQ(facts.signatures.at("train").inputs.at("x"), "train_x:0");
  EXPECT_EQ(facts.signatures.at("train").outputs.at("loss"), "out:1");
}

TEST(MetaGraphTest, AMetaFileHasCollectionsSignaturesAndASaver) {
  const TempDir dir;
  write_file_atomically(dir.path() / "model.meta", meta_graph());
  const auto facts = read_meta_facts(dir.path() / "model.meta");
  ASSERT_TRUE(facts);
  expect_facts(*facts);
  EXPECT_TRUE(facts->variables.empty());
}

TEST(MetaGraphTest, ASavedModelHasTheSameAndItsVariables) {
  const TempDir dir;
  std::string saved;
  put_varint_field(saved, 1, 1);
  make_directories(dir.path() / "variables");
  write_file_atomically(dir.path() / "saved_model.pb", saved + bytes_field(2, meta_graph()));
  write_file_atomically(dir.path() / "variables" / "variables.index", "");
  const auto facts = read_meta_facts(dir.path());
  ASSERT_TRUE(facts);
  expect_facts(*facts);
  EXPECT_EQ(facts->variables, dir.path() / "variables" / "variables");
}

TEST(MetaGraphTest, ObjectsSayWhichVariablesAreTrained) {
  const TempDir dir;
  const auto object = [](std::string_view name, bool trained) {
    std::string variable;
    if (trained) put_varint_field(variable, 3, 1);
    return bytes_field(1, bytes_field(7, variable + bytes_field(6, name)));
  };
  const GraphDef graph = parse_graph(node("a", "NoOp", ""));
  write_file_atomically(dir.path() / "m.meta",
                        bytes_field(2, graph.SerializeAsString()) +
                            bytes_field(7, object("kernel", true) + object("mean", false)));
  EXPECT_THAT(*read_meta_facts(dir.path() / "m.meta")->trainable, ElementsAre("kernel"));
}

TEST(MetaGraphTest, APlainGraphHasNone) {
  const TempDir dir;
  const GraphDef graph = parse_graph(node("a", "NoOp", ""));
  write_file_atomically(dir.path() / "g.pb", graph.SerializeAsString());
  EXPECT_FALSE(read_meta_facts(dir.path() / "g.pb"));
  write_file_atomically(dir.path() / "g.pbtxt", "node { name: 'a' op: 'NoOp' }");
  EXPECT_FALSE(read_meta_facts(dir.path() / "g.pbtxt"));
}

TEST(MetaGraphTest, DamageIsNoReasonToFail) {
  const TempDir dir;
  const std::string whole = meta_graph();
  for (std::size_t size = 1; size < whole.size(); size += 7) {
    write_file_atomically(dir.path() / "cut.meta", whole.substr(0, size));
    EXPECT_NO_THROW(read_meta_facts(dir.path() / "cut.meta")) << size;
  }
}

}  // namespace
}  // namespace braid
