#include "bench/attention_models.h"

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "engine/builder/graph_builder.h"
#include "proto/graph.pb.h"

namespace braid::bench {
namespace {

enum class Hides { Nothing, Padding, Later };

struct Sizes {
  std::int64_t queries, keys, heads, width, layers;
  Hides hides = Hides::Nothing;
};

class Writer {
 public:
  explicit Writer(const Sizes& sizes) : s_(sizes) {}

  ModelGraph write() {
    const Output x = b_.placeholder("x", DType::Float32, {-1, s_.queries, dim()});
    std::vector<std::string> columns{"x"};
    Output memory;
    if (s_.keys != s_.queries) {
      memory = b_.reshape(b_.placeholder("memory", DType::Float32, {-1, s_.keys, dim()}), {-1, dim()});
      columns.push_back("memory");
    }
    if (s_.hides == Hides::Padding) {
      const Output given = b_.placeholder("given", DType::Float32, {-1, 1, 1, s_.keys});
      columns.push_back("given");
      const Output padded =
          b_.op("Cast", {b_.op("Greater", {given, number(0.5F)})}, {{"DstT", DType::Float32}});
      mask_ = b_.mul(padded, number(-1e9F));
    }
    const Output y = b_.placeholder("label", DType::Float32, {-1});
    columns.push_back("label");
    Output h = b_.reshape(x, {-1, dim()});
    for (std::int64_t l = 0; l < s_.layers; ++l) {
      const std::string name = "layer" + std::to_string(l);
      h = b_.add(h, attention(name, h, s_.keys != s_.queries ? memory : h));
      const Output inner = b_.op("Relu", {b_.dense(name + "/inner", h, dim(), 2 * dim(), false)});
      h = b_.add(h, b_.dense(name + "/outer", inner, 2 * dim(), dim(), false));
    }
    const Output mean = b_.reduce_mean(b_.reshape(h, {-1, s_.queries, dim()}), {1});
    const Output logits = b_.reshape(b_.dense("head", mean, dim(), 1, false), {-1});
    const Output loss = b_.reduce_mean(b_.op("braid.SigmoidCrossEntropy", {logits, y}));
    ModelGraph model;
    model.graph = std::make_unique<GraphDef>(b_.graph());
    model.loss = loss.name();
    model.columns = std::move(columns);
    return model;
  }

 private:
  std::int64_t dim() const { return s_.heads * s_.width; }
  Output number(float value) { return b_.constant(Tensor::scalar(value)); }
  Output ints(const std::vector<std::int32_t>& values) {
    return b_.constant(Tensor::from<std::int32_t>(Shape{std::ssize(values)}, values));
  }
  Output heads_of(const Output& x, std::int64_t rows) {
    return b_.op("Transpose", {b_.reshape(x, {-1, rows, s_.heads, s_.width}), ints({0, 2, 1, 3})});
  }
  Output places(std::int64_t count, bool across) {
    std::vector<std::int32_t> values;
    for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<std::int32_t>(i));
    return b_.constant(Tensor::from<std::int32_t>(across ? Shape{1, count} : Shape{count, 1}, values));
  }

  Output attention(const std::string& name, const Output& x, const Output& memory) {
    const float scale = 1 / std::sqrt(static_cast<float>(s_.width));
    const bool scales_queries = s_.hides == Hides::Padding;
    Output q = heads_of(b_.dense(name + "/q", x, dim(), dim(), false), s_.queries);
    const Output k = heads_of(b_.dense(name + "/k", memory, dim(), dim(), false), s_.keys);
    const Output v = heads_of(b_.dense(name + "/v", memory, dim(), dim(), false), s_.keys);
    if (scales_queries) q = b_.mul(q, number(scale));
    Output scores = b_.op("BatchMatMulV2", {q, k}, {{"adj_x", false}, {"adj_y", true}});
    if (!scales_queries) scores = b_.mul(scores, number(scale));
    if (s_.hides == Hides::Padding) scores = b_.add(scores, mask_);
    if (s_.hides == Hides::Later) {
      const Output seen = b_.op("LessEqual", {places(s_.keys, true), places(s_.queries, false)});
      scores = b_.op("SelectV2", {seen, scores, number(-1e30F)});
    }
    const Output mixed = b_.op("BatchMatMulV2", {b_.op("Softmax", {scores}), v});
    const Output joined = b_.reshape(b_.op("Transpose", {mixed, ints({0, 2, 1, 3})}), {-1, dim()});
    return b_.dense(name + "/o", joined, dim(), dim(), false);
  }

  Sizes s_;
  GraphBuilder b_;
  Output mask_;
};

}  // namespace

std::optional<ModelGraph> attention_model(const std::string& name) {
  const std::pair<const char*, Sizes> all[] = {{"encoder", {64, 64, 4, 32, 2, Hides::Padding}},
                                               {"decoder", {128, 128, 4, 32, 2, Hides::Later}},
                                               {"cross", {32, 96, 4, 16, 2}},
                                               {"long", {512, 512, 2, 64, 1}},
                                               {"short", {4, 4, 2, 8, 2}},
                                               {"target", {1, 50, 1, 16, 1}}};
  for (const auto& [known, sizes] : all)
    if (name == known) return Writer(sizes).write();
  return std::nullopt;
}

}  // namespace braid::bench
