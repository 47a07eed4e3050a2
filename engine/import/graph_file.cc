// Files of graphs: binary and text GraphDef, told apart by their content.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/formats/proto_wire.h"
#include "engine/import/import.h"
#include "engine/import/text_functions.h"
#include "engine/ir/op.h"
#include "proto/graph.pb.h"

namespace braid {

namespace {

constexpr std::size_t kSniffedBytes = 64 * 1024;

// A binary GraphDef has field tags among the control characters within its first node; text has none of them.
bool looks_like_text(const std::string& content) {
  const auto end = content.begin() + static_cast<std::ptrdiff_t>(std::min(content.size(), kSniffedBytes));
  return std::all_of(content.begin(), end, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 || byte == '\n' || byte == '\r' || byte == '\t';
  });
}

/// The graph inside of a MetaGraphDef (field 2), as TensorFlow 1 writes beside checkpoints; nothing for
/// another message. The same bytes read as a GraphDef have one node at most, and nothing that is a function.
std::optional<GraphDef> graph_of_meta(std::string_view message) {
  std::string_view inside;
  int graphs = 0, firsts = 0;
  try {
    for (WireReader reader(message); reader.next();) {
      if (reader.is(1, WireType::Bytes)) ++firsts;
      if (!reader.is(2, WireType::Bytes)) continue;
      ++graphs;
      inside = reader.bytes();
    }
    if (graphs != 1 || firsts > 1) return std::nullopt;
    WireReader first(inside);  // of a graph, a node: its name and its op are text
    if (!first.next() || !first.is(1, WireType::Bytes)) return std::nullopt;
    int names = 0;
    for (WireReader node = first.message(); node.next();)
      names += (node.is(1, WireType::Bytes) || node.is(2, WireType::Bytes)) && !node.bytes().empty() &&
               static_cast<unsigned char>(node.bytes()[0]) >= ' ';
    if (names != 2) return std::nullopt;
  } catch (const DataLoss&) {
    return std::nullopt;
  }
  GraphDef graph;
  if (!graph.ParseFromArray(inside.data(), static_cast<int>(inside.size()))) return std::nullopt;
  return graph;
}

/// The tags of a MetaGraphDef: field 4 of its field 1.
std::vector<std::string> tags_of_meta(std::string_view message) {
  std::vector<std::string> tags;
  for (WireReader reader(message); reader.next();) {
    if (!reader.is(1, WireType::Bytes)) continue;
    for (WireReader info = reader.message(); info.next();)
      if (info.is(4, WireType::Bytes)) tags.emplace_back(info.bytes());
  }
  return tags;
}

/// The graph of the MetaGraphDef that a SavedModel has for serving, or of its only one. Throws:
/// InvalidArgument when there are several and none of them is for serving.
std::optional<GraphDef> graph_of_saved_model(std::string_view message, const std::filesystem::path& file) {
  std::vector<std::string_view> metas;
  std::string all_tags;
  try {
    WireReader reader(message);
    if (!reader.next() || !reader.is(1, WireType::Varint)) return std::nullopt;
    while (reader.next()) {
      if (!reader.is(2, WireType::Bytes)) continue;
      const std::vector<std::string> tags = tags_of_meta(reader.bytes());
      if (std::find(tags.begin(), tags.end(), "serve") != tags.end()) return graph_of_meta(reader.bytes());
      metas.push_back(reader.bytes());
      for (const std::string& tag : tags) all_tags += (all_tags.empty() ? "'" : ", '") + tag + "'";
    }
    if (metas.empty()) return std::nullopt;
    if (metas.size() == 1) return graph_of_meta(metas[0]);
  } catch (const DataLoss&) {
    return std::nullopt;
  }
  throw InvalidArgument(file.string() + ": none of the SavedModel's " + std::to_string(metas.size()) +
                        " graphs has the tag 'serve'; their tags: " + (all_tags.empty() ? "none" : all_tags));
}

class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, int column, const std::string& message) override {
    if (text_.empty()) text_ = std::to_string(line + 1) + ":" + std::to_string(column + 1) + ": " + message;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// Ops that Braid's passes and gradients make, e.g. braid.PadGrad, trust those who make them, so graphs from
/// outside cannot have them, except those that models write (OpDef::in_files).
void refuse_own_ops(const GraphDef& graph, const std::filesystem::path& file) {
  std::string refused;
  int count = 0;
  const auto look = [&](const NodeDef& node) {
    const OpDef* op = OpRegistry::global().find(node.op());
    if (!node.op().starts_with("braid.") || (op && op->in_files)) return;
    constexpr int kShown = 5;
    if (++count <= kShown) refused += "\n  [" + node.op() + "] node '" + node.name() + "'";
  };
  for (const NodeDef& node : graph.node()) look(node);
  for (const auto& function : graph.library().function())
    for (const NodeDef& node : function.node_def()) look(node);
  if (count > 0)
    throw InvalidArgument(file.string() + ": " + std::to_string(count) +
                          " nodes have ops that only Braid itself makes, in memory:" + refused);
}

/// What to do with a file in which other programs keep weights or code.
std::string hint_for(const std::filesystem::path& file) {
  const std::string ending = file.extension().string();
  if (ending == ".keras" || ending == ".h5" || ending == ".hdf5")
    return ": a file of Keras has no graph: bd.io.keras(keras.models.load_model(...)) trains the model, and "
           "model.export(folder) writes its graph";
  if (ending == ".pt" || ending == ".pth" || ending == ".pt2" || ending == ".safetensors" ||
      ending == ".ckpt")
    return ": a file of PyTorch has no graph: bd.io.torch(torch.export.export(...)) trains the model, and "
           "torch.onnx.export writes its graph";
  return {};
}

GraphDef parsed_graph_file(const std::filesystem::path& path) {
  std::filesystem::path file = path;
  if (std::filesystem::is_directory(path)) {
    file /= "saved_model.pb";
    if (!std::filesystem::exists(file))
      throw InvalidArgument(path.string() +
                            ": a folder, but not that of a SavedModel: it has no saved_model.pb");
  }
  const std::string content = read_file(file);
  if (content.empty()) throw InvalidArgument(file.string() + ": the file is empty");
  GraphDef graph;
  if (looks_like_text(content)) {
    FirstError error;
    google::protobuf::TextFormat::Parser parser;
    parser.RecordErrorsTo(&error);
    if (!parser.ParseFromString(content, &graph)) throw InvalidArgument(file.string() + ":" + error.text());
  } else if (std::optional<GraphDef> meta = graph_of_meta(content)) {
    return *std::move(meta);
  } else if (std::optional<GraphDef> saved = graph_of_saved_model(content, file)) {
    return *std::move(saved);
  } else if (!graph.ParseFromString(content)) {
    throw InvalidArgument(file.string() + ": neither a binary nor a text GraphDef" + hint_for(file));
  }
  return graph;
}

}  // namespace

GraphDef read_graph_file(const std::filesystem::path& path) {
  GraphDef graph = parsed_graph_file(path);
  refuse_own_ops(graph, path);
  hoist_text_functions(graph);
  return graph;
}

void write_graph_file(const GraphDef& graph, const std::filesystem::path& file) {
  std::string content;
  if (file.extension() == ".pbtxt") {
    google::protobuf::TextFormat::PrintToString(graph, &content);
  } else {
    google::protobuf::io::StringOutputStream stream(&content);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);  // attributes are a map: the same graph gives the same bytes
    graph.SerializeToCodedStream(&coded);
  }
  write_file_atomically(file, content);
}

}  // namespace braid
