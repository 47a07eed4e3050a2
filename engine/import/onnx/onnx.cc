#include "engine/import/onnx/onnx.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "engine/import/onnx/body_values.h"
#include "engine/import/onnx/names.h"
#include "engine/import/onnx/node.h"
#include "engine/import/onnx/parameters.h"
#include "engine/import/onnx/tensors.h"

namespace braid {
namespace {

using onnx::Builder;
using onnx::clean_name;
using onnx::Val;

Shape shape_of_type(const onnx::TypeProto& type) {
  if (!type.tensor_type().has_shape()) return Shape::unknown_rank();
  std::vector<std::int64_t> dims;
  for (const auto& dim : type.tensor_type().shape().dim())
    dims.push_back(dim.has_dim_value() && dim.dim_value() >= 0 ? dim.dim_value() : Shape::kUnknown);
  return Shape(std::move(dims));
}

std::string full_name(const onnx::NodeProto& node) {
  const bool own = node.domain().empty() || node.domain() == "ai.onnx";
  return own ? node.op_type() : node.domain() + ":" + node.op_type();
}

class Importer : public onnx::Surroundings {
 public:
  Importer(const onnx::ModelProto& model, std::filesystem::path folder, const OnnxInputShapes& shapes,
           OwnNodes own, OnnxUse use)
      : model_(model),
        folder_(std::move(folder)),
        shapes_(shapes),
        use_(use),
        names_(model),
        builder_(names_.all(), own == OwnNodes::Made) {}

  OnnxImport run() {
    read_opsets();
    const std::set<std::string> parameters = onnx::parameters_of(model_);
    for (const auto& initializer : model_.graph().initializer()) {
      add(initializer.name(), "initializer", [&] { return builder_.constant(read_weights(initializer)); });
      const Val& value = values_.at(initializer.name());
      if (value && is_floating(value.dtype()) && parameters.contains(initializer.name()))
        result_.parameters.push_back(names_.of(initializer.name()));
    }
    for (const auto& initializer : model_.graph().sparse_initializer()) {
      const std::string& name = initializer.values().name();
      add(name, "initializer",
          [&] { return builder_.constant(onnx::read_sparse_tensor(initializer, folder_)); });
    }
    for (const auto& input : model_.graph().input()) add_input(input);
    for (const auto& node : model_.graph().node()) translate(node);
    result_.remarks = onnx::remarks_on_training(model_);
    result_.nodes = model_.graph().node_size();
    for (const auto& output : model_.graph().output()) add_output(output.name());
    for (const auto& [name, next] : statistics_)
      result_.statistics.push_back({names_.of(name), next ? builder_.name_of(next) : std::string()});
    result_.graph = builder_.finish();
    return std::move(result_);
  }

  std::vector<onnx::BodyValue> translate_body(const onnx::GraphProto& body,
                                              const std::vector<onnx::BodyValue>& arguments,
                                              const onnx::Taken* taken) override {
    if (static_cast<std::size_t>(body.input_size()) != arguments.size())
      throw InvalidArgument("a body has another number of inputs");
    const Scope outside(*this);
    if (taken != nullptr) gate_values_around(body, *taken);
    for (const auto& initializer : body.initializer())
      values_[initializer.name()] = builder_.constant(onnx::read_tensor(initializer, folder_));
    for (std::size_t i = 0; i < arguments.size(); ++i)
      set(body.input(static_cast<int>(i)).name(), arguments[i]);
    ++depth_;
    for (const auto& node : body.node()) {
      builder_.set_scope(outside.name());
      translate(node);
    }
    std::vector<onnx::BodyValue> results;
    for (const auto& output : body.output()) results.push_back(get(output.name()));
    return results;
  }

  const std::filesystem::path& folder() const override { return folder_; }

  bool found_training() override {
    result_.trains = true;
    return use_ == OnnxUse::Inference;
  }

  bool keep_statistic(const std::string& name, Val next) override {
    const auto& initializers = model_.graph().initializer();
    const bool known =
        depth_ == 0 && std::any_of(initializers.begin(), initializers.end(), [&](const auto& one) {
          return one.name() == name && one.data_type() == onnx::TensorProto::FLOAT;
        });
    if (known) statistics_[name] = next;
    return known;
  }

  const onnx::Sequence* find_sequence(const std::string& name) const override {
    const auto it = sequences_.find(name);
    return it == sequences_.end() ? nullptr : &it->second;
  }

 private:
  static constexpr int kMaxDepth = 64;
  static constexpr int kMaxTranslated = 1 << 18;

  /// The values that are known around a body, and where its nodes are; they are so again at the end, also
  /// after an error.
  class Scope {
   public:
    explicit Scope(Importer& importer)
        : importer_(importer),
          values_(importer.values_),
          sequences_(importer.sequences_),
          opsets_(importer.opsets_),
          name_(importer.builder_.scope()),
          depth_(importer.depth_) {}
    ~Scope() {
      importer_.values_ = std::move(values_);
      importer_.sequences_ = std::move(sequences_);
      importer_.opsets_ = std::move(opsets_);
      importer_.builder_.set_scope(std::move(name_));
      importer_.depth_ = depth_;
    }
    Scope(const Scope&) = delete;
    const std::string& name() const { return name_; }

   private:
    Importer& importer_;
    std::map<std::string, Val> values_;
    std::map<std::string, onnx::Sequence> sequences_;
    std::map<std::string, int> opsets_;
    std::string name_;
    int depth_;
  };

  Tensor read_weights(const onnx::TensorProto& initializer) {
    if (!onnx::is_four_bit(initializer)) return onnx::read_tensor(initializer, folder_);
    four_bit_.insert(initializer.name());
    return onnx::read_four_bit_tensor(initializer, folder_);
  }

  void set(const std::string& name, const onnx::BodyValue& value) {
    values_[name] = value.tensor;
    sequences_.erase(name);
    if (value.sequence) sequences_[name] = *value.sequence;
  }

  /// The value of a node, which has its name unless it is in a body.
  void set_result(const std::string& name, onnx::BodyValue value) {
    if (value.tensor && depth_ == 0) value.tensor = builder_.named(value.tensor, names_.of(name));
    set(name, value);
  }

  onnx::BodyValue get(const std::string& name) const {
    const auto value = values_.find(name);
    const onnx::Sequence* sequence = find_sequence(name);
    return {value == values_.end() ? Val() : value->second,
            sequence ? std::optional(*sequence) : std::nullopt};
  }

  void read_opsets() {
    for (const auto& set : model_.opset_import())
      opsets_[set.domain() == "ai.onnx" ? "" : set.domain()] = static_cast<int>(set.version());
  }

  void report(const std::string& node, const std::string& op, const std::string& reason) {
    result_.problems.push_back({node, op, reason});
  }

  template <class Make>
  void add(const std::string& name, const char* what, Make make) {
    if (values_.contains(name)) return;
    try {
      builder_.set_scope(names_.of(name));
      values_[name] = builder_.named(make(), names_.of(name));
    } catch (const InvalidArgument& error) {
      report(name, what, error.message());
      values_[name] = Val();
    } catch (const OutOfMemory& error) {
      report(name, what, error.message());
      values_[name] = Val();
    }
  }

  void add_input(const onnx::ValueInfoProto& input) {
    const bool given = values_.contains(input.name());  // an initializer is its default
    add(input.name(), "input", [&] {
      if (!input.type().has_tensor_type()) throw InvalidArgument("only tensors are supported");
      return builder_.op("Placeholder", {},
                         {{"dtype", onnx::dtype_of_onnx(input.type().tensor_type().elem_type())},
                          {"shape", shape_of_input(input)}});
    });
    const Val value = values_.at(input.name());
    if (value && !given) result_.inputs.push_back({names_.of(input.name()), value.dtype(), value.shape()});
  }

  Shape shape_of_input(const onnx::ValueInfoProto& input) const {
    const Shape declared = shape_of_type(input.type());
    const auto given = shapes_.find(names_.of(input.name()));
    if (given == shapes_.end()) return declared;
    Shape both;
    if (!merge_shapes(declared, given->second, both))
      throw InvalidArgument(fmt::format("it is to have shape {}, the model says {}",
                                        given->second.to_string(), declared.to_string()));
    return both;
  }

  void translate(const onnx::NodeProto& proto) {
    const auto used = std::find_if(proto.output().begin(), proto.output().end(),
                                   [](const std::string& output) { return !output.empty(); });
    const std::string first = used == proto.output().end() ? proto.op_type() : *used;
    const std::string name = proto.name().empty() ? first : proto.name();
    const std::string op = full_name(proto);
    bool broken = false;
    try {
      if (++translated_ > kMaxTranslated)
        throw InvalidArgument(fmt::format("loops and functions make more than {} nodes", kMaxTranslated));
      if (depth_ > kMaxDepth) throw InvalidArgument("bodies and functions are nested too deep");
      std::vector<Val> inputs;
      for (const std::string& input : proto.input()) {
        if (four_bit_.contains(input) && op != "DequantizeLinear")
          throw InvalidArgument("of 4-bit integers only DequantizeLinear is supported");
        const auto it = values_.find(input);
        if (!input.empty() && it == values_.end())
          throw InvalidArgument("its input '" + input + "' does not exist");
        inputs.push_back(input.empty() ? Val() : it->second);
        broken = broken || (!input.empty() && !it->second && !sequences_.contains(input));
      }
      if (const onnx::FunctionProto* function = find_function(proto)) {
        if (broken) return mark_broken(proto);
        return call(*function, proto);
      }
      const onnx::Translate translate = onnx::Translations::all().find(op);
      if (!translate) throw InvalidArgument("the op is not supported");
      if (broken) return mark_broken(proto);
      const std::string domain = proto.domain() == "ai.onnx" ? "" : proto.domain();
      const auto opset = opsets_.find(domain);
      if (opset == opsets_.end()) throw InvalidArgument("the model imports no operator set '" + domain + "'");
      builder_.set_scope(depth_ == 0 ? names_.of(first) : builder_.scope() + "/" + clean_name(first));
      onnx::OnnxNode node(builder_, proto, opset->second, std::move(inputs), *this);
      translate(node);
      for (int i = 0; i < proto.output_size(); ++i) take_result(node, i);
    } catch (const InvalidArgument& error) {
      report(name, op, error.message());
      mark_broken(proto);
    } catch (const OutOfMemory& error) {
      report(name, op, error.message());
      mark_broken(proto);
    }
  }

  void take_result(const onnx::OnnxNode& node, int i) {
    const std::string& name = node.proto().output(i);
    if (name.empty()) return;
    const onnx::BodyValue value = node.result(i);
    if (!value) throw InvalidArgument(fmt::format("output {} is not supported", i));
    set_result(name, value);
  }

  const onnx::FunctionProto* find_function(const onnx::NodeProto& node) const {
    for (const auto& function : model_.functions())
      if (function.name() == node.op_type() && function.domain() == node.domain() &&
          function.overload() == node.overload())
        return &function;
    return nullptr;
  }

  /// The nodes of a function that the model brings, in place of its call.
  void call(const onnx::FunctionProto& function, const onnx::NodeProto& proto) {
    onnx::GraphProto body;
    std::vector<onnx::BodyValue> arguments(static_cast<std::size_t>(function.input_size()));
    for (std::size_t i = 0; i < arguments.size() && static_cast<int>(i) < proto.input_size(); ++i)
      if (const std::string& input = proto.input(static_cast<int>(i)); !input.empty())
        arguments[i] = get(input);
    for (const std::string& input : function.input()) body.add_input()->set_name(input);
    for (const std::string& output : function.output()) body.add_output()->set_name(output);
    for (const auto& node : function.node()) *body.add_node() = with_attributes(node, function, proto);
    const std::vector<onnx::BodyValue> results = [&] {
      const Scope outside(*this);
      for (const auto& set : function.opset_import())
        opsets_[set.domain() == "ai.onnx" ? "" : set.domain()] = static_cast<int>(set.version());
      values_.clear();
      sequences_.clear();
      const std::string own = names_.of(proto.output_size() > 0 ? proto.output(0) : proto.op_type());
      builder_.set_scope(depth_ == 0 ? own : outside.name() + "/" + own);
      return translate_body(body, arguments, nullptr);
    }();
    for (int i = 0; i < proto.output_size() && i < static_cast<int>(results.size()); ++i) {
      const std::string& name = proto.output(i);
      if (!name.empty()) set_result(name, results[static_cast<std::size_t>(i)]);
    }
  }

  /// The node with the call's attributes, or the function's defaults, for those that refer to them.
  static onnx::NodeProto with_attributes(const onnx::NodeProto& node, const onnx::FunctionProto& function,
                                         const onnx::NodeProto& call) {
    onnx::NodeProto result = node;
    result.clear_attribute();
    for (const auto& attribute : node.attribute()) {
      if (attribute.ref_attr_name().empty()) {
        *result.add_attribute() = attribute;
        continue;
      }
      const auto add = [&](const auto& from) {
        for (const auto& given : from)
          if (given.name() == attribute.ref_attr_name()) {
            onnx::AttributeProto& own = *result.add_attribute();
            own = given;
            own.set_name(attribute.name());
            return true;
          }
        return false;
      };
      if (!add(call.attribute())) add(function.attribute_proto());
    }
    return result;
  }

  /// What the body sees of float values around it gets gates, as in engine/import/branch_gates.h. Single
  /// numbers do not, nor what Resize reads beside its image: these are settings, which must stay known.
  void gate_values_around(const onnx::GraphProto& body, const onnx::Taken& taken) {
    for (const std::string& name : onnx::values_read_by(body)) {
      const auto it = values_.find(name);
      if (it == values_.end() || !it->second || !is_floating(it->second.dtype())) continue;
      const Val value = it->second;
      if (value.known() != nullptr && value.shape().elements() <= 1) continue;
      const Val still = onnx::tf("StopGradient", {value});
      it->second = onnx::tf("Select", taken.when ? std::vector<Val>{taken.condition, value, still}
                                                 : std::vector<Val>{taken.condition, still, value});
    }
  }

  void mark_broken(const onnx::NodeProto& proto) {
    for (const std::string& output : proto.output()) set(output, {});
  }

  void add_output(const std::string& name) {
    const auto it = values_.find(name);
    if (it == values_.end()) return report(name, "output", "nothing computes it");
    if (sequences_.contains(name)) return report(name, "output", "a sequence cannot be an output");
    if (it->second) result_.outputs.push_back({names_.of(name), it->second.dtype(), it->second.shape()});
  }

  const onnx::ModelProto& model_;
  std::filesystem::path folder_;
  const OnnxInputShapes& shapes_;
  const OnnxUse use_;
  const onnx::NodeNames names_;
  Builder builder_;
  std::map<std::string, int> opsets_;
  std::map<std::string, Val> values_;  // by ONNX name; an empty Val where its node has a problem
  std::map<std::string, onnx::Sequence> sequences_;
  std::map<std::string, Val> statistics_;  // initializers -> what a step makes of them
  std::set<std::string> four_bit_;         // initializers that have more room here than in the model
  int depth_ = 0;                          // of bodies
  int translated_ = 0;                     // nodes, those of bodies each time
  OnnxImport result_;
};

}  // namespace

OnnxImport try_parse_onnx(std::string_view model, const std::string& source,
                          const std::filesystem::path& folder, const OnnxInputShapes& shapes, OwnNodes own,
                          OnnxUse use) {
  return Importer(onnx::parse_model(model, source), folder, shapes, own, use).run();
}

OnnxImport try_import_onnx(const std::filesystem::path& file, const OnnxInputShapes& shapes, OwnNodes own,
                           OnnxUse use) {
  return try_parse_onnx(read_file(file), file.string(), file.parent_path(), shapes, own, use);
}

OnnxImport import_onnx(const std::filesystem::path& file, const OnnxInputShapes& shapes, OwnNodes own,
                       OnnxUse use) {
  OnnxImport result = try_import_onnx(file, shapes, own, use);
  if (result.problems.empty()) return result;
  std::string text = fmt::format("{}: {} of {} nodes cannot be translated:", file.string(),
                                 result.problems.size(), result.nodes);
  for (const OnnxProblem& problem : result.problems)
    text += fmt::format("\n  [{}] node '{}': {}", problem.op, problem.node, problem.reason);
  throw InvalidArgument(std::move(text));
}

}  // namespace braid
