#include "engine/import/onnx/parameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <sstream>

namespace braid::onnx {
namespace {

constexpr const char* kKind = "pkg.torch.export.graph_signature.InputSpec.kind";
constexpr const char* kSignature = "pkg.torch.export.ExportedProgram.graph_signature";
constexpr const char* kFolded = "pkg.onnxscript.optimizer.folded_from";

/// Inputs, by place, that are settings of an operator.
const std::map<std::string, std::vector<int>> kSettings{
    {"BatchNormalization", {3, 4}},
    {"Clip", {1, 2}},
    {"DequantizeLinear", {1}},
    {"Dropout", {1}},
    {"NegativeLogLikelihoodLoss", {2}},
    {"OneHot", {2}},
    {"Pad", {2}},
    {"QuantizeLinear", {1}},
    {"Resize", {1, 2}},
    {"SoftmaxCrossEntropyLoss", {2}},
    {"Upsample", {1}},
};

/// Inputs that are weights of an operator.
const std::map<std::string, std::vector<int>> kWeights{
    {"Conv", {1}},   {"ConvTranspose", {1}}, {"Gemm", {0, 1}},   {"Gather", {0}},
    {"GRU", {1, 2}}, {"LSTM", {1, 2}},       {"MatMul", {0, 1}}, {"RNN", {1, 2}},
};

using Names = std::set<std::string>;

/// Inputs of the nodes of the graph at the places that `places` says.
Names inputs_at(const ModelProto& model, const std::map<std::string, std::vector<int>>& places) {
  Names names;
  for (const NodeProto& node : model.graph().node()) {
    const auto of = places.find(node.op_type());
    if (of == places.end()) continue;
    for (const int place : of->second)
      if (place < node.input_size()) names.insert(node.input(place));
  }
  return names;
}

/// Texts of a list of Python's, "['a', 'b']".
Names texts_of(const std::string& list) {
  Names texts;
  for (std::size_t at = list.find('\''); at != std::string::npos;) {
    const std::size_t end = list.find('\'', at + 1);
    if (end == std::string::npos) break;
    texts.insert(list.substr(at + 1, end - at - 1));
    at = list.find('\'', end + 1);
  }
  return texts;
}

/// What PyTorch's newer exporter says of the program.
class Program {
 public:
  explicit Program(const ModelProto& model) {
    for (const StringStringEntryProto& entry : model.graph().metadata_props())
      if (entry.key() == kSignature) read_signature(entry.value());
    for (const auto* values : {&model.graph().value_info(), &model.graph().input()})
      for (const ValueInfoProto& value : *values)
        for (const StringStringEntryProto& entry : value.metadata_props()) {
          if (entry.key() == kKind && entry.value() == "PARAMETER") parameters_.insert(value.name());
          if (entry.key() == kFolded) folded_[value.name()] = texts_of(entry.value());
        }
  }

  bool speaks() const { return !parameters_.empty(); }
  const Names& parameters() const { return parameters_; }
  /// The parameters that the exporter has computed an initializer of.
  Names folded_into(const std::string& initializer) const {
    Names names;
    if (const auto at = folded_.find(initializer); at != folded_.end())
      std::set_intersection(at->second.begin(), at->second.end(), parameters_.begin(), parameters_.end(),
                            std::inserter(names, names.end()));
    return names;
  }

 private:
  /// Lines as "p_fc_weight: PARAMETER target='fc.weight'".
  void read_signature(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      if (line.find(": PARAMETER target=") != std::string::npos) parameters_.merge(texts_of(line));
  }

  Names parameters_;
  std::map<std::string, Names> folded_;  // values -> what they were computed of
};

/// A buffer that a module of torch.nn has beside its parameters.
bool is_buffer_of_torch(const std::string& name) { return name.ends_with("pos_weight"); }

/// A name that parameters of torch.nn's modules have.
bool is_parameter_of_torch(const std::string& name) {
  constexpr std::array kParts{"weight", "bias", "original0", "original1", "onnx::", "::"};
  return std::any_of(kParts.begin(), kParts.end(),
                     [&](const char* part) { return name.find(part) != std::string::npos; });
}

std::string some_of(const Names& names) {
  constexpr std::size_t kMost = 4;
  std::vector<std::string> first;
  for (const std::string& name : names)
    if (first.size() < kMost) first.push_back("'" + name + "'");
  return fmt::format("{}{}", fmt::join(first, ", "), names.size() > kMost ? ", ..." : "");
}

/// What PyTorch's exporter says that the node was, or "":
/// "%abs_1 : [...] = call_function[target=torch.ops.aten.abs.default](args = (%detach,), kwargs = {})".
std::string_view call_of(const NodeProto& node) {
  for (const StringStringEntryProto& entry : node.metadata_props())
    if (entry.key() == "pkg.torch.onnx.fx_node") return entry.value();
  return {};
}

/// The values named detach, detach_1, ... that a call takes.
std::vector<std::string> detached_arguments(std::string_view call) {
  constexpr std::string_view kMark = "%detach";
  std::vector<std::string> names;
  for (std::size_t at = call.find("](args = "); (at = call.find(kMark, at)) != std::string_view::npos;) {
    const std::string_view name = call.substr(at + 1, call.find_first_of(",)]", at) - at - 1);
    at += kMark.size();
    const std::string_view number = name.substr(kMark.size() - 1);
    if (number.empty() || (number.starts_with('_') && number.size() > 1 &&
                           number.find_first_not_of("0123456789", 1) == std::string_view::npos))
      names.emplace_back(name);
  }
  return names;
}

/// The first node that reads a detached value which no node gives; null if there is none.
const NodeProto* reads_lost_detach(const ModelProto& model) {
  std::set<std::string> given;
  for (const NodeProto& node : model.graph().node())
    for (const std::string& output : node.output()) given.insert(output);
  for (const NodeProto& node : model.graph().node())
    for (const std::string& name : detached_arguments(call_of(node)))
      if (!given.contains(name)) return &node;
  return nullptr;
}

std::string name_of(const NodeProto& node) {
  return node.name().empty() && node.output_size() > 0 ? node.output(0) : node.name();
}

void remark_on_normalisation(const ModelProto& model, std::vector<std::string>& remarks) {
  std::int64_t opset = 14;
  for (const OperatorSetIdProto& set : model.opset_import())
    if (set.domain().empty() || set.domain() == "ai.onnx") opset = set.version();
  int count = 0;
  std::string first;
  for (const NodeProto& node : model.graph().node())
    if (node.op_type() == "BatchNormalization" && !normalises_by_batch(node, opset) && count++ == 0)
      first = name_of(node);
  if (count == 0) return;
  remarks.push_back(fmt::format(
      "{} BatchNormalization, first '{}', {} exported for inference: {} use the statistics that the file "
      "has, and training does not change them. PyTorch exports them for training with "
      "torch.onnx.export(..., training=TrainingMode.TRAINING, dynamo=False)",
      count, first, count == 1 ? "node was" : "nodes were", count == 1 ? "it will" : "they will"));
}

/// What the optimizer of PyTorch's exporter makes of parameters.
void remark_on_parameters(const ModelProto& model, const Program& program,
                          std::vector<std::string>& remarks) {
  Names made, used;
  for (const TensorProto& initializer : model.graph().initializer()) {
    const Names of = program.folded_into(initializer.name());
    if (!of.empty()) made.insert(initializer.name());
    used.insert(of.begin(), of.end());
    used.insert(initializer.name());
  }
  Names missing;
  std::set_difference(program.parameters().begin(), program.parameters().end(), used.begin(), used.end(),
                      std::inserter(missing, missing.end()));
  constexpr const char* kKeeps = "torch.onnx.export(..., optimize=False) keeps the program's parameters";
  if (!made.empty())
    remarks.push_back(
        fmt::format("the exporter has computed {} initializers of parameters, and these are trained in their "
                    "place: {}. {}",
                    made.size(), some_of(made), kKeeps));
  if (!missing.empty())
    remarks.push_back(fmt::format(
        "{} of the program's {} parameters are not in the file, as the exporter has joined those of equal "
        "values, or computed with them: what is trained is another model than the program's. Missing: {}. {}",
        missing.size(), program.parameters().size(), some_of(missing), kKeeps));
}

void remark_on_constants(const ModelProto& model, std::vector<std::string>& remarks) {
  const Names weights = inputs_at(model, kWeights);
  Names found;
  for (const NodeProto& node : model.graph().node()) {
    if (node.op_type() != "Constant" || node.output_size() == 0 || !weights.contains(node.output(0)))
      continue;
    for (const AttributeProto& attribute : node.attribute())
      if (attribute.name() == "value" && attribute.t().data_type() == TensorProto::FLOAT &&
          attribute.t().dims_size() > 0)
        found.insert(node.output(0));
  }
  if (!found.empty())
    remarks.push_back(fmt::format(
        "{} weights are nodes of Constant, which are not trained: {}. promote is a pattern of those that "
        "should be",
        found.size(), some_of(found)));
}

void remark_on_lost_detach(const ModelProto& model, std::vector<std::string>& remarks) {
  if (const NodeProto* node = reads_lost_detach(model))
    remarks.push_back(fmt::format(
        "node '{}' reads a value that the program detached, but the exporter has removed the mark: gradients "
        "pass there, as they do not in PyTorch. torch.onnx.export(..., optimize=False) keeps it",
        name_of(*node)));
}

}  // namespace

bool is_detach(const NodeProto& node) {
  return call_of(node).find("[target=torch.ops.aten.detach.") != std::string_view::npos;
}

bool normalises_by_batch(const NodeProto& node, std::int64_t opset) {
  const auto number = [&](const char* name) {
    for (const AttributeProto& attribute : node.attribute())
      if (attribute.name() == name) return attribute.i();
    return std::int64_t{0};
  };
  if (opset >= 14) return number("training_mode") != 0;
  if (opset < 7) return number("is_test") == 0;
  return node.output_size() > 1;
}

std::set<std::string> parameters_of(const ModelProto& model) {
  const Program program(model);
  const Names settings = inputs_at(model, kSettings);
  const bool of_pytorch = model.producer_name() == "pytorch";
  Names names;
  for (const TensorProto& initializer : model.graph().initializer()) {
    const std::string& name = initializer.name();
    if (settings.contains(name)) continue;
    const bool is_parameter = program.speaks()
                                  ? program.parameters().contains(name) || !program.folded_into(name).empty()
                              : of_pytorch ? !is_buffer_of_torch(name)
                                           : !initializer.dims().empty();
    if (is_parameter) names.insert(name);
  }
  return names;
}

std::vector<std::string> remarks_on_training(const ModelProto& model) {
  std::vector<std::string> remarks;
  remark_on_normalisation(model, remarks);
  remark_on_lost_detach(model, remarks);
  const Program program(model);
  if (program.speaks()) remark_on_parameters(model, program, remarks);
  if (!program.speaks() && model.producer_name() == "pytorch") {
    Names doubtful;
    for (const std::string& name : parameters_of(model))
      if (!is_parameter_of_torch(name)) doubtful.insert(name);
    const auto& tensors = model.graph().initializer();
    std::erase_if(doubtful, [&](const std::string& name) {
      const auto at =
          std::find_if(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name() == name; });
      return at->data_type() != TensorProto::FLOAT;
    });
    if (!doubtful.empty())
      remarks.push_back(fmt::format(
          "the file does not say whether {} are parameters or buffers: they are trained. `frozen` keeps "
          "buffers as they are",
          some_of(doubtful)));
  }
  remark_on_constants(model, remarks);
  return remarks;
}

}  // namespace braid::onnx
