#include "worker/model/initial_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "base/formats/npy.h"
#include "base/formats/tensor_bundle.h"
#include "base/formats/zip.h"
#include "engine/import/convert.h"
#include "engine/import/import.h"
#include "engine/ir/op.h"
#include "proto/job.pb.h"
#include "worker/model/def_graph.h"
#include "worker/model/partitioned.h"
#include "worker/model/run_graph.h"

namespace braid::worker {
namespace {

// ------------------------------------------------------------------------------------------ what is
// recognised

std::optional<float> known_number(const Graph& graph, ValueRef value) {
  const Tensor* known = graph.known_value(value);
  if (!known || known->elements() != 1) return std::nullopt;
  if (known->dtype() == DType::Float32) return known->data<float>()[0];
  if (known->dtype() == DType::Float64) return static_cast<float>(known->data<double>()[0]);
  return std::nullopt;
}

ValueRef behind_identities(const Graph& graph, ValueRef value) {
  while (graph.node(value.node).op->name == "Identity") value = graph.node(value.node).inputs[0];
  return value;
}

std::optional<InitKind> drawn_kind(std::string_view op) {
  if (op.starts_with("Stateless")) op.remove_prefix(std::string_view("Stateless").size());
  if (op.ends_with("V2")) op.remove_suffix(2);
  if (op == "RandomUniform") return InitKind::Uniform;
  if (op == "RandomStandardNormal" || op == "RandomNormal") return InitKind::Normal;
  if (op == "TruncatedNormal") return InitKind::TruncatedNormal;
  return std::nullopt;
}

/// x * scale + shift.
struct Affine {
  ValueRef x;
  float scale = 1, shift = 0;
};

/// One step from the result towards what is drawn.
std::optional<Affine> one_step(const Graph& graph, const Affine& from) {
  const Node& node = graph.node(from.x.node);
  const std::string& op = node.op->name;
  const bool adds = op == "Add" || op == "AddV2", multiplies = op == "Mul", subtracts = op == "Sub";
  if (!adds && !multiplies && !subtracts) return std::nullopt;
  for (std::size_t side = 0; side < 2; ++side) {
    const auto number = known_number(graph, node.inputs[side]);
    if (!number || (subtracts && side == 0)) continue;
    Affine next = from;
    next.x = behind_identities(graph, node.inputs[1 - side]);
    if (multiplies)
      next.scale *= *number;
    else
      next.shift += from.scale * (subtracts ? -*number : *number);
    return next;
  }
  return std::nullopt;
}

InitSpec constant_spec(float value) {
  return value == 0 ? InitSpec{} : InitSpec{InitKind::Constant, value, 0};
}

}  // namespace

std::optional<InitSpec> recognised_init(const Tensor& tensor) {
  const auto alike = [&]<class T>(T) -> std::optional<InitSpec> {
    const auto values = tensor.data<T>();
    if (values.empty()) return InitSpec{};
    if (!std::all_of(values.begin(), values.end(), [&](T v) { return v == values[0]; })) return std::nullopt;
    const auto number = static_cast<float>(values[0]);
    return static_cast<T>(number) == values[0] ? std::optional(constant_spec(number)) : std::nullopt;
  };
  switch (tensor.dtype()) {
    case DType::Float32:
      return alike(float{});
    case DType::Float64:
      return alike(double{});
    case DType::Int32:
      return alike(std::int32_t{});
    case DType::Int64:
      return alike(std::int64_t{});
    case DType::Bool:
      return alike(bool{});
    default:
      return std::nullopt;
  }
}

std::optional<InitSpec> recognised_init(const Graph& graph, ValueRef value) {
  value = behind_identities(graph, value);
  const Node& node = graph.node(value.node);
  if (const Tensor* known = graph.known_value(value))
    if (const auto rule = recognised_init(*known)) return rule;
  if (node.op->name == "Const") return recognised_init(node.attrs.require<Tensor>("value"));
  if (node.op->name == "ZerosLike") return InitSpec{};
  if (node.op->name == "Fill") {
    const Tensor* number = graph.known_value(node.inputs[1]);
    return number ? recognised_init(*number) : std::nullopt;
  }
  if (graph.info(value).dtype != DType::Float32) return std::nullopt;
  Affine at{value};
  while (const auto next = one_step(graph, at)) at = *next;
  const auto kind = drawn_kind(graph.node(at.x.node).op->name);
  if (!kind) return std::nullopt;
  if (*kind == InitKind::Uniform)
    return InitSpec{*kind, std::min(at.shift, at.shift + at.scale), std::max(at.shift, at.shift + at.scale)};
  return InitSpec{*kind, at.shift, std::abs(at.scale)};
}

namespace {

// --------------------------------------------------------------------------------------------------- from
// files

Tensor tensor_of(DType dtype, const std::vector<std::int64_t>& shape, const std::vector<std::byte>& bytes) {
  Tensor tensor(dtype, Shape(shape));
  if (tensor.bytes() == bytes.size()) std::memcpy(tensor.raw(), bytes.data(), bytes.size());
  return tensor;
}

std::map<std::string, Tensor> read_npz(const std::filesystem::path& file) {
  std::map<std::string, Tensor> values;
  const ZipReader zip(file);
  for (const ZipEntry& entry : zip.entries()) {
    std::string name = entry.name;
    if (!name.ends_with(".npy")) continue;
    name.resize(name.size() - 4);
    const NpyArray array = parse_npy(zip.read(entry), file.string() + ": " + entry.name);
    if (dtype_size(array.dtype) > 0) values.emplace(name, tensor_of(array.dtype, array.shape, array.data));
  }
  return values;
}

std::map<std::string, Tensor> read_bundle(const std::filesystem::path& prefix) {
  std::map<std::string, Tensor> values;
  const TensorBundleReader reader(prefix);
  constexpr std::string_view kValue = "/.ATTRIBUTES/VARIABLE_VALUE";  // of tf.train.Checkpoint
  for (const auto& [key, entry] : reader.entries()) {
    if (dtype_size(entry.dtype) == 0) continue;
    const std::string name = key.ends_with(kValue) ? key.substr(0, key.size() - kValue.size()) : key;
    values.emplace(name, tensor_of(entry.dtype, entry.shape, reader.read(key)));
  }
  return values;
}

/// What the saver of the graph restores from the checkpoint: it knows which of its entries is which variable.
std::map<std::string, Tensor> restored(const ModelFile& file, const std::filesystem::path& prefix) {
  GraphDef graph = file.graph;
  const ValueName name = parse_value_name(file.facts.saver_filename);
  const NodeIndex index(graph);
  const int place = index.place(name.node);
  const std::string restore = parse_value_name(file.facts.restore_op).node;
  if (place < 0 || !index.find(restore)) return {};
  NodeDef* source = graph.mutable_node(place);
  const Tensor text = Tensor::strings(Shape{}, std::vector<std::string>{prefix.string()});
  source->set_op("Const");
  source->clear_input();
  source->clear_attr();
  (*source->mutable_attr())["dtype"] = to_proto(Attr(DType::String));
  (*source->mutable_attr())["value"] = to_proto(Attr(text));
  return variables_after(import_graph(graph, file.source, {.roots = {restore}}), restore);
}

std::map<std::string, Tensor> read_stored(const ModelFile& file, const std::filesystem::path& from) {
  if (from.extension() == ".npz") return read_npz(from);
  std::map<std::string, Tensor> values = read_bundle(from);
  if (file.facts.restore_op.empty() || from != file.facts.variables) return values;
  for (auto& [name, value] : restored(file, from)) values.insert_or_assign(name, std::move(value));
  return values;
}

/// Assignments that depend on nothing outside of the graph: variable -> the value that is assigned.
std::map<std::string, std::string> find_initializers(const ModelFile& file) {
  const NodeIndex index(file.graph);
  std::map<std::string, std::string> found = file.facts.initial_values;
  for (const NodeDef& node : file.graph.node()) {
    if ((node.op() != "Assign" && node.op() != "AssignVariableOp") || node.input_size() < 2) continue;
    const NodeDef* variable = variable_of(index, node);
    if (!variable) continue;
    const std::string name = variable_name(*variable);
    const auto above = index.above({node.input(1)});
    const bool plain = std::none_of(above.begin(), above.end(), [&](const NodeDef* one) {
      return one->op().starts_with("Placeholder") || one->op().starts_with("Restore") ||
             one->op().starts_with("Iterator") || (is_variable(*one) && variable_name(*one) == name);
    });
    if (plain) found.emplace(name, node.input(1));
  }
  return found;
}

}  // namespace

std::map<std::string, Tensor> saved_variables(const std::string& graph_file) {
  std::error_code unreadable;  // is for who loads it to tell
  if (!std::filesystem::is_directory(graph_file, unreadable)) return {};
  const ModelFile file = read_model_file(graph_file);
  return file.facts.variables.empty() ? std::map<std::string, Tensor>()
                                      : read_stored(file, file.facts.variables);
}

InitialValues::InitialValues(const proto::TrainedGraph& asked, const ModelFile& file, std::uint64_t seed)
    : file_(file), seed_(seed) {
  if (asked.initial() != proto::TrainedGraph::GRAPH) {
    stored_in_ = asked.initial_file().empty() ? file.facts.variables.string() : asked.initial_file();
    if (!stored_in_.empty()) stored_ = read_stored(file, stored_in_);
    add_parts(file.graph, stored_);
    is_named_ = !asked.initial_file().empty();
  }
  if (asked.initial() != proto::TrainedGraph::FILE) initializers_ = find_initializers(file);
}

std::string InitialValues::lacking(const std::vector<std::string>& variables, Problems& problems) const {
  if (!is_named_) return "";
  std::vector<std::string> missing, there;
  for (const std::string& name : variables)
    if (!stored_.contains(name)) missing.push_back(name);
  if (missing.empty()) return "";
  std::sort(missing.begin(), missing.end());
  const bool has_any = std::any_of(
      file_.graph.node().begin(), file_.graph.node().end(),
      [&](const NodeDef& node) { return is_variable(node) && stored_.contains(variable_name(node)); });
  if (has_any || missing.size() < variables.size())
    return fmt::format(
        "model.graph.initial_file '{}' has no value for {} of {} variables, which begin as the graph says: "
        "{}",
        stored_in_, missing.size(), variables.size(), quoted_list(missing));
  for (const auto& [name, value] : stored_) there.push_back(name);
  problems.add(
      fmt::format("model.graph.initial_file '{}' has a value for none of the variables {}: it has {}",
                  stored_in_, quoted_list(missing), there.empty() ? "none" : quoted_list(there)));
  return "";
}

std::optional<Tensor> InitialValues::stored(const VariableInfo& variable, Problems& problems) const {
  const auto at = stored_.find(variable.name);
  if (at == stored_.end()) return std::nullopt;
  const Tensor& value = at->second;
  if (value.dtype() == variable.dtype && value.shape() == variable.shape) return value;
  problems.add(fmt::format("variable '{}' is {} {}, and {} {} in '{}'", variable.name,
                           dtype_name(variable.dtype), variable.shape.to_string(), dtype_name(value.dtype()),
                           value.shape().to_string(), stored_in_));
  return value;
}

std::optional<std::string> InitialValues::initializer_of(const std::string& variable) const {
  const auto at = initializers_.find(variable);
  return at == initializers_.end() ? std::nullopt : std::optional(at->second);
}

std::optional<InitialValue> InitialValues::value_of(const VariableInfo& variable, Problems& problems) const {
  if (auto value = stored(variable, problems)) return *std::move(value);
  const auto initializer = initializer_of(variable.name);
  if (!initializer) {
    problems.add(fmt::format(
        "variable '{}' has no initial value{}: initial_file: a TensorFlow checkpoint or .npz with '{}'",
        variable.name, stored_in_.empty() ? "" : " in '" + stored_in_ + "'", variable.name));
    return std::nullopt;
  }
  try {
    const Graph graph = import_graph(file_.graph, file_.source, {.roots = {*initializer}});
    const ValueRef value = graph.parse_value(*initializer);
    const auto spec = recognised_init(graph, value);
    const bool can_be_made = variable.dtype == DType::Float32 || !spec || spec->kind <= InitKind::Constant;
    if (spec && can_be_made) return *spec;
    return run_graph(graph, {*initializer}, seed_).at(0);
  } catch (const InvalidArgument& error) {
    problems.add(
        fmt::format("variable '{}': its initializer '{}' cannot be run ({}): initial_file: a "
                    "checkpoint with its values",
                    variable.name, *initializer, error.message()));
    return std::nullopt;
  }
}

std::optional<float> InitialValues::constant_of(const std::string& variable) const {
  const auto constant = [](const std::optional<InitSpec>& spec) -> std::optional<float> {
    if (!spec || spec->kind > InitKind::Constant) return std::nullopt;
    return spec->kind == InitKind::Zeros ? 0.0F : spec->a;
  };
  const auto initializer = initializer_of(variable);
  if (!initializer) {
    const auto at = stored_.find(variable);
    return at == stored_.end() ? std::nullopt : constant(recognised_init(at->second));
  }
  try {
    const Graph graph = import_graph(file_.graph, file_.source, {.roots = {*initializer}});
    return constant(recognised_init(graph, graph.parse_value(*initializer)));
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
}

}  // namespace braid::worker
