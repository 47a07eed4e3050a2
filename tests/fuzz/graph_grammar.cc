#include "tests/fuzz/graph_grammar.h"

#include <limits>
#include <string>
#include <vector>

#include "engine/import/convert.h"
#include "engine/ir/op.h"

namespace braid::fuzz {
namespace {

using Numbers = std::vector<std::int64_t>;

/// Names of attributes by the type that most ops expect.
constexpr const char* kInts[] = {"N",
                                 "axis",
                                 "batch_dims",
                                 "begin_mask",
                                 "end_mask",
                                 "block_size",
                                 "concat_dim",
                                 "ellipsis_mask",
                                 "num",
                                 "num_partitions",
                                 "num_split",
                                 "num_buckets",
                                 "new_axis_mask",
                                 "seq_dim",
                                 "shrink_axis_mask",
                                 "depth_radius",
                                 "batch_dim",
                                 "seed",
                                 "summarize",
                                 "width"};
constexpr const char* kLists[] = {"strides", "dilations", "ksize", "explicit_paddings", "squeeze_dims",
                                  "shape",   "rows",      "pairs", "_output_shapes"};
constexpr const char* kBools[] = {"transpose_a",
                                  "transpose_b",
                                  "adj_x",
                                  "adj_y",
                                  "keep_dims",
                                  "align_corners",
                                  "half_pixel_centers",
                                  "exclusive",
                                  "reverse",
                                  "is_training",
                                  "validate_indices",
                                  "sorted",
                                  "divide",
                                  "relu"};
constexpr const char* kReals[] = {"alpha", "beta", "bias", "epsilon", "rate", "exponential_avg_factor"};
constexpr const char* kTexts[] = {"data_format", "padding",   "equation", "mode",
                                  "message",     "delimiter", "unit",     "encoding"};
constexpr const char* kTypes[] = {"out_type",    "DstT",       "type",    "dtype",
                                  "output_type", "index_type", "out_idx", "Tout"};
constexpr const char* kValues[] = {"NCHW",    "NHWC",      "SAME",      "VALID",        "EXPLICIT",
                                   "REFLECT", "SYMMETRIC", "ij,jk->ik", "bij,bjk->bik", "UTF8",
                                   "BYTE",    "",          "?",         "linear"};
constexpr DType kDTypes[] = {DType::Float32, DType::Int32,  DType::Int64,  DType::Bool,    DType::Float64,
                             DType::UInt8,   DType::Int8,   DType::Int16,  DType::Float16, DType::BFloat16,
                             DType::UInt16,  DType::UInt32, DType::UInt64, DType::String,  DType::Resource};
constexpr std::int64_t kExtremes[] = {std::numeric_limits<std::int64_t>::max(),
                                      std::numeric_limits<std::int64_t>::min(),
                                      std::numeric_limits<std::int32_t>::max(),
                                      std::numeric_limits<std::int32_t>::min(),
                                      std::int64_t{1} << 32,
                                      std::int64_t{1} << 62,
                                      1000000};

class Grammar {
 public:
  explicit Grammar(Choices& choices) : c_(choices) {}

  GraphDef make() {
    main_type_ = c_.chance(65) ? DType::Float32 : c_.pick_of(kDTypes);
    const std::size_t rank = c_.pick<std::size_t>({2, 4, 3, 1, 2, 4, 0, 5});
    for (std::size_t i = 0; i < rank; ++i) base_.push_back(size());
    std::vector<const OpDef*> ops = OpRegistry::global().all();
    if (!c_.chance(5))  // files cannot have them
      std::erase_if(ops, [](const OpDef* op) { return op->name.starts_with("braid."); });
    const std::size_t nodes = c_.chance(20) ? 2 + c_.below(2) : 1;
    for (std::size_t i = 0; i < nodes; ++i) add_op(*c_.pick_of(ops));
    return std::move(graph_);
  }

 private:
  std::int64_t size() { return c_.chance(6) ? 0 : c_.between(1, 4); }
  std::int64_t number() {
    if (c_.chance(5)) return c_.pick_of(kExtremes);
    return c_.chance(60) ? c_.between(0, 3) : c_.between(-4, 6);
  }

  Numbers shape() {
    const std::size_t kind = c_.below(100);
    if (kind < 45) return base_;
    if (kind < 60) return {static_cast<std::int64_t>(base_.size())};
    if (kind < 75) return {};
    Numbers other;
    for (std::size_t i = c_.below(6); i-- > 0;) other.push_back(size());
    return other;
  }

  Tensor value(DType dtype, const Numbers& dims) {
    const Shape shape(dims);
    if (dtype == DType::String) {
      std::vector<std::string> texts;
      for (std::int64_t i = 0; i < shape.elements(); ++i) texts.emplace_back(c_.pick_of(kValues));
      return Tensor::strings(shape, texts);
    }
    Tensor tensor = Tensor::zeros(dtype, shape);
    std::uint32_t state = c_.byte() * 2654435761U + 1;
    const auto draw = [&](auto zero) {
      for (auto& element : tensor.data<decltype(zero)>())
        element = static_cast<decltype(zero)>(
            static_cast<std::int64_t>((state = state * 1664525U + 1013904223U) >> 24) % 7 - 2);
    };
    if (dtype == DType::Float32) draw(0.0F);
    if (dtype == DType::Float64) draw(0.0);
    if (dtype == DType::Int32) draw(std::int32_t{0});
    if (dtype == DType::Int64) draw(std::int64_t{0});
    if (dtype == DType::Int64 && shape.elements() > 0 && c_.chance(15))
      tensor.data<std::int64_t>()[0] = number();
    return tensor;
  }

  NodeDef& add(const std::string& op) {
    NodeDef& node = *graph_.add_node();
    node.set_name("n" + std::to_string(graph_.node_size()));
    node.set_op(op);
    return node;
  }
  static void set(NodeDef& node, const std::string& name, const Attr& attr) {
    (*node.mutable_attr())[name] = to_proto(attr);
  }

  std::string input() {
    if (c_.chance(2)) return "nobody";
    if (graph_.node_size() > 0 && c_.chance(25)) {
      const NodeDef& other =
          graph_.node(static_cast<int>(c_.below(static_cast<std::size_t>(graph_.node_size()))));
      return c_.chance(15) ? other.name() + ":" + std::to_string(c_.below(4)) : other.name();
    }
    const std::size_t kind = c_.below(100);
    DType dtype = kind < 60   ? main_type_
                  : kind < 85 ? (kind % 2 == 0 ? DType::Int32 : DType::Int64)
                              : c_.pick_of(kDTypes);
    if (dtype == DType::Resource) {
      NodeDef& variable = add("VarHandleOp");
      set(variable, "dtype", Attr(DType::Float32));
      set(variable, "shape", Attr(Shape(shape())));
      return variable.name();
    }
    Numbers dims = shape();
    if (c_.chance(60)) {
      NodeDef& constant = add("Const");
      const Tensor tensor = value(dtype, dims);
      set(constant, "dtype", Attr(dtype));
      set(constant, "value", Attr(tensor));
      return constant.name();
    }
    NodeDef& placeholder = add("Placeholder");
    for (std::int64_t& dim : dims)
      if (c_.chance(20)) dim = Shape::kUnknown;
    if (!dims.empty() && c_.chance(1)) dims[0] = c_.pick_of(kExtremes);
    set(placeholder, "dtype", Attr(dtype));
    if (!c_.chance(5)) set(placeholder, "shape", Attr(Shape(dims)));
    return placeholder.name();
  }

  Attr any_attr() {
    switch (c_.below(6)) {
      case 0:
        return Attr(number());
      case 1:
        return Attr(c_.chance(50));
      case 2:
        return Attr(static_cast<double>(number()));
      case 3:
        return Attr(std::string(c_.pick_of(kValues)));
      case 4:
        return Attr(c_.pick_of(kDTypes));
      default:
        return Attr(numbers());
    }
  }
  Numbers numbers() {
    Numbers values;
    for (std::size_t count = c_.pick<std::size_t>({4, 4, base_.size(), 2 * base_.size(), 0, 1, 8});
         count-- > 0;)
      values.push_back(number());
    if (c_.chance(50))
      for (std::int64_t& one : values) one = one > 0 && one < 4 ? one : 1;
    return values;
  }

  void add_op(const OpDef& op) {
    const int most = op.max_inputs < 0 ? op.min_inputs + 4 : op.max_inputs;
    const int count = c_.chance(8)
                          ? static_cast<int>(c_.below(8))
                          : static_cast<int>(c_.between(op.min_inputs, std::max(op.min_inputs, most)));
    std::vector<std::string> inputs;
    for (int i = 0; i < count; ++i) inputs.push_back(input());
    NodeDef& node = add(op.name);
    for (const std::string& name : inputs) node.add_input(name);
    if (!c_.chance(10)) set(node, "T", Attr(main_type_));
    if (!c_.chance(20)) set(node, "N", Attr(static_cast<std::int64_t>(count)));
    if (c_.chance(50)) set(node, "dtype", Attr(main_type_));
    if (c_.chance(50)) set(node, "padding", Attr(c_.pick({"SAME", "VALID", "EXPLICIT"})));
    if (c_.chance(40)) set(node, "strides", Attr(Numbers{1, c_.between(1, 3), c_.between(1, 3), 1}));
    if (c_.chance(40)) set(node, "ksize", Attr(Numbers{1, c_.between(1, 3), c_.between(1, 3), 1}));
    for (std::size_t attrs = c_.below(7); attrs-- > 0;) {
      switch (c_.below(6)) {
        case 0:
          set(node, c_.pick_of(kInts), c_.chance(5) ? any_attr() : Attr(number()));
          break;
        case 1:
          set(node, c_.pick_of(kLists), c_.chance(5) ? any_attr() : Attr(numbers()));
          break;
        case 2:
          set(node, c_.pick_of(kBools), c_.chance(5) ? any_attr() : Attr(c_.chance(50)));
          break;
        case 3:
          set(node, c_.pick_of(kReals), c_.chance(5) ? any_attr() : Attr(static_cast<double>(number()) / 4));
          break;
        case 4:
          set(node, c_.pick_of(kTexts), c_.chance(5) ? any_attr() : Attr(std::string(c_.pick_of(kValues))));
          break;
        default:
          set(node, c_.pick_of(kTypes), c_.chance(5) ? any_attr() : Attr(c_.pick_of(kDTypes)));
      }
    }
    if (c_.chance(3)) node.set_name("n1");
    if (c_.chance(5)) node.set_device(c_.pick({"/device:GPU:0", "/job:ps/task:9", "?"}));
  }

  Choices& c_;
  GraphDef graph_;
  DType main_type_ = DType::Float32;
  Numbers base_;
};

}  // namespace

GraphDef make_graph_case(Choices& choices) { return Grammar(choices).make(); }

}  // namespace braid::fuzz
