// Compatibility of graph.proto with files that TensorFlow has written.
#include <gmock/gmock.h>
#include <google/protobuf/unknown_field_set.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/files.h"
#include "engine/import/import.h"
#include "proto/graph.pb.h"
#include "tests/support/message_of.h"
#include "tests/support/outside_data.h"

namespace braid {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class GraphFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        fs::temp_directory_path() / (std::string("braid_") + info->name() + "_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path write(const std::string& name, const std::string& content) {
    std::ofstream(folder_ / name, std::ios::binary) << content;
    return folder_ / name;
  }
  static std::string error_of(const fs::path& file) {
    return message_of([&] { read_graph_file(file); });
  }

  fs::path folder_;
};

/// A length-delimited field of a message.
std::string field(int number, const std::string& bytes) {
  std::string text(1, static_cast<char>(number << 3 | 2));
  for (std::size_t size = bytes.size();; size >>= 7) {
    text += static_cast<char>((size & 0x7F) | (size > 0x7F ? 0x80 : 0));
    if (size <= 0x7F) break;
  }
  return text + bytes;
}

TEST_F(GraphFileTest, OpsThatPassesMakeAreRefused) {
  const fs::path file =
      write("own.pbtxt", "node { name: 'a' op: 'braid.PadGrad' } node { name: 'b' op: 'braid.Dropout' }");
  EXPECT_THAT(message_of([&] { read_graph_file(file); }),
              ::testing::AllOf(::testing::HasSubstr("1 nodes have ops that only Braid itself makes"),
                               ::testing::HasSubstr("[braid.PadGrad] node 'a'")));
}

TEST_F(GraphFileTest, TheGraphOfAMetaGraphOrASavedModelIsRead) {
  GraphDef graph;
  for (const char* name : {"x", "y"}) {
    NodeDef* node = graph.add_node();
    node->set_name(name);
    node->set_op("NoOp");
    (*node->mutable_attr())["text"].set_s(std::string(200, 'a'));
  }
  graph.mutable_library()->add_function()->mutable_signature()->set_name("f");
  // MetaGraphDef: meta_info_def 1, graph_def 2, saver_def 3. SavedModel: its schema version 1, meta graphs 2.
  const std::string meta = field(1, field(4, "serve") + field(5, "2.15.1")) +
                           field(2, graph.SerializeAsString()) + field(3, field(1, "save/Const:0"));
  const std::string saved = std::string("\x08\x01") + field(2, meta) + field(2, meta);
  const auto same = [&](const fs::path& file) {
    return google::protobuf::util::MessageDifferencer::Equals(read_graph_file(file), graph);
  };
  EXPECT_TRUE(same(write("model.meta", meta)));
  EXPECT_TRUE(same(write("saved_model.pb", saved)));
  EXPECT_TRUE(same(write("graph.pb", graph.SerializeAsString())));
  // The folder of a SavedModel is as good as its file; of several graphs the one for serving counts.
  const fs::path folder = write("saved_model.pb", saved).parent_path();
  EXPECT_TRUE(same(folder));
  GraphDef other = graph;
  other.mutable_node(0)->set_name("other");
  const auto tagged = [&](const char* tag, const GraphDef& of) {
    return field(2, field(1, field(4, tag) + field(5, "2.15.1")) + field(2, of.SerializeAsString()));
  };
  write("saved_model.pb", "\x08\x01" + tagged("train", other) + tagged("serve", graph));
  EXPECT_TRUE(same(folder));
  write("saved_model.pb", "\x08\x01" + tagged("train", other) + tagged("gpu", graph));
  EXPECT_THAT(message_of([&] { read_graph_file(folder); }),
              ::testing::AllOf(::testing::HasSubstr("none of the SavedModel's 2 graphs has the tag 'serve'"),
                               ::testing::HasSubstr("'train', 'gpu'")));
  fs::remove(folder / "saved_model.pb");
  EXPECT_THAT(message_of([&] { read_graph_file(folder); }), ::testing::HasSubstr("it has no saved_model.pb"));
  graph.mutable_node()->DeleteSubrange(1, 1);
  EXPECT_TRUE(same(write("one.pb", graph.SerializeAsString())));
  graph.clear_node();
  EXPECT_TRUE(same(write("library.pb", graph.SerializeAsString())));
}

// A field number that we have wrong parses as an unknown field.
bool has_unknown_fields(const google::protobuf::Message& message) {
  const auto* reflection = message.GetReflection();
  if (!reflection->GetUnknownFields(message).empty()) return true;
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection->ListFields(message, &fields);
  for (const auto* field : fields) {
    if (field->cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) continue;
    if (!field->is_repeated()) {
      if (has_unknown_fields(reflection->GetMessage(message, field))) return true;
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(message, field); ++i) {
      if (has_unknown_fields(reflection->GetRepeatedMessage(message, field, i))) return true;
    }
  }
  return false;
}

TEST_F(GraphFileTest, TensorFlowsBinaryAndTextFilesHoldTheSameNodes) {
  const fs::path graphs = outside_data("tf_graphs");
  SKIP_WITHOUT_OUTSIDE_DATA(graphs);
  int compared = 0;
  for (const auto& entry : fs::recursive_directory_iterator(graphs)) {
    if (entry.path().filename() != "frozen_model.pb") continue;
    const GraphDef binary = read_graph_file(entry.path());
    const GraphDef text = read_graph_file(entry.path().parent_path() / "frozen_graph.pbtxt");
    EXPECT_FALSE(has_unknown_fields(binary)) << entry.path();
    ASSERT_EQ(binary.node_size(), text.node_size()) << entry.path();
    for (int i = 0; i < binary.node_size(); ++i) {
      EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(binary.node(i), text.node(i)))
          << entry.path() << " node " << binary.node(i).name();
    }
    ++compared;
  }
  EXPECT_GE(compared, 51);
}

TEST_F(GraphFileTest, ATrainingGraphLoads) {
  const fs::path file = fs::path(BRAID_SOURCE_DIR) / "tests/engine/autodiff/golden/graph.pbtxt";
  const GraphDef graph = read_graph_file(file);
  EXPECT_EQ(graph.node_size(), 190);
  EXPECT_FALSE(has_unknown_fields(graph));
}

TEST_F(GraphFileTest, FilesRoundTripAndTheSameGraphGivesTheSameBytes) {
  // The attributes are a map: whoever wrote them in another order has the same graph.
  const auto graph_of = [](const std::vector<std::string>& keys) {
    GraphDef graph;
    NodeDef* node = graph.add_node();
    node->set_name("x");
    node->set_op("Placeholder");
    for (const std::string& key : keys) (*node->mutable_attr())[key].set_i(1);
    return graph;
  };
  const GraphDef graph = graph_of({"b", "a", "d", "c", "longer_than_the_others"});
  const GraphDef other = graph_of({"longer_than_the_others", "c", "d", "a", "b"});
  for (const char* name : {"g.pb", "g.pbtxt"}) {
    write_graph_file(graph, folder_ / name);
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(read_graph_file(folder_ / name), graph))
        << name;
    write_graph_file(other, folder_ / (std::string("again-") + name));
    EXPECT_EQ(read_file(folder_ / (std::string("again-") + name)), read_file(folder_ / name)) << name;
  }
}

TEST_F(GraphFileTest, ErrorsHaveFileAndLine) {
  const fs::path bad_text = write("bad.pbtxt", "node {\n  name: \"x\"\n  opp: \"Relu\"\n}\n");
  EXPECT_THAT(error_of(bad_text), HasSubstr(bad_text.string() + ":3:"));
  EXPECT_THAT(error_of(bad_text), HasSubstr("opp"));
  EXPECT_THAT(error_of(write("bad.pb", std::string("\x0a\xff\xff\x01\x02", 5))),
              HasSubstr("neither a binary nor a text"));
  EXPECT_THAT(error_of(write("model.keras", std::string("PK\x03\x04\xff", 5))),
              HasSubstr("a file of Keras has no graph: bd.io.keras"));
  EXPECT_THAT(error_of(write("empty.pb", "")), HasSubstr("is empty"));
  EXPECT_THAT(error_of(folder_ / "absent.pb"), HasSubstr("absent.pb"));
}

TEST_F(GraphFileTest, ContentDecidesNotTheName) {
  const fs::path file = write("text.pb", "# a comment\nnode { name: \"x\" op: \"NoOp\" }\n");
  EXPECT_EQ(read_graph_file(file).node(0).name(), "x");
}

}  // namespace
}  // namespace braid
