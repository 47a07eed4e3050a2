#include "worker/model/feeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <sstream>

#include "base/env.h"
#include "base/error.h"
#include "engine/import/convert.h"
#include "proto/job.pb.h"
#include "worker/model/def_graph.h"

namespace braid::worker {
namespace {

bool is_placeholder(const NodeDef& node) {
  return node.op() == "Placeholder" || node.op() == "PlaceholderV2" || node.op() == "PlaceholderWithDefault";
}

const InputColumn* find_column(const std::vector<InputColumn>& columns, const std::string& name) {
  const auto at = std::find_if(columns.begin(), columns.end(),
                               [&](const InputColumn& column) { return column.name == name; });
  return at == columns.end() ? nullptr : &*at;
}

std::string type_and_shape(DType dtype, const Shape& shape) {
  return std::string(dtype == DType::Invalid ? "of a type that it does not say" : dtype_name(dtype)) + " " +
         shape.to_string();
}

/// A placeholder named like a column, or one that a signature calls so.
void feed_by_name(const std::vector<InputColumn>& columns, ModelFile& file,
                  const std::vector<std::string>& roots, GraphFeeds& feeds) {
  const NodeIndex index(file.graph);
  std::set<std::string> named;
  for (const auto& [value, column] : feeds.columns) named.insert(file.value_of(value).value_or(value));
  for (const auto& [value, text] : feeds.constants) named.insert(file.value_of(value).value_or(value));
  for (const NodeDef* node : index.above(roots)) {
    if (!is_placeholder(*node) || named.contains(node->name())) continue;
    std::vector<std::string> names = file.keys_of(node->name());
    names.insert(names.begin(), node->name());
    for (const std::string& name : names)
      if (find_column(columns, name)) {
        feeds.columns.emplace(node->name(), name);
        break;
      }
  }
}

// --------------------------------------------------------------------------------------------- constants

template <class T>
bool parse_number(const std::string& text, T& value) {
  std::istringstream in(text);
  in >> value;
  return !in.fail() && in.peek() == std::istringstream::traits_type::eof();
}

template <class T>
Tensor numbers(const std::vector<std::string>& texts, const Shape& shape) {
  Tensor tensor(dtype_of<T>, shape);
  for (std::size_t i = 0; i < texts.size(); ++i)
    if (!parse_number(texts[i], tensor.data<T>()[i]))
      throw InvalidArgument("'" + texts[i] + "' is no " + std::string(dtype_name(dtype_of<T>)));
  return tensor;
}

Tensor truths(const std::vector<std::string>& texts, const Shape& shape) {
  Tensor tensor(DType::Bool, shape);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const bool is_true = texts[i] == "true" || texts[i] == "True" || texts[i] == "1";
    if (!is_true && texts[i] != "false" && texts[i] != "False" && texts[i] != "0")
      throw InvalidArgument("'" + texts[i] + "' is neither true nor false");
    tensor.data<bool>()[i] = is_true;
  }
  return tensor;
}

/// "0.5" is a scalar unless the graph wants [1]; "1,2" a vector, or of the shape that the graph says.
Tensor parse_constant(const std::string& text, const DeclaredValue& declared) {
  std::vector<std::string> texts;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) texts.push_back(part);
  const auto count = static_cast<std::int64_t>(texts.size());
  Shape shape = count == 1 ? Shape{} : Shape{count};
  if (declared.shape.is_static() && declared.shape.elements() == count) shape = declared.shape;
  DType dtype = declared.dtype;
  if (dtype == DType::Invalid) dtype = text == "true" || text == "false" ? DType::Bool : DType::Float32;
  switch (dtype) {
    case DType::Bool:
      return truths(texts, shape);
    case DType::Float32:
      return numbers<float>(texts, shape);
    case DType::Float64:
      return numbers<double>(texts, shape);
    case DType::Int32:
      return numbers<std::int32_t>(texts, shape);
    case DType::Int64:
      return numbers<std::int64_t>(texts, shape);
    case DType::String:
      return Tensor::strings(shape, texts);
    default:
      throw InvalidArgument("a constant of " + std::string(dtype_name(dtype)) + " is not supported");
  }
}

// ------------------------------------------------------------------------------------------- putting them in

class FeedWriter {
 public:
  FeedWriter(ModelFile& file, Problems& problems) : file_(file), problems_(problems) {}

  void put_placeholder(const InputColumn& column) {
    add("Placeholder", column.name, {}, {{"dtype", column.dtype}, {"shape", with_batch(column)}});
  }

  void put_column(const std::string& value, const ValueName& at, const DeclaredValue& declared,
                  const InputColumn& column) {
    std::string source = column.name;
    if (declared.dtype != DType::Invalid && declared.dtype != column.dtype) {
      if (declared.dtype == DType::String)
        return refuse(at, fmt::format("'{}' takes strings, and column '{}' has {}: feed what the graph makes "
                                      "of them instead, such as "
                                      "the ids behind a hash or a vocabulary",
                                      value, column.name, dtype_name(column.dtype)));
      if (is_real(column.dtype) && is_whole(declared.dtype)) source = checked_whole(value, declared, column);
      if (is_whole(declared.dtype) && !holds_all(declared.dtype, column))
        source = checked_range(value, declared, column, source);
      source = add("Cast", column.name + "/as_" + std::string(dtype_name(declared.dtype)), {source},
                   {{"SrcT", column.dtype}, {"DstT", declared.dtype}});
    }
    if (const auto dims = new_row(declared.shape, column)) {
      const Shape count{static_cast<std::int64_t>(dims->size())};
      const std::string shape =
          add("Const", column.name + "/shape", {},
              {{"dtype", DType::Int64}, {"value", Tensor::from<std::int64_t>(count, *dims)}});
      const DType dtype = declared.dtype == DType::Invalid ? column.dtype : declared.dtype;
      source = add("Reshape", column.name + "/reshaped", {source, shape},
                   {{"T", dtype}, {"Tshape", DType::Int64}});
    } else if (!fits(declared.shape, column)) {
      return refuse(at, fmt::format("'{}' is {}, and a row of column '{}' has shape {}", value,
                                    type_and_shape(declared.dtype, declared.shape), column.name,
                                    column.row.to_string()));
    }
    replace_value(file_.graph, at, source);
  }

  void put_constant(const ValueName& at, const DeclaredValue& declared, const std::string& text) {
    const Tensor value = parse_constant(text, declared);
    replace_value(file_.graph, at,
                  add("Const", at.node + "/fed", {}, {{"dtype", value.dtype()}, {"value", value}}));
  }

 private:
  std::string add(const char* op, const std::string& base, const std::vector<std::string>& inputs,
                  const AttrMap& attrs) {
    const std::string name = free_name(NodeIndex(file_.graph), base);
    NodeDef& node = *file_.graph.add_node();
    node.set_name(name);
    node.set_op(op);
    for (const std::string& input : inputs) node.add_input(input);
    for (const auto& [key, attr] : attrs) (*node.mutable_attr())[key] = to_proto(attr);
    return name;
  }

  static bool is_real(DType dtype) { return dtype == DType::Float32 || dtype == DType::Float64; }
  static bool is_whole(DType dtype) {
    return !is_real(dtype) && dtype != DType::Bool && dtype != DType::Float16 && dtype != DType::BFloat16;
  }

  /// A cast would cut fractions off without a word; a step whose batch has one ends instead.
  std::string checked_whole(const std::string& value, const DeclaredValue& declared,
                            const InputColumn& column) {
    const AttrMap type = {{"T", column.dtype}};
    const Tensor nan = column.dtype == DType::Float32
                           ? Tensor::scalar(std::numeric_limits<float>::quiet_NaN())
                           : Tensor::scalar(std::numeric_limits<double>::quiet_NaN());
    const std::string& name = column.name;
    const std::string floor = add("Floor", name + "/floor", {name}, type);
    const std::string is_same = add("Equal", name + "/is_whole", {name, floor}, type);
    const std::string none = add("Const", name + "/nan", {}, {{"dtype", column.dtype}, {"value", nan}});
    const std::string whole = add("SelectV2", name + "/whole", {is_same, name, none}, type);
    return add(
        "CheckNumerics", name + "/checked", {whole},
        {{"T", column.dtype},
         {"message", fmt::format("column '{}' has numbers that are not whole, and feeds '{}', which takes "
                                 "{}",
                                 name, value, dtype_name(declared.dtype))}});
  }

  static bool holds_all(DType dtype, const InputColumn& column) {
    const DType of = column.dtype;
    if (column.ids > 0 && std::log2(static_cast<double>(column.ids)) <= 8 * dtype_size(dtype) - 1.0)
      return true;
    return !is_real(of) && dtype_size(dtype) >= dtype_size(of) && !is_unsigned(dtype);
  }
  static bool is_unsigned(DType dtype) {
    return dtype == DType::UInt8 || dtype == DType::UInt16 || dtype == DType::UInt32 ||
           dtype == DType::UInt64;
  }

  /// A cast would wrap larger numbers without a word; a step whose batch has one ends instead. What is
  /// checked is 0, or NaN for such a number, and is added to it.
  std::string checked_range(const std::string& value, const DeclaredValue& declared,
                            const InputColumn& column, const std::string& source) {
    const AttrMap type = {{"T", column.dtype}};
    const std::string& name = column.name;
    const int bits = static_cast<int>(8 * dtype_size(declared.dtype)) - (is_unsigned(declared.dtype) ? 0 : 1);
    const double end = std::ldexp(1.0, bits), begin = is_unsigned(declared.dtype) ? 0 : -end;
    const auto constant = [&](const char* what, DType dtype, double number) {
      Tensor tensor = Tensor::scalar(static_cast<float>(number));
      if (dtype == DType::Float64) tensor = Tensor::scalar(number);
      if (dtype == DType::Int64) tensor = Tensor::scalar(static_cast<std::int64_t>(number));
      return add("Const", name + what, {}, {{"dtype", dtype}, {"value", std::move(tensor)}});
    };
    std::string good =
        add("GreaterEqual", name + "/not_below", {source, constant("/least", column.dtype, begin)}, type);
    if (is_real(column.dtype) || bits < 63) {
      const std::string below =
          add("Less", name + "/below_end", {source, constant("/end", column.dtype, end)}, type);
      good = add("LogicalAnd", name + "/is_held", {good, below}, {});
    }
    const std::string flag =
        add("SelectV2", name + "/held",
            {good, constant("/zero", DType::Float32, 0),
             constant("/wrong", DType::Float32, std::numeric_limits<double>::quiet_NaN())},
            {{"T", DType::Float32}});
    const std::string checked = add(
        "CheckNumerics", name + "/in_range", {flag},
        {{"T", DType::Float32},
         {"message", fmt::format("column '{}' has a number that {} does not hold, and feeds '{}', counted "
                                 "over the numbers of the batch",
                                 name, dtype_name(declared.dtype), value)}});
    const std::string zeros =
        column.dtype == DType::Float32
            ? checked
            : add("Cast", name + "/zeros", {checked}, {{"SrcT", DType::Float32}, {"DstT", column.dtype}});
    return add("AddV2", name + "/in_range_sum", {source, zeros}, type);
  }

  void refuse(const ValueName& at, std::string why) {
    file_.fed_wrongly.insert(at.node);
    problems_.add(std::move(why));
  }

  static Shape with_batch(const InputColumn& column) {
    std::vector<std::int64_t> dims{Shape::kUnknown};
    dims.insert(dims.end(), column.row.dims().begin(), column.row.dims().end());
    return Shape(std::move(dims));
  }
  static bool fits(const Shape& declared, const InputColumn& column) {
    Shape merged;
    return merge_shapes(declared, with_batch(column), merged);
  }
  /// The shape that the graph wants, as Reshape takes it, where a row has as many elements in another shape.
  static std::optional<std::vector<std::int64_t>> new_row(const Shape& declared, const InputColumn& column) {
    if (fits(declared, column) || !declared.has_rank() || declared.rank() == 0) return std::nullopt;
    std::vector<std::int64_t> dims(declared.dims().begin(), declared.dims().end());
    dims[0] = -1;
    std::int64_t elements = 1;
    int unknown = 0;
    for (std::size_t i = 1; i < dims.size(); ++i) {
      unknown += dims[i] == Shape::kUnknown;
      elements *= dims[i];
    }
    if (unknown == 1 && dims.size() == 2) return std::vector<std::int64_t>{-1, column.row.elements()};
    if (unknown > 0 || elements != column.row.elements()) return std::nullopt;
    return dims;
  }

  ModelFile& file_;
  Problems& problems_;
};

}  // namespace

std::vector<std::string> GraphFeeds::used_columns() const {
  std::set<std::string> names = further;
  for (const auto& [value, column] : columns) names.insert(column);
  return {names.begin(), names.end()};
}

GraphFeeds choose_feeds(const proto::TrainedGraph& asked, const std::vector<InputColumn>& columns,
                        ModelFile& training, const std::vector<std::string>& training_roots,
                        ModelFile* inference, const std::vector<std::string>& inference_roots,
                        Problems& problems) {
  GraphFeeds feeds;
  std::vector<std::string> names;
  for (const InputColumn& column : columns) names.push_back(column.name);
  for (const proto::GraphFeed& feed : asked.feeds()) {
    if (!training.value_of(feed.value()) && !(inference && inference->value_of(feed.value()))) {
      problems.add("model.graph.feeds: there is no value '" + feed.value() + "'" +
                   training.hint(feed.value()));
      continue;
    }
    if (!feed.constant().empty()) {
      const std::string& eval = feed.eval().empty() ? feed.constant() : feed.eval();
      feeds.constants.insert_or_assign(feed.value(), GraphFeeds::Constant{feed.constant(), eval});
    } else if (find_column(columns, feed.column())) {
      feeds.columns.insert_or_assign(feed.value(), feed.column());
    } else {
      problems.add("model.graph.feeds: '" + feed.value() + "' is to have column '" + feed.column() +
                   "', but the data has " + quoted_list(names));
    }
  }
  feed_by_name(columns, training, training_roots, feeds);
  if (inference) feed_by_name(columns, *inference, inference_roots, feeds);
  return feeds;
}

void reserve_names(ModelFile& file, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const NodeIndex index(file.graph);
    if (!index.find(name)) continue;
    const std::string other = free_name(index, name + "/of_graph");
    rename_node(file.graph, name, other);
    file.renamed[name] = other;
  }
}

void put_feeds(ModelFile& file, const GraphFeeds& feeds, const std::vector<InputColumn>& columns,
               bool evaluation, bool values_are_optional, Problems& problems) {
  const std::vector<std::string> used = feeds.used_columns();
  reserve_names(file, used);  // they belong to the columns' placeholders
  FeedWriter writer(file, problems);
  const auto put = [&](const std::string& value, const auto& write) {
    const auto name = file.value_of(value);
    if (!name) {
      if (!values_are_optional) problems.add("model.graph.feeds: there is no value '" + value + "'");
      return;
    }
    const ValueName at = parse_value_name(*name);
    try {
      write(at, declared_value(file.graph, *NodeIndex(file.graph).find(at.node), at.output));
    } catch (const InvalidArgument& error) {
      problems.add("model.graph.feeds: '" + value + "': " + error.message());
    }
  };
  for (const std::string& column : used) writer.put_placeholder(*find_column(columns, column));
  for (const auto& [value, constant] : feeds.constants)
    put(value, [&](const ValueName& at, const DeclaredValue& declared) {
      writer.put_constant(at, declared, evaluation ? constant.evaluation : constant.training);
    });
  for (const auto& [value, column] : feeds.columns)
    put(value, [&](const ValueName& at, const DeclaredValue& declared) {
      writer.put_column(value, at, declared, *find_column(columns, column));
    });
}

void check_all_fed(ModelFile& file, const std::vector<std::string>& roots,
                   const std::vector<std::string>& columns, Problems& problems) {
  const std::set<std::string> fed(columns.begin(), columns.end());
  const NodeIndex index(file.graph);
  std::vector<std::string> open;
  for (const NodeDef* node : index.above(roots)) {
    if (node->op() != "Placeholder" && node->op() != "PlaceholderV2") continue;
    if (fed.contains(node->name()) || file.fed_wrongly.contains(node->name())) continue;
    const DeclaredValue declared = declared_value(file.graph, *node, 0);
    std::string name = node->name();
    for (const auto& [was, is] : file.renamed)
      if (is == name) name = was;
    open.push_back(fmt::format("'{}' ({})", name, type_and_shape(declared.dtype, declared.shape)));
  }
  if (open.empty()) return;
  std::string text =
      fmt::format("{} placeholder{} no column:", open.size(), open.size() == 1 ? " has" : "s have");
  for (const std::string& one : open) text += "\n    " + one;
  text += "\n    feeds { value: \"" + open[0].substr(1, open[0].find('\'', 1) - 1) +
          "\" column: \"...\" }, or constant: \"...\"";
  problems.add(std::move(text));
}

}  // namespace braid::worker
