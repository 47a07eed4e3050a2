// Ops that make or take apart strings. Programs compute no strings, so these have no kernels: where their
// inputs are known at compile time shape inference takes their values from here (OpDef::fold).
//   AsString(x), attributes precision, scientific, shortest, width, fill: numbers as printf writes them
//   StringJoin(x...), attribute separator: element by element, scalars repeat
//   StringSplit(x, delimiters), attribute skip_empty: each character of `delimiters` separates
//   StringSplitV2(x, sep), attribute maxsplit: the whole of `sep` does; white space where it is empty.
//     The parts of all strings as a sparse matrix: indices [n, 2], values [n], shape [2]
//   StringLower(x), StringUpper(x): of the ASCII letters; StringStrip(x): without white space at both ends
//   StringLength(x): in bytes
//   ShardedFilename(base, shard, shards): base-00001-of-00004
//   ReadFile(name): the file's bytes
//   DecodeCSV: decode_csv.h
//   ParseExample, ParseExampleV2, ParseSingleExample: parse_example.h
// Thread rule: pure functions, but for ReadFile, which reads its file.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/c_locale.h"
#include "base/error.h"
#include "base/files.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/folded_ops.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/text/decode_csv.h"
#include "engine/ops/text/parse_example.h"

namespace braid {
namespace {

using Values = std::span<const Tensor* const>;
using Strings = std::vector<std::string>;

constexpr std::string_view kSpace = " \t\n\v\f\r";

void require_string(const InferContext& c, int input) { require_dtype(c, input, {DType::String}); }

// ------------------------------------------------------------------------------------------------- AsString

void infer_as_string(InferContext& c) {
  if (c.dtype(0) != DType::Bool) require_number(c, 0);
  if (c.attr("scientific", false) && c.attr("shortest", false))
    c.fail("scientific and shortest exclude each other");
  constexpr std::int64_t kWidest = 65536;
  for (const char* size : {"width", "precision"})
    if (const auto value = c.attr(size, std::int64_t{-1}); value > kWidest)
      c.fail(fmt::format("{} is {}", size, value));
  const std::string fill = c.attr("fill", std::string());
  if (fill.size() > 1) c.fail("fill must be one character");
  if (fill.find_first_not_of(" +-0#") != std::string::npos) c.fail("fill '" + fill + "' is not supported");
  c.output(DType::String, c.shape(0));
}

template <class T>
std::string printed(const std::string& format, T value) {
  const InCLocale locale;
  std::string text(static_cast<std::size_t>(std::snprintf(nullptr, 0, format.c_str(), value)), '\0');
  std::snprintf(text.data(), text.size() + 1, format.c_str(), value);
  return text;
}

std::vector<Tensor> as_string(const Node& node, Values inputs) {
  const auto precision = static_cast<int>(node.attrs.get("precision", std::int64_t{-1}));
  const auto width = node.attrs.get("width", std::int64_t{-1});
  const std::string fill = node.attrs.get("fill", std::string());
  const char letter = node.attrs.get("scientific", false) ? 'e'
                      : node.attrs.get("shortest", false) ? 'g'
                                                          : 'f';
  // What fills is a flag of printf.
  const std::string head = "%" + fill + (width > 0 ? std::to_string(width) : "");
  const std::string format = precision < 0 ? head + letter : fmt::format("{}.{}{}", head, precision, letter);
  const Tensor& x = *inputs[0];
  Strings texts;
  with_number_or_bool("AsString", x.dtype(), [&]<class T>() {
    for (const T value : x.data<T>()) {
      std::string text;
      if constexpr (std::is_same_v<T, bool>) {
        text = value ? "true" : "false";
      } else if constexpr (std::is_floating_point_v<T>) {
        text = printed(format, static_cast<double>(value));
      } else {
        text = printed(head + "lld", static_cast<long long>(value));
      }
      texts.push_back(std::move(text));
    }
  });
  return {Tensor::strings(x.shape(), texts)};
}

// ----------------------------------------------------------------------------------------------- StringJoin

void infer_join(InferContext& c) {
  Shape shape;
  bool is_scalar = true;
  for (int i = 0; i < c.inputs(); ++i) {
    require_string(c, i);
    if (c.shape(i).has_rank() && c.shape(i).rank() == 0) continue;
    Shape merged;
    if (!merge_shapes(is_scalar ? c.shape(i) : shape, c.shape(i), merged))
      c.fail(fmt::format("inputs must have one shape, got {} and {}", shape.to_string(),
                         c.shape(i).to_string()));
    shape = merged;
    is_scalar = false;
  }
  c.output(DType::String, shape);
}

std::vector<Tensor> join(const Node& node, Values inputs) {
  const std::string separator = node.attrs.get("separator", std::string());
  const Shape& shape = node.outputs[0].shape;
  Strings texts(static_cast<std::size_t>(shape.elements()));
  for (std::size_t k = 0; k < texts.size(); ++k)
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      if (i > 0) texts[k] += separator;
      texts[k] += inputs[i]->string_at(inputs[i]->elements() == 1 ? 0 : static_cast<std::int64_t>(k));
    }
  return {Tensor::strings(shape, texts)};
}

// ---------------------------------------------------------------------------------------------- StringSplit

std::vector<std::string_view> split_at_any(std::string_view text, std::string_view delimiters,
                                           bool skip_empty) {
  std::vector<std::string_view> parts;
  if (text.empty()) return parts;
  while (true) {
    const std::size_t end = text.find_first_of(delimiters);
    if (const std::string_view part = text.substr(0, end); !part.empty() || !skip_empty)
      parts.push_back(part);
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

/// After `max_splits` parts comes the rest, even where it is empty, as TensorFlow has it.
std::vector<std::string_view> split_at_space(std::string_view text, std::int64_t max_splits) {
  std::vector<std::string_view> parts;
  const auto skip_space = [&] { text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size())); };
  skip_space();
  while (!text.empty()) {
    const std::size_t end = std::min(text.find_first_of(kSpace), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end);
    skip_space();
    if (max_splits > 0 && static_cast<std::int64_t>(parts.size()) == max_splits) {
      parts.push_back(text);
      break;
    }
  }
  return parts;
}

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator,
                                       std::int64_t max_splits) {
  if (separator.empty()) return split_at_space(text, max_splits);
  std::vector<std::string_view> parts;
  while (true) {
    const bool is_last = max_splits > 0 && static_cast<std::int64_t>(parts.size()) >= max_splits;
    const std::size_t end = is_last ? std::string_view::npos : text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + separator.size());
  }
}

std::vector<std::string_view> parts_of(const Node& node, std::string_view text, std::string_view separator) {
  if (node.op->name == "StringSplitV2") {
    const auto most = node.attrs.get("maxsplit", std::int64_t{-1});
    return most == 0 ? std::vector{text} : split_at(text, separator, most);
  }
  if (separator.empty()) {  // one part a byte
    std::vector<std::string_view> bytes;
    for (std::size_t i = 0; i < text.size(); ++i) bytes.push_back(text.substr(i, 1));
    return bytes;
  }
  return split_at_any(text, separator, node.attrs.get("skip_empty", true));
}

void infer_split(InferContext& c) {
  require_string(c, 0);
  require_string(c, 1);
  c.require_rank(0, 1);
  c.require_rank(1, 0);
  std::int64_t parts = Shape::kUnknown;
  if (c.value(0) && c.value(1)) {
    parts = 0;
    for (std::int64_t i = 0; i < c.value(0)->elements(); ++i)
      parts += static_cast<std::int64_t>(
          parts_of(c.node(), c.value(0)->string_at(i), c.value(1)->string_at(0)).size());
  }
  c.output(DType::Int64, Shape{parts, 2});
  c.output(DType::String, Shape{parts});
  c.output(DType::Int64, Shape{2});
}

std::vector<Tensor> split(const Node& node, Values inputs) {
  std::vector<std::int64_t> indices;
  Strings texts;
  std::int64_t longest = 0;
  for (std::int64_t i = 0; i < inputs[0]->elements(); ++i) {
    std::int64_t k = 0;
    for (const std::string_view part : parts_of(node, inputs[0]->string_at(i), inputs[1]->string_at(0))) {
      indices.insert(indices.end(), {i, k++});
      texts.emplace_back(part);
    }
    longest = std::max(longest, k);
  }
  const auto n = static_cast<std::int64_t>(texts.size());
  const std::vector<std::int64_t> shape{inputs[0]->elements(), longest};
  return {Tensor::from<std::int64_t>({n, 2}, indices), Tensor::strings({n}, texts),
          Tensor::from<std::int64_t>({2}, shape)};
}

// -------------------------------------------------------------------------------------------- element by
// element

void infer_text(InferContext& c) {
  require_string(c, 0);
  if (!c.attr("encoding", std::string()).empty()) c.fail("only bytes are supported, not encoded characters");
  c.output(DType::String, c.shape(0));
}

template <class Change>
std::vector<Tensor> changed(const Tensor& x, Change change) {
  Strings texts;
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    std::string text(x.string_at(i));
    change(text);
    texts.push_back(std::move(text));
  }
  return {Tensor::strings(x.shape(), texts)};
}

std::vector<Tensor> to_lower(const Node&, Values inputs) {
  return changed(*inputs[0], [](std::string& text) {
    for (char& c : text)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  });
}

std::vector<Tensor> to_upper(const Node&, Values inputs) {
  return changed(*inputs[0], [](std::string& text) {
    for (char& c : text)
      if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  });
}

std::vector<Tensor> strip(const Node&, Values inputs) {
  return changed(*inputs[0], [](std::string& text) {
    text.erase(0, std::min(text.find_first_not_of(kSpace), text.size()));
    text.erase(text.find_last_not_of(kSpace) + 1);
  });
}

void infer_length(InferContext& c) {
  require_string(c, 0);
  if (c.attr("unit", std::string("BYTE")) != "BYTE") c.fail("unit must be BYTE");
  c.output(DType::Int32, c.shape(0));
}

std::vector<Tensor> lengths(const Node&, Values inputs) {
  Tensor result(DType::Int32, inputs[0]->shape());
  for (std::int64_t i = 0; i < result.elements(); ++i)
    result.data<std::int32_t>()[static_cast<std::size_t>(i)] =
        static_cast<std::int32_t>(inputs[0]->string_at(i).size());
  return {result};
}

// ---------------------------------------------------------------------------------------------------- files

void infer_sharded(InferContext& c) {
  require_string(c, 0);
  for (int i = 0; i < 3; ++i) c.require_rank(i, 0);
  for (const int i : {1, 2}) require_dtype(c, i, {DType::Int32});
  c.output(DType::String, Shape{});
}

std::vector<Tensor> sharded(const Node&, Values inputs) {
  const Strings text{fmt::format("{}-{:05}-of-{:05}", inputs[0]->string_at(0),
                                 inputs[1]->data<std::int32_t>()[0], inputs[2]->data<std::int32_t>()[0])};
  return {Tensor::strings({}, text)};
}

void infer_read_file(InferContext& c) {
  require_string(c, 0);
  c.require_rank(0, 0);
  c.output(DType::String, Shape{});
}

std::vector<Tensor> read_whole_file(const Node&, Values inputs) {
  const Strings text{read_file(std::string(inputs[0]->string_at(0)))};
  return {Tensor::strings({}, text)};
}

OpTraits joins() { return computes().type_attrs({}); }
OpTraits splits() { return computes().names({"indices", "values", "shape"}); }
OpTraits fields() { return computes().output_list(); }
OpTraits features() {
  return computes().output_lists({{"sparse_indices", "sparse_types"},
                                  {"sparse_values", "sparse_types"},
                                  {"sparse_shapes", "sparse_types"},
                                  {"dense_values", "Tdense"},
                                  {"ragged_values", "ragged_value_types"},
                                  {"ragged_row_splits", "ragged_value_types"}});
}

constexpr FoldedOp kOps[] = {
    {"AsString", 1, 1, infer_as_string, as_string},
    {"StringJoin", 1, -1, infer_join, join, joins},
    {"StringSplit", 2, 2, infer_split, split, splits},
    {"StringSplitV2", 2, 2, infer_split, split, splits},
    {"StringLower", 1, 1, infer_text, to_lower},
    {"StringUpper", 1, 1, infer_text, to_upper},
    {"StringStrip", 1, 1, infer_text, strip},
    {"StringLength", 1, 1, infer_length, lengths},
    {"ShardedFilename", 3, 3, infer_sharded, sharded},
    {"ReadFile", 1, 1, infer_read_file, read_whole_file},
    {"DecodeCSV", 2, -1, infer_csv, decode_csv, fields},
    {"ParseExample", 2, -1, infer_parse_example, parse_example, features},
    {"ParseExampleV2", 5, -1, infer_parse_example, parse_example, features},
    {"ParseSingleExample", 1, -1, infer_parse_example, parse_example, features},
};

}  // namespace

void register_text_ops(OpRegistry& registry) { register_folded_ops(registry, kOps, "it makes text"); }

}  // namespace braid
