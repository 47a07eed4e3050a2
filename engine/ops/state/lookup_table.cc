// What lookups in TensorFlow's initialised tables become (engine/import/lower_tables.h). Where their inputs
// are known shape inference takes their values from here (OpDef::fold).
//   braid.LookupTableFind(x, default, keys, values): values[i] for the first i with keys[i] = x, else
//   default.
//     Its kernel is for a table that is known when it is compiled, from integers to numbers.
//   braid.TableOfFile(name): keys and values, one of each a line: a column, the whole line (-2) or its number
//     (-1); attributes key_index, value_index, vocab_size, delimiter, key_dtype, value_dtype
// Thread rule: pure functions, but for TableOfFile, which reads its file.
#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <sstream>
#include <unordered_map>

#include "base/error.h"
#include "base/files.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/parse_number.h"
#include "engine/ops/common/picked_elements.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

using Values = std::span<const Tensor* const>;

constexpr std::int64_t kLookupGrain = 4096;

// -----------------------------------------------------------------------------------------------------
// lookups

void infer_find(InferContext& c) {
  require_dtype(c, 0, {DType::String, DType::Int32, DType::Int64});
  c.require_same_dtype(0, 2);
  c.require_same_dtype(1, 3);
  c.require_rank(1, 0);
  for (const int i : {2, 3}) c.require_rank(i, 1);
  if (c.shape(2).is_static() && c.shape(3).is_static() && c.shape(2) != c.shape(3))
    c.fail(fmt::format("the table has {} keys and {} values", c.shape(2)[0], c.shape(3)[0]));
  c.output(c.dtype(1), c.shape(0));
}

template <class Key, class KeyAt>
std::vector<std::int64_t> places(const Tensor& x, const Tensor& keys, KeyAt key_at) {
  std::unordered_map<Key, std::int64_t> table;
  for (std::int64_t i = 0; i < keys.elements(); ++i) table.emplace(key_at(keys, i), i);
  std::vector<std::int64_t> found;
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    const auto at = table.find(key_at(x, i));
    found.push_back(at == table.end() ? -1 : at->second);
  }
  return found;
}

std::vector<Tensor> find(const Node&, Values inputs) {
  const Tensor &x = *inputs[0], &keys = *inputs[2];
  std::vector<std::int64_t> found;
  if (x.dtype() == DType::String) {
    found = places<std::string_view>(x, keys, [](const Tensor& t, std::int64_t i) { return t.string_at(i); });
  } else {
    with_index("LookupTableFind", x.dtype(), [&]<class T>() {
      found = places<T>(
          x, keys, [](const Tensor& t, std::int64_t i) { return t.data<T>()[static_cast<std::size_t>(i)]; });
    });
  }
  return {picked_elements(*inputs[3], *inputs[1], found, x.shape())};
}

/// The place of each key, and the values with the default behind them, as bytes.
struct KnownTable {
  std::unordered_map<std::int64_t, std::int64_t> places;
  std::vector<std::byte> values;
};

PreparedKernel prepare_find(const PrepareContext& c) {
  const Tensor *fallback = c.values[1], *keys = c.values[2], *values = c.values[3];
  if (c.inputs[0].dtype == DType::String || c.outputs[0].dtype == DType::String)
    c.fail("a training program has no strings: feed the numbers that the table gives");
  if (!fallback || !keys || !values) c.fail("its table and its default must be constants");
  const auto table = std::make_shared<KnownTable>();
  const std::vector<std::int64_t> of_keys = tensor_to_int64s(*keys);
  for (std::size_t i = 0; i < of_keys.size(); ++i)
    table->places.emplace(of_keys[i], static_cast<std::int64_t>(i));
  const std::size_t size = dtype_size(values->dtype()), bytes = of_keys.size() * size;
  table->values.resize(bytes + size);
  if (bytes > 0) std::memcpy(table->values.data(), values->raw(), bytes);
  std::memcpy(table->values.data() + bytes, fallback->raw(), size);
  const std::int64_t n = c.outputs[0].shape.elements();
  const bool narrow = c.inputs[0].dtype == DType::Int32;
  return parallel_kernel(c, n, kLookupGrain, [=](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t key = narrow ? a.in<std::int32_t>(0)[i] : a.in<std::int64_t>(0)[i];
      const auto at = table->places.find(key);
      const std::size_t from =
          at == table->places.end() ? bytes : static_cast<std::size_t>(at->second) * size;
      std::memcpy(a.out<std::byte>(0) + static_cast<std::size_t>(i) * size, table->values.data() + from,
                  size);
    }
  });
}

// --------------------------------------------------------------------------------------------------------
// files

constexpr std::int64_t kWholeLine = -2, kLineNumber = -1;

std::vector<std::string> lines_of(const Node& node, const std::string& file) {
  std::istringstream text(read_file(file));
  const auto most = node.attrs.get("vocab_size", std::int64_t{-1});
  std::vector<std::string> lines;
  for (std::string line; static_cast<std::int64_t>(lines.size()) != most && std::getline(text, line);) {
    std::erase(line, '\r');
    lines.push_back(std::move(line));
  }
  if (most >= 0 && static_cast<std::int64_t>(lines.size()) < most)
    throw InvalidArgument(fmt::format("{} has {} lines, expected {}", file, lines.size(), most));
  return lines;
}

std::string column_of(std::string_view line, std::int64_t column, char delimiter, const std::string& place) {
  if (column == kWholeLine) return std::string(line);
  for (std::int64_t i = 0;; ++i) {
    const std::size_t end = line.find(delimiter);
    if (i == column) return std::string(line.substr(0, end));
    if (end == std::string_view::npos)
      throw InvalidArgument(fmt::format("{}: there is no column {}", place, column));
    line.remove_prefix(end + 1);
  }
}

Tensor column(const Node& node, const std::vector<std::string>& lines, const std::string& file,
              const std::string& which) {
  const auto index = node.attrs.get(which + "_index", which == "key" ? kWholeLine : kLineNumber);
  const char delimiter = node.attrs.get("delimiter", std::string("\t"))[0];
  const auto dtype = node.attrs.require<DType>(which + "_dtype");
  const Shape shape{static_cast<std::int64_t>(lines.size())};
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < lines.size(); ++i)
    texts.push_back(index == kLineNumber
                        ? std::to_string(i)
                        : column_of(lines[i], index, delimiter, fmt::format("{}:{}", file, i + 1)));
  if (dtype == DType::String) return Tensor::strings(shape, texts);
  Tensor values(dtype, shape);
  with_number("TableOfFile", dtype, [&]<class T>() {
    for (std::size_t i = 0; i < texts.size(); ++i)
      if (!parse_number(texts[i], values.data<T>()[i]))
        throw InvalidArgument(fmt::format("{}:{}: '{}' is no {}", file, i + 1, texts[i], dtype_name(dtype)));
  });
  return values;
}

void infer_file(InferContext& c) {
  require_dtype(c, 0, {DType::String});
  c.require_rank(0, 0);
  if (c.attr("delimiter", std::string("\t")).size() != 1) c.fail("delimiter must be one character");
  std::int64_t lines = Shape::kUnknown;
  if (c.value(0))
    lines = static_cast<std::int64_t>(lines_of(c.node(), std::string(c.value(0)->string_at(0))).size());
  for (const char* which : {"key_dtype", "value_dtype"})
    c.output(c.node().attrs.require<DType>(which), Shape{lines});
}

std::vector<Tensor> read_table(const Node& node, Values inputs) {
  const std::string file(inputs[0]->string_at(0));
  const std::vector<std::string> lines = lines_of(node, file);
  return {column(node, lines, file, "key"), column(node, lines, file, "value")};
}

}  // namespace

void register_lookup_table(OpRegistry& registry) {
  OpDef lookup;
  lookup.name = "braid.LookupTableFind";
  lookup.traits = computes();
  lookup.min_inputs = lookup.max_inputs = 4;
  lookup.infer = infer_find;
  lookup.fold = find;
  lookup.cpu = prepare_find;
  lookup.no_gradient_reason = "a table's values do not change gradually";
  registry.add(std::move(lookup));
  OpDef file;
  file.name = "braid.TableOfFile";
  file.traits = computes().names({"keys", "values"});
  file.min_inputs = file.max_inputs = 1;
  file.infer = infer_file;
  file.fold = read_table;
  file.no_gradient_reason = "it reads a file";
  registry.add(std::move(file));
}

}  // namespace braid
