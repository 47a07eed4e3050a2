// Example { Features features = 1 };  Features { map<string, Feature> feature = 1 };
// Feature { BytesList 1 | FloatList 2 | Int64List 3 }, each { repeated value = 1 }, numbers packed or not.
#include "engine/ops/text/parse_example.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <optional>

#include "base/formats/proto_wire.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

using Values = std::span<const Tensor* const>;

/// Of one record, or of one feature in all records, one after the other.
struct Feature {
  DType dtype = DType::Invalid;  // Float32, Int64, String; Invalid: no list was there
  std::vector<float> floats;
  std::vector<std::int64_t> integers;
  std::vector<std::string> texts;

  std::int64_t size() const {
    return static_cast<std::int64_t>(floats.size() + integers.size() + texts.size());
  }
  void append(const Feature& other) {
    floats.insert(floats.end(), other.floats.begin(), other.floats.end());
    integers.insert(integers.end(), other.integers.begin(), other.integers.end());
    texts.insert(texts.end(), other.texts.begin(), other.texts.end());
  }
  Tensor tensor(DType type, Shape shape) const {
    if (type == DType::Float32) return Tensor::from<float>(std::move(shape), floats);
    if (type == DType::Int64) return Tensor::from<std::int64_t>(std::move(shape), integers);
    return Tensor::strings(std::move(shape), texts);
  }
};

void read_values(WireReader list, Feature& feature) {
  while (list.next()) {
    if (list.field() != 1) continue;
    if (feature.dtype == DType::String && list.type() == WireType::Bytes) {
      feature.texts.emplace_back(list.bytes());
    } else if (feature.dtype == DType::Float32 && list.type() == WireType::Fixed32) {
      feature.floats.push_back(std::bit_cast<float>(list.fixed32()));
    } else if (feature.dtype == DType::Float32 && list.type() == WireType::Bytes) {
      const std::string_view packed = list.bytes();
      const std::size_t before = feature.floats.size(), count = packed.size() / sizeof(float);
      feature.floats.resize(before + count);
      std::copy_n(packed.data(), count * sizeof(float),
                  reinterpret_cast<char*>(feature.floats.data() + before));
    } else if (feature.dtype == DType::Int64 && list.type() == WireType::Varint) {
      feature.integers.push_back(static_cast<std::int64_t>(list.varint()));
    } else if (feature.dtype == DType::Int64 && list.type() == WireType::Bytes) {
      for (WireReader packed(list.bytes()); !packed.at_end();)
        feature.integers.push_back(static_cast<std::int64_t>(packed.read_varint()));
    }
  }
}

Feature read_feature(WireReader message) {
  constexpr DType kTypes[] = {DType::Invalid, DType::String, DType::Float32, DType::Int64};
  Feature feature;
  while (message.next()) {
    if (message.type() != WireType::Bytes || message.field() > 3) continue;
    feature = {};
    feature.dtype = kTypes[message.field()];
    read_values(message.message(), feature);
  }
  return feature;
}

std::map<std::string, Feature, std::less<>> read_example(std::string_view record) {
  std::map<std::string, Feature, std::less<>> features;
  for (WireReader example(record); example.next();) {
    if (!example.is(1, WireType::Bytes)) continue;
    for (WireReader map = example.message(); map.next();) {
      if (!map.is(1, WireType::Bytes)) continue;
      std::string name;
      Feature feature;
      for (WireReader entry = map.message(); entry.next();) {
        if (entry.is(1, WireType::Bytes)) name = entry.bytes();
        if (entry.is(2, WireType::Bytes)) feature = read_feature(entry.message());
      }
      features.insert_or_assign(std::move(name), std::move(feature));
    }
  }
  return features;
}

/// Of a feature [?, row...], as many rows as a record has; nothing where the shape is another.
std::optional<Shape> row_shape(const Shape& shape) {
  if (!shape.has_rank() || shape.rank() == 0 || shape[0] != Shape::kUnknown) return std::nullopt;
  Shape row(std::vector<std::int64_t>(shape.dims().begin() + 1, shape.dims().end()));
  return row.is_static() ? std::optional(std::move(row)) : std::nullopt;
}

/// What a node's inputs and attributes say. `value` gives the value of an input, null where it is not known.
struct Spec {
  std::vector<std::string> sparse, dense, ragged;  // keys
  std::vector<DType> sparse_types, dense_types, ragged_types, split_types;
  std::vector<Shape> dense_shapes;
  std::size_t first_default = 0;
  bool is_known = true;  // the keys

  template <class Value>
  Spec(const Node& node, std::size_t inputs, Value value) {
    const AttrMap& attrs = node.attrs;
    const auto types = [&](const char* name) { return attrs.get(name, std::vector<DType>{}); };
    sparse_types = types("sparse_types");
    dense_types = types("Tdense");
    ragged_types = types("ragged_value_types");
    split_types = types("ragged_split_types");
    dense_shapes = attrs.get("dense_shapes", std::vector<Shape>{});
    const auto add = [&](std::size_t input, std::vector<std::string>& keys) {
      const Tensor* tensor = input < inputs ? value(input) : nullptr;
      if (tensor && tensor->dtype() != DType::String)
        throw InvalidArgument(
            fmt::format("input {} has keys, which are strings, not {}", input, dtype_name(tensor->dtype())));
      is_known = is_known && tensor != nullptr;
      for (std::int64_t i = 0; tensor && i < tensor->elements(); ++i) keys.emplace_back(tensor->string_at(i));
    };
    std::size_t at = 2;
    if (node.op->name == "ParseSingleExample") {
      sparse = attrs.get("sparse_keys", std::vector<std::string>{});
      dense = attrs.get("dense_keys", std::vector<std::string>{});
      at = 1;
    } else if (node.op->name == "ParseExampleV2") {
      for (auto* keys : {&sparse, &dense, &ragged}) add(at++, *keys);
    } else {  // a scalar a key
      for (std::size_t i = 0; i < sparse_types.size(); ++i) add(at++, sparse);
      for (std::size_t i = 0; i < dense_types.size(); ++i) add(at++, dense);
    }
    first_default = at;
  }

  /// Empty when everything fits.
  std::string problem(std::size_t inputs) const {
    if (dense_shapes.size() != dense_types.size())
      return fmt::format("{} dense_shapes, {} types", dense_shapes.size(), dense_types.size());
    if (first_default + dense_types.size() != inputs)
      return fmt::format("{} inputs, expected {}", inputs, first_default + dense_types.size());
    if (is_known && (sparse.size() != sparse_types.size() || dense.size() != dense_types.size() ||
                     ragged.size() != ragged_types.size() || split_types.size() != ragged_types.size()))
      return "as many keys as types are needed";
    for (const Shape& shape : dense_shapes)
      if (!shape.is_static() && !row_shape(shape))
        return "only the first axis of a dense feature may be unknown, got " + shape.to_string();
    for (const auto* types : {&sparse_types, &dense_types, &ragged_types})
      for (const DType type : *types)
        if (type != DType::Float32 && type != DType::Int64 && type != DType::String)
          return "features are float32, int64 or string, not " + std::string(dtype_name(type));
    for (const DType type : split_types)
      if (type != DType::Int32 && type != DType::Int64) return "ragged splits must be int32 or int64";
    return {};
  }

  /// The same of the default of dense feature i.
  std::string problem_of_default(std::size_t i, const Tensor& given) const {
    if (given.elements() <= 1) return {};
    if (row_shape(dense_shapes[i]))
      return fmt::format("the default of dense feature {} fills it up, so it must have one element, not {}",
                         i, given.elements());
    if (given.elements() != dense_shapes[i].elements())
      return fmt::format("the default of dense feature {} has {} elements, its shape is {}", i,
                         given.elements(), dense_shapes[i].to_string());
    return {};
  }
};

Tensor integers(DType dtype, const std::vector<std::int64_t>& values) {
  const Shape shape{static_cast<std::int64_t>(values.size())};
  if (dtype == DType::Int64) return Tensor::from<std::int64_t>(shape, values);
  return Tensor::from<std::int32_t>(shape, std::vector<std::int32_t>(values.begin(), values.end()));
}

class ExampleParser {
 public:
  ExampleParser(const Spec& spec, Values inputs)
      : spec_(spec), inputs_(inputs), is_single_(inputs[0]->shape().rank() == 0) {
    const Tensor& records = *inputs[0];
    for (std::int64_t r = 0; r < records.elements(); ++r) {
      try {
        examples_.push_back(read_example(records.string_at(r)));
      } catch (const DataLoss& error) {
        throw InvalidArgument(fmt::format("record {} is no tf.train.Example: {}", r, error.message()));
      }
    }
  }

  std::vector<Tensor> run() {
    std::vector<Tensor> indices, values, shapes, dense, ragged, splits;
    for (std::size_t i = 0; i < spec_.sparse.size(); ++i) add_sparse(i, indices, values, shapes);
    for (std::size_t i = 0; i < spec_.dense.size(); ++i) dense.push_back(dense_feature(i));
    for (std::size_t i = 0; i < spec_.ragged.size(); ++i) add_ragged(i, ragged, splits);
    std::vector<Tensor> all;
    for (auto* part : {&indices, &values, &shapes, &dense, &ragged, &splits})
      all.insert(all.end(), part->begin(), part->end());
    return all;
  }

 private:
  std::int64_t count() const { return static_cast<std::int64_t>(examples_.size()); }

  /// Null when the record has none. Throws for one of another type.
  const Feature* find(std::size_t record, const std::string& key, DType dtype) const {
    const auto at = examples_[record].find(key);
    if (at == examples_[record].end() || at->second.dtype == DType::Invalid) return nullptr;
    if (at->second.dtype != dtype)
      throw InvalidArgument(fmt::format("record {}: feature '{}' is {}, not {}", record, key,
                                        dtype_name(at->second.dtype), dtype_name(dtype)));
    return &at->second;
  }

  void add_sparse(std::size_t i, std::vector<Tensor>& indices, std::vector<Tensor>& values,
                  std::vector<Tensor>& shapes) const {
    Feature all;
    std::vector<std::int64_t> places;
    std::int64_t longest = 0;
    for (std::size_t r = 0; r < examples_.size(); ++r) {
      const Feature* feature = find(r, spec_.sparse[i], spec_.sparse_types[i]);
      if (!feature) continue;
      for (std::int64_t k = 0; k < feature->size(); ++k)
        if (is_single_)
          places.push_back(k);
        else
          places.insert(places.end(), {static_cast<std::int64_t>(r), k});
      longest = std::max(longest, feature->size());
      all.append(*feature);
    }
    indices.push_back(Tensor::from<std::int64_t>({all.size(), is_single_ ? 1 : 2}, places));
    values.push_back(all.tensor(spec_.sparse_types[i], {all.size()}));
    shapes.push_back(is_single_
                         ? Tensor::from<std::int64_t>({1}, std::vector<std::int64_t>{longest})
                         : Tensor::from<std::int64_t>({2}, std::vector<std::int64_t>{count(), longest}));
  }

  Tensor dense_feature(std::size_t i) const {
    const Shape& shape = spec_.dense_shapes[i];
    const DType dtype = spec_.dense_types[i];
    const Tensor& fallback = *inputs_[spec_.first_default + i];
    if (const auto row = row_shape(shape)) return padded_feature(i, *row);
    constexpr std::int64_t kMostValues = 1 << 28;  // a default of one element can ask for any number
    if (count() > 0 && shape.elements() > kMostValues / count())
      throw InvalidArgument(fmt::format("feature '{}': {} records of shape {} are more than {} values",
                                        spec_.dense[i], count(), shape.to_string(), kMostValues));
    Feature all;
    for (std::size_t r = 0; r < examples_.size(); ++r) {
      const Feature* feature = find(r, spec_.dense[i], dtype);
      if (feature && feature->size() != shape.elements())
        throw InvalidArgument(fmt::format("record {}: feature '{}' has {} values, its shape is {}", r,
                                          spec_.dense[i], feature->size(), shape.to_string()));
      if (!feature && fallback.elements() == 0 && shape.elements() != 0)
        throw InvalidArgument(
            fmt::format("record {}: feature '{}' is required, but missing", r, spec_.dense[i]));
      if (feature)
        all.append(*feature);
      else
        append_default(fallback, shape.elements(), all);
    }
    std::vector<std::int64_t> dims;
    if (!is_single_) dims.push_back(count());
    dims.insert(dims.end(), shape.dims().begin(), shape.dims().end());
    return all.tensor(dtype, Shape(std::move(dims)));
  }

  /// [records, rows of the longest one, row...], the shorter ones filled up with the default, or with zeros.
  Tensor padded_feature(std::size_t i, const Shape& row) const {
    const DType dtype = spec_.dense_types[i];
    const std::int64_t width = row.elements();
    std::int64_t longest = 0;
    for (std::size_t r = 0; r < examples_.size(); ++r) {
      const Feature* feature = find(r, spec_.dense[i], dtype);
      const std::int64_t size = feature ? feature->size() : 0;
      if (width == 0 ? size != 0 : size % width != 0)
        throw InvalidArgument(fmt::format("record {}: feature '{}' has {} values, no multiple of {}", r,
                                          spec_.dense[i], size, width));
      longest = std::max(longest, width == 0 ? 0 : size / width);
    }
    const Tensor& given = *inputs_[spec_.first_default + i];
    const Tensor filler = given.elements() == 1    ? given
                          : dtype == DType::String ? Tensor::strings(Shape{1}, std::vector<std::string>{""})
                                                   : Tensor::zeros(dtype, Shape{1});
    Feature all;
    for (std::size_t r = 0; r < examples_.size(); ++r) {
      const Feature* feature = find(r, spec_.dense[i], dtype);
      if (feature) all.append(*feature);
      append_default(filler, longest * width - (feature ? feature->size() : 0), all);
    }
    std::vector<std::int64_t> dims;
    if (!is_single_) dims.push_back(count());
    dims.push_back(longest);
    dims.insert(dims.end(), row.dims().begin(), row.dims().end());
    return all.tensor(dtype, Shape(std::move(dims)));
  }

  /// A default of one element stands for all of them.
  static void append_default(const Tensor& fallback, std::int64_t elements, Feature& all) {
    for (std::int64_t k = 0; k < elements; ++k) {
      const std::int64_t at = fallback.elements() == 1 ? 0 : k;
      const auto from = static_cast<std::size_t>(at);
      if (fallback.dtype() == DType::Float32)
        all.floats.push_back(fallback.data<float>()[from]);
      else if (fallback.dtype() == DType::Int64)
        all.integers.push_back(fallback.data<std::int64_t>()[from]);
      else
        all.texts.emplace_back(fallback.string_at(at));
    }
  }

  void add_ragged(std::size_t i, std::vector<Tensor>& values, std::vector<Tensor>& splits) const {
    Feature all;
    std::vector<std::int64_t> ends{0};
    for (std::size_t r = 0; r < examples_.size(); ++r) {
      if (const Feature* feature = find(r, spec_.ragged[i], spec_.ragged_types[i])) all.append(*feature);
      ends.push_back(all.size());
    }
    values.push_back(all.tensor(spec_.ragged_types[i], {all.size()}));
    splits.push_back(integers(spec_.split_types[i], ends));
  }

  const Spec& spec_;
  Values inputs_;
  bool is_single_;  // one record, not a batch of one
  std::vector<std::map<std::string, Feature, std::less<>>> examples_;
};

}  // namespace

void infer_parse_example(InferContext& c) {
  require_dtype(c, 0, {DType::String});
  const bool may_be_single = c.node().op->name == "ParseExampleV2";
  const bool must_be_single = c.node().op->name == "ParseSingleExample";
  if (!may_be_single) c.require_rank(0, must_be_single ? 0 : 1);
  const bool has_rank = c.shape(0).has_rank() || !may_be_single;
  const bool is_single = must_be_single || (c.shape(0).has_rank() && c.shape(0).rank() == 0);
  if (!is_single && c.shape(0).has_rank()) c.require_rank(0, 1);
  const auto inputs = static_cast<std::size_t>(c.inputs());
  const Spec spec(c.node(), inputs, [&](std::size_t i) { return c.value(static_cast<int>(i)); });
  if (const std::string problem = spec.problem(inputs); !problem.empty()) c.fail(problem);
  if (is_single && !spec.ragged_types.empty()) c.fail("ragged features of one record are not supported");
  std::vector<const Tensor*> values;
  for (int i = 0; i < c.inputs(); ++i) values.push_back(c.value(i));
  for (std::size_t i = 0; i < spec.dense_types.size(); ++i) {
    const auto at = static_cast<int>(spec.first_default + i);
    require_dtype(c, at, {spec.dense_types[i]});
    const Tensor* fallback = c.value(at);
    const std::string problem = fallback ? spec.problem_of_default(i, *fallback) : std::string();
    if (!problem.empty()) c.fail(problem);
  }
  if (std::all_of(values.begin(), values.end(), [](const Tensor* value) { return value != nullptr; })) {
    for (const Tensor& tensor : ExampleParser(spec, values).run()) c.output(tensor.dtype(), tensor.shape());
    return;
  }
  const std::int64_t n = c.shape(0).has_rank() && !is_single ? c.shape(0)[0] : Shape::kUnknown;
  const std::int64_t axes = !has_rank ? Shape::kUnknown : is_single ? 1 : 2;
  for (std::size_t i = 0; i < spec.sparse_types.size(); ++i)
    c.output(DType::Int64, Shape{Shape::kUnknown, axes});
  for (const DType type : spec.sparse_types) c.output(type, Shape{Shape::kUnknown});
  for (std::size_t i = 0; i < spec.sparse_types.size(); ++i) c.output(DType::Int64, Shape{axes});
  for (std::size_t i = 0; i < spec.dense_types.size(); ++i) {
    std::vector<std::int64_t> dims;
    if (!is_single) dims.push_back(n);
    dims.insert(dims.end(), spec.dense_shapes[i].dims().begin(), spec.dense_shapes[i].dims().end());
    if (!has_rank) {
      c.output(spec.dense_types[i], Shape::unknown_rank());
      continue;
    }
    c.output(spec.dense_types[i], Shape(std::move(dims)));
  }
  for (const DType type : spec.ragged_types) c.output(type, Shape{Shape::kUnknown});
  for (const DType type : spec.split_types) c.output(type, Shape{n == Shape::kUnknown ? n : n + 1});
}

std::vector<Tensor> parse_example(const Node& node, Values inputs) {
  const Spec spec(node, inputs.size(), [&](std::size_t i) { return inputs[i]; });
  std::string problem = spec.problem(inputs.size());  // infer knew small values only
  for (std::size_t i = 0; problem.empty() && i < spec.dense.size(); ++i)
    problem = spec.problem_of_default(i, *inputs[spec.first_default + i]);
  if (!problem.empty()) throw InvalidArgument(problem);
  return ExampleParser(spec, inputs).run();
}

}  // namespace braid
