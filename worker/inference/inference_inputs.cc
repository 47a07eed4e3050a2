#include "worker/inference/inference_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/env.h"
#include "base/error.h"
#include "base/init.h"
#include "base/log.h"
#include "engine/ir/op.h"
#include "engine/ops/common/dispatch.h"
#include "worker/input/npy_tensor.h"

namespace braid::worker {
namespace {

/// The shape without what is unknown.
Shape fitted(Shape shape, std::int64_t batch, const std::string& name) {
  if (!shape.has_rank())
    throw InvalidArgument(fmt::format(
        "input '{}' has no shape in the graph: give --input {}=-1,... with -1 for the batch", name, name));
  for (int axis = 0; axis < shape.rank(); ++axis)
    if (shape[axis] == Shape::kUnknown) shape.set_dim(axis, batch);
  return shape;
}

Tensor drawn(DType dtype, const Shape& shape, const std::string& name, const FeedOptions& options) {
  if (dtype == DType::String)
    throw InvalidArgument("input '" + name + "' holds text: give --input a .npy file");
  Tensor tensor(dtype, shape);
  const auto elements = static_cast<std::size_t>(tensor.elements());
  const RngKey key = make_rng_key(options.seed, name);
  if (is_floating(dtype)) {
    std::vector<float> uniform(elements);
    fill_uniform01(key, 0, uniform);
    return converted(Tensor::from<float>(shape, uniform), dtype, "input '" + name + "'");
  }
  std::vector<std::uint32_t> bits(elements);
  fill_bits(key, 0, bits);
  with_number_or_bool("input", dtype, [&]<class T>() {
    for (std::size_t i = 0; i < elements; ++i)
      reinterpret_cast<T*>(tensor.raw())[i] =
          static_cast<T>(bits[i] % static_cast<std::uint32_t>(options.max_id));
  });
  return tensor;
}

Tensor text_rows(const Tensor& tensor, const Shape& shape, std::int64_t first) {
  std::vector<std::string> words;
  for (std::int64_t i = first; i < first + shape.elements(); ++i) words.emplace_back(tensor.string_at(i));
  return Tensor::strings(shape, words);
}

/// Rows of `tensor` in batches; a remainder is left out.
std::vector<Tensor> batches(const Tensor& tensor, std::int64_t batch, const std::string& file) {
  if (tensor.shape().rank() == 0 || tensor.shape()[0] < batch)
    throw InvalidArgument(
        fmt::format("{}: {} has fewer rows than a batch of {}", file, tensor.shape().to_string(), batch));
  const std::int64_t rows = tensor.shape()[0];
  if (rows % batch != 0)
    log_warning("{}: skipping the last {} of {} rows, which do not fill a batch of {}", file, rows % batch,
                rows, batch);
  Shape shape = tensor.shape();
  shape.set_dim(0, batch);
  std::vector<Tensor> all;
  for (std::int64_t row = 0; row + batch <= rows; row += batch) {
    if (tensor.dtype() == DType::String) {
      all.push_back(text_rows(tensor, shape, static_cast<std::int64_t>(all.size()) * shape.elements()));
      continue;
    }
    Tensor part(tensor.dtype(), shape);
    std::memcpy(part.raw(), tensor.raw() + all.size() * part.bytes(), part.bytes());
    all.push_back(std::move(part));
  }
  return all;
}

/// Whether the first axis of what the graph expects is the batch's.
bool has_rows(const OutputInfo& info) {
  return !info.shape.has_rank() || (info.shape.rank() > 0 && info.shape[0] == Shape::kUnknown);
}

/// One for each request, of a file with rows, or one for all.
std::vector<Tensor> values_of(const OutputInfo& info, const InferenceInput& input,
                              const FeedOptions& options) {
  if (input.file.empty())
    return {drawn(info.dtype, fitted(input.shape.value_or(info.shape), options.batch, input.name), input.name,
                  options)};
  const Tensor whole =
      converted(read_npy_tensor(input.file), info.dtype, fmt::format("input {}={}", input.name, input.file));
  if (!has_rows(info)) return {whole};
  return batches(whole, options.batch, input.file);
}

}  // namespace

InferenceInput parse_inference_input(const std::string& text) {
  const std::size_t at = text.find('=');
  InferenceInput input;
  input.name = text.substr(0, at);
  if (input.name.ends_with(":0")) input.name.resize(input.name.size() - 2);
  if (input.name.empty())
    throw InvalidArgument("input '" + text + "': expected name, name=shape or name=file.npy");
  if (at == std::string::npos) return input;
  const std::string value = text.substr(at + 1);
  std::vector<std::int64_t> dims;
  bool is_shape = !value.empty();
  for (std::size_t begin = 0; is_shape && begin <= value.size();) {
    const std::size_t end = std::min(value.find(',', begin), value.size());
    const auto dim = parse_int(value.substr(begin, end - begin));
    is_shape = dim.has_value();
    if (dim && (*dim < -1 || *dim == 0))
      throw InvalidArgument("input '" + text + "': sizes are positive, or -1 for the batch");
    dims.push_back(dim.value_or(0) == -1 ? Shape::kUnknown : dim.value_or(0));
    begin = end + 1;
  }
  if (is_shape)
    input.shape = Shape(std::move(dims));
  else if (value.ends_with(".npy"))
    input.file = value;
  else
    throw InvalidArgument("input '" + text + "': '" + value +
                          "' is neither a shape, as -1,13, nor a .npy file");
  return input;
}

std::vector<std::vector<Tensor>> make_feeds(const Graph& graph, const std::vector<InferenceInput>& inputs,
                                            const FeedOptions& options) {
  std::vector<std::vector<Tensor>> values;
  std::size_t requests = 1;
  const InferenceInput* first = nullptr;
  for (const InferenceInput& input : inputs) {
    const OutputInfo& info = graph.info(graph.parse_value(input.name));
    values.push_back(values_of(info, input, options));
    const std::size_t count = values.back().size();
    if (input.file.empty() || !has_rows(info)) continue;
    if (first && count == requests) continue;
    if (first)
      throw InvalidArgument(fmt::format("{} has rows for {} requests of {}, {} for {}", input.file, count,
                                        options.batch, first->file, requests));
    first = &input;
    requests = count;
  }
  std::vector<std::vector<Tensor>> feeds(requests);
  for (std::size_t r = 0; r < requests; ++r)
    for (const auto& value : values) feeds[r].push_back(value[value.size() == 1 ? 0 : r]);
  return feeds;
}

std::vector<InferenceInput> placeholders_of(const Graph& graph, const std::vector<std::string>& outputs) {
  std::vector<bool> seen(static_cast<std::size_t>(graph.size()), false);
  std::vector<NodeId> open;
  const auto reach = [&](NodeId id) {
    if (id == kNoNode || seen[static_cast<std::size_t>(id)]) return;
    seen[static_cast<std::size_t>(id)] = true;
    open.push_back(id);
  };
  for (const std::string& output : outputs) reach(graph.parse_value(output).node);
  while (!open.empty()) {
    const Node& node = graph.node(open.back());
    open.pop_back();
    for (const ValueRef& input : node.inputs) reach(input.node);
    for (const NodeId control : node.control_inputs) reach(control);
  }
  std::vector<InferenceInput> inputs;
  for (NodeId id = 0; id < graph.size(); ++id)
    if (seen[static_cast<std::size_t>(id)] && graph.node(id).op->role == OpRole::Placeholder)
      inputs.push_back({graph.node(id).name, {}, {}});
  return inputs;
}

}  // namespace braid::worker
