#include "tests/fuzz/onnx_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>
#include <vector>

#include "engine/import/onnx/node.h"

namespace braid::fuzz {
namespace {

using onnx::AttributeProto;
using onnx::GraphProto;
using onnx::NodeProto;
using onnx::TensorProto;

struct Operator {
  const char* name;
  int least_inputs, most_inputs, outputs;
  const char* attributes;
};
constexpr Operator kOperators[] = {
#include "tests/fuzz/onnx_operators.def"
};

using Dims = std::vector<std::int64_t>;

constexpr std::int64_t kExtremes[] = {
    std::numeric_limits<std::int64_t>::max(),
    std::numeric_limits<std::int64_t>::min(),
    std::numeric_limits<std::int32_t>::max(),
    std::numeric_limits<std::int32_t>::min(),
    std::int64_t{1} << 32,
    std::int64_t{1} << 40,
    std::int64_t{1} << 62,
    -(std::int64_t{1} << 40),
    1000000,
    -1000000,
};

constexpr const char* kTexts[] = {"SAME_UPPER",
                                  "SAME_LOWER",
                                  "VALID",
                                  "NOTSET",
                                  "constant",
                                  "reflect",
                                  "edge",
                                  "wrap",
                                  "nearest",
                                  "linear",
                                  "bilinear",
                                  "cubic",
                                  "bicubic",
                                  "zeros",
                                  "border",
                                  "reflection",
                                  "mean",
                                  "sum",
                                  "none",
                                  "avg",
                                  "max",
                                  "min",
                                  "mul",
                                  "add",
                                  "DCR",
                                  "CRD",
                                  "half_pixel",
                                  "align_corners",
                                  "asymmetric",
                                  "pytorch_half_pixel",
                                  "tf_crop_and_resize",
                                  "half_pixel_symmetric",
                                  "output_half_pixel",
                                  "round_prefer_floor",
                                  "round_prefer_ceil",
                                  "floor",
                                  "ceil",
                                  "not_larger",
                                  "not_smaller",
                                  "stretch",
                                  "forward",
                                  "reverse",
                                  "bidirectional",
                                  "LEFT",
                                  "RIGHT",
                                  "tanh",
                                  "Relu",
                                  "Sigmoid",
                                  "Tanh",
                                  "Affine",
                                  "HardSigmoid",
                                  "Elu",
                                  "standard",
                                  "ij,jk->ik",
                                  "bij,bjk->bik",
                                  "i,i->",
                                  "ii->i",
                                  "...i,...i->...",
                                  "ij->ji",
                                  "i->",
                                  "->",
                                  "ab,bc",
                                  "ij,jk->iz",
                                  "a...b->b",
                                  "",
                                  "?"};

class Grammar {
 public:
  explicit Grammar(Choices& choices) : c_(choices) {}

  OnnxCase make() {
    main_type_ = c_.chance(65) ? int{TensorProto::FLOAT} : any_type();
    base_ = dims(c_.pick({4, 4, 4, 3, 3, 2, 2, 1, 5, 0}));
    GraphProto& graph = *result_.model.mutable_graph();
    const std::size_t nodes = c_.chance(20) ? 2 + c_.below(2) : 1;
    for (std::size_t i = 0; i < nodes; ++i) add_node(graph);
    result_.model.set_ir_version(8);
    const int opset =
        c_.pick({13, 13, 17, 18, 21, 21, 11, 10, 9, 8, 7, 12, 14, 15, 16, 19, 20, 22, 23, 6, 1});
    set_opset("", opset);
    if (!c_.chance(5)) set_opset("ai.onnx.preview.training", 1);
    return std::move(result_);
  }

 private:
  void set_opset(const char* domain, int version) {
    auto& set = *result_.model.add_opset_import();
    set.set_domain(domain);
    set.set_version(version);
  }

  int any_type() {
    return c_.pick<int>({TensorProto::FLOAT, TensorProto::INT64, TensorProto::INT32, TensorProto::UINT8,
                         TensorProto::INT8, TensorProto::BOOL, TensorProto::DOUBLE, TensorProto::FLOAT16,
                         TensorProto::BFLOAT16, TensorProto::UINT16, TensorProto::INT16, TensorProto::UINT32,
                         TensorProto::UINT64, TensorProto::STRING, TensorProto::INT4, TensorProto::UINT4,
                         TensorProto::COMPLEX64, 99, 0});
  }

  std::int64_t size() { return c_.chance(6) ? 0 : c_.chance(8) ? c_.between(6, 9) : c_.between(1, 4); }
  Dims dims(int rank) {
    Dims result;
    for (int i = 0; i < rank; ++i) result.push_back(size());
    return result;
  }
  std::int64_t number() { return number(c_, 5); }
  static std::int64_t number(Choices& c, int extremes_percent) {
    if (c.chance(extremes_percent)) return c.pick_of(kExtremes);
    return c.chance(60) ? c.between(0, 3) : c.between(-4, 6);
  }

  Dims shape_of_input() {
    const std::size_t kind = c_.below(100);
    if (kind < 45) return base_;
    Dims shape = base_;
    if (kind < 60 && !shape.empty()) {
      shape[c_.below(shape.size())] = size();
      return shape;
    }
    if (kind < 75) {
      const auto rank = static_cast<std::int64_t>(base_.size());
      return {c_.pick<std::int64_t>(
          {rank > 1 ? base_[1] : 1, rank, 2 * rank, rank - 2 > 0 ? rank - 2 : 0, size()})};
    }
    if (kind < 85) return {};
    return dims(static_cast<int>(c_.below(7)));
  }

  // ------------------------------------------------------------------------------------------------- values

  template <class T>
  static void append(std::string& bytes, T value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  double real() { return real(c_); }
  static double real(Choices& c) {
    if (c.chance(4)) return c.pick({std::nan(""), HUGE_VAL, -HUGE_VAL, 1e300, -0.0, 1e-300});
    return static_cast<double>(c.between(-8, 24)) / c.pick({1.0, 2.0, 4.0, 8.0});
  }

  static void append_element(std::string& bytes, int type, Choices& c) {
    switch (type) {
      case TensorProto::FLOAT:
        return append(bytes, static_cast<float>(real(c)));
      case TensorProto::DOUBLE:
        return append(bytes, real(c));
      case TensorProto::INT64:
      case TensorProto::UINT64:
      case TensorProto::COMPLEX64:
        return append(bytes, number(c, 1));
      case TensorProto::INT32:
      case TensorProto::UINT32:
        return append(bytes, static_cast<std::int32_t>(number(c, 1)));
      case TensorProto::FLOAT16:
      case TensorProto::BFLOAT16:
      case TensorProto::INT16:
      case TensorProto::UINT16:
        return append(bytes, static_cast<std::int16_t>(c.chance(30) ? number(c, 1) : 0x3C00));
      case TensorProto::BOOL:
        return append(bytes, static_cast<char>(c.below(2)));
      default:
        return append(bytes, static_cast<char>(number(c, 1)));
    }
  }

  static std::string expanded(std::uint8_t seed, std::size_t count) {
    std::string bytes(count, '\0');
    std::uint32_t state = seed * 2654435761U + 1;
    for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525U + 1013904223U) >> 24);
    return bytes;
  }

  static std::int64_t product(const Dims& shape) {
    std::int64_t count = 1;
    for (const std::int64_t dim : shape) count *= dim;
    return count;
  }

  TensorProto tensor(int type, const Dims& shape) {
    TensorProto proto;
    for (const std::int64_t dim : shape) proto.add_dims(dim);
    proto.set_data_type(type);
    std::int64_t count = product(shape);
    if (c_.chance(2)) count = static_cast<std::int64_t>(c_.below(5));  // that does not fit
    if (c_.chance(1)) proto.add_dims(c_.pick_of(kExtremes));
    if (c_.chance(1)) proto.set_data_location(TensorProto::EXTERNAL);
    if (type == TensorProto::STRING) {
      for (std::int64_t i = 0; i < count; ++i) proto.add_string_data(c_.pick_of(kTexts));
      return proto;
    }
    if (type == TensorProto::INT4 || type == TensorProto::UINT4) count = (count + 1) / 2;
    // The elements are drawn from one byte, so that tensors leave choices for what comes after them.
    const std::string drawn = expanded(c_.byte(), 8 * static_cast<std::size_t>(count));
    Choices elements(reinterpret_cast<const std::uint8_t*>(drawn.data()), drawn.size());
    if (type == TensorProto::INT64 && c_.chance(20)) {
      for (std::int64_t i = 0; i < count; ++i) proto.add_int64_data(number(elements, 1));
      return proto;
    }
    std::string bytes;
    for (std::int64_t i = 0; i < count; ++i) append_element(bytes, type, elements);
    proto.set_raw_data(bytes);
    return proto;
  }

  /// The same as a feed, where Braid has such tensors.
  static bool feed_of(const TensorProto& proto, Tensor& feed) {
    DType dtype = DType::Invalid;
    switch (proto.data_type()) {
      case TensorProto::FLOAT:
        dtype = DType::Float32;
        break;
      case TensorProto::DOUBLE:
        dtype = DType::Float64;
        break;
      case TensorProto::INT64:
        dtype = DType::Int64;
        break;
      case TensorProto::INT32:
        dtype = DType::Int32;
        break;
      case TensorProto::UINT8:
        dtype = DType::UInt8;
        break;
      case TensorProto::INT8:
        dtype = DType::Int8;
        break;
      case TensorProto::BOOL:
        dtype = DType::Bool;
        break;
      case TensorProto::FLOAT16:
        dtype = DType::Float16;
        break;
      case TensorProto::STRING: {
        std::vector<std::string> texts(proto.string_data().begin(), proto.string_data().end());
        const Shape shape(Dims(proto.dims().begin(), proto.dims().end()));
        for (const std::int64_t dim : shape.dims())
          if (dim < 0 || dim > 100) return false;
        if (shape.elements() != static_cast<std::int64_t>(texts.size())) return false;
        feed = Tensor::strings(shape, texts);
        return true;
      }
      default:
        return false;
    }
    const Dims shape(proto.dims().begin(), proto.dims().end());
    for (const std::int64_t dim : shape)
      if (dim < 0 || dim > 100) return false;
    feed = Tensor::zeros(dtype, Shape(shape));
    std::memcpy(feed.raw(), proto.raw_data().data(), std::min(feed.bytes(), proto.raw_data().size()));
    return true;
  }

  // ------------------------------------------------------------------------------------------------- inputs

  std::string new_name(const char* prefix) { return fmt::format("{}{}", prefix, names_++); }

  /// A value that nothing computes: a constant of the model, or what it is fed with.
  std::string add_value(GraphProto& graph, int type, const Dims& shape) {
    TensorProto value = tensor(type, shape);
    std::string name = new_name("x");
    if (c_.chance(2) && !values_.empty()) name = c_.pick_of(values_);
    value.set_name(name);
    values_.push_back(name);
    if (c_.chance(55)) {
      *graph.add_initializer() = value;
      if (c_.chance(90)) return name;
    }
    auto& input = *graph.add_input();
    input.set_name(name);
    if (c_.chance(2)) return name;  // of no type
    auto& declared = *input.mutable_type()->mutable_tensor_type();
    declared.set_elem_type(type);
    Tensor feed;
    if (!c_.chance(3) && feed_of(value, feed)) result_.feeds[name] = feed;
    if (c_.chance(5)) return name;  // of any rank
    auto& dims = *declared.mutable_shape();
    for (const std::int64_t dim : shape) {
      auto& own = *dims.add_dim();
      if (c_.chance(15)) continue;
      own.set_dim_value(dim);
      if (!c_.chance(1)) continue;
      own.set_dim_value(c_.pick_of(kExtremes));
      result_.feeds.erase(name);
    }
    return name;
  }

  std::string add_input(GraphProto& graph, bool may_be_absent) {
    if (may_be_absent && c_.chance(18)) return "";
    if (c_.chance(2)) return "nobody";
    if (!values_.empty() && c_.chance(results_ > 0 ? 35 : 8)) return c_.pick_of(values_);
    if (c_.chance(3)) return add_sequence(graph);
    const std::size_t kind = c_.below(100);
    const int type = kind < 66 ? main_type_ : kind < 90 ? int{TensorProto::INT64} : any_type();
    return add_value(graph, type, shape_of_input());
  }

  std::string add_sequence(GraphProto& graph) {
    NodeProto& node = *graph.add_node();
    node.set_op_type("SequenceConstruct");
    for (std::size_t count = c_.below(4); count-- > 0;)
      node.add_input(add_value(graph, main_type_, shape_of_input()));
    node.add_output(new_name("s"));
    return node.output(0);
  }

  // --------------------------------------------------------------------------------------------- attributes

  std::vector<std::int64_t> numbers() {
    const auto rank = static_cast<std::int64_t>(base_.size());
    const std::int64_t spatial = std::max<std::int64_t>(rank - 2, 0);
    const std::int64_t count =
        c_.pick<std::int64_t>({spatial, spatial, 2 * spatial, 2 * spatial, rank, 2 * rank, 0, 1,
                               static_cast<std::int64_t>(c_.below(9))});
    std::vector<std::int64_t> values;
    const bool order = c_.chance(15);
    for (std::int64_t i = 0; i < count; ++i) values.push_back(order ? count - 1 - i : number());
    if (c_.chance(40))
      for (std::int64_t& value : values) value = std::clamp<std::int64_t>(value, 1, 3);
    return values;
  }

  void set_value(AttributeProto& attribute, char type, int depth) {
    switch (type) {
      case 'i':
        attribute.set_type(AttributeProto::INT);
        attribute.set_i(c_.chance(8) ? c_.between(7, 23) : number());
        return;
      case 'f':
        attribute.set_type(AttributeProto::FLOAT);
        attribute.set_f(static_cast<float>(real()));
        return;
      case 's':
        attribute.set_type(AttributeProto::STRING);
        attribute.set_s(c_.pick_of(kTexts));
        return;
      case 'I':
        attribute.set_type(AttributeProto::INTS);
        for (const std::int64_t value : numbers()) attribute.add_ints(value);
        return;
      case 'F':
        attribute.set_type(AttributeProto::FLOATS);
        for (std::size_t count = c_.below(6); count-- > 0;) attribute.add_floats(static_cast<float>(real()));
        return;
      case 'S':
        attribute.set_type(AttributeProto::STRINGS);
        for (std::size_t count = c_.below(5); count-- > 0;) attribute.add_strings(c_.pick_of(kTexts));
        return;
      case 't':
        attribute.set_type(AttributeProto::TENSOR);
        *attribute.mutable_t() = tensor(any_type(), c_.chance(70) ? Dims{1} : shape_of_input());
        return;
      default:
        attribute.set_type(AttributeProto::GRAPH);
        *attribute.mutable_g() = body(depth + 1);
    }
  }

  void add_attributes(NodeProto& node, std::string_view list, int depth) {
    while (!list.empty()) {
      const std::string_view item = list.substr(0, list.find(' '));
      list.remove_prefix(std::min(item.size() + 1, list.size()));
      const char type = item.back();
      const bool is_body = type == 'g';
      if (!c_.chance(is_body ? 97 : 55) || (is_body && depth > 2)) continue;
      AttributeProto& attribute = *node.add_attribute();
      attribute.set_name(std::string(item.substr(0, item.size() - 2)));
      set_value(attribute, c_.chance(3) ? c_.pick({'i', 'f', 's', 'I', 'F', 'S', 't'}) : type, depth);
      if (c_.chance(1)) *node.add_attribute() = attribute;
    }
  }

  /// What a body gets and gives is mostly what its node has (`body_inputs_`), and sometimes anything.
  GraphProto body(int depth) {
    GraphProto graph;
    const auto count = [&](int right) { return c_.chance(80) ? right : static_cast<int>(c_.below(6)); };
    std::vector<std::string> names;
    for (int i = count(body_inputs_); i > 0; --i) {
      names.push_back(new_name("b"));
      graph.add_input()->set_name(names.back());
    }
    if (c_.chance(20)) {
      TensorProto& constant = *graph.add_initializer();
      constant = tensor(main_type_, shape_of_input());
      constant.set_name(new_name("k"));
      names.push_back(constant.name());
    }
    if (names.empty() || c_.chance(20)) names.push_back(values_.empty() ? "nobody" : c_.pick_of(values_));
    const std::vector<std::string> outside = values_;
    for (std::size_t nodes = c_.below(4); nodes-- > 0;) {
      NodeProto& node = *graph.add_node();
      const Operator& op = depth < 2 && c_.chance(10) ? c_.pick_of(kOperators) : Operator{"", 1, 1, 1, ""};
      node.set_op_type(*op.name != 0 ? op.name
                                     : c_.pick({"Identity", "Add", "Relu", "Not", "Less", "Cast",
                                                "SequenceInsert", "SequenceEmpty", "Shape"}));
      for (std::size_t inputs = 1 + c_.below(2); inputs-- > 0;) node.add_input(c_.pick_of(names));
      node.add_output(new_name("v"));
      names.push_back(node.output(0));
      if (*op.name != 0) add_attributes(node, op.attributes, depth);
      if (node.op_type() == "Cast") {
        AttributeProto& to = *node.add_attribute();
        to.set_name("to");
        to.set_i(c_.pick({1, 7, 9}));
      }
    }
    values_ = outside;
    for (int i = count(body_outputs_); i > 0; --i)
      graph.add_output()->set_name(c_.chance(3) ? "nobody" : c_.pick_of(names));
    return graph;
  }

  // -------------------------------------------------------------------------------------------------- nodes

  void add_node(GraphProto& graph) {
    const Operator& op = kOperators[c_.below(std::size(kOperators))];
    NodeProto node;
    const std::string_view name = op.name;
    const std::size_t colon = name.rfind(':');
    node.set_op_type(std::string(colon == std::string_view::npos ? name : name.substr(colon + 1)));
    if (colon != std::string_view::npos) node.set_domain(std::string(name.substr(0, colon)));
    if (c_.chance(50)) node.set_name(new_name("node"));
    const int inputs = c_.chance(12) ? static_cast<int>(c_.below(10))
                                     : static_cast<int>(c_.between(op.least_inputs, op.most_inputs));
    const bool takes_sequence = name.starts_with("Sequence") || name == "ConcatFromSequence";
    for (int i = 0; i < inputs; ++i) {
      if (i == 0 && takes_sequence && name != "SequenceConstruct" && c_.chance(85))
        node.add_input(add_sequence(graph));
      else
        node.add_input(add_input(graph, i >= op.least_inputs || c_.chance(25)));
    }
    const int outputs = c_.chance(70) ? op.outputs : c_.chance(70) ? 1 : static_cast<int>(c_.below(6));
    set_body_sizes(name, inputs, outputs);
    add_attributes(node, op.attributes, 0);
    for (int i = 0; i < outputs; ++i) {
      std::string output = c_.chance(4) ? "" : new_name("y");
      if (c_.chance(2) && !values_.empty()) output = c_.pick_of(values_);
      node.add_output(output);
      if (output.empty()) continue;
      values_.push_back(output);
      ++results_;
      graph.add_output()->set_name(output);
    }
    if (c_.chance(1)) graph.add_output()->set_name("nobody");
    *graph.add_node() = std::move(node);
  }

  void set_body_sizes(std::string_view name, int inputs, int outputs) {
    body_inputs_ = body_outputs_ = 0;
    if (name == "If") body_outputs_ = outputs;
    if (name == "Loop") {
      body_inputs_ = std::max(inputs, 2);
      body_outputs_ = outputs + 1;
    }
    if (name == "Scan") {
      body_inputs_ = inputs;
      body_outputs_ = outputs;
    }
  }

  Choices& c_;
  OnnxCase result_;
  int main_type_ = TensorProto::FLOAT;
  Dims base_;
  int names_ = 0;
  int results_ = 0;
  int body_inputs_ = 0, body_outputs_ = 0;
  std::vector<std::string> values_;
};

}  // namespace

OnnxCase make_onnx_case(Choices& choices) { return Grammar(choices).make(); }

std::string operators_that_differ() {
  std::string differ;
  std::vector<std::string> known = onnx::Translations::all().names();
  for (const Operator& op : kOperators)
    if (std::find(known.begin(), known.end(), op.name) == known.end()) differ += fmt::format(" -{}", op.name);
  for (const std::string& name : known)
    if (std::none_of(std::begin(kOperators), std::end(kOperators),
                     [&](const Operator& op) { return op.name == name; }))
      differ += " +" + name;
  return differ;
}

}  // namespace braid::fuzz
