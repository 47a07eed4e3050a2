#include "tests/engine/rewrite/attention_models.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "engine/ir/op.h"

namespace braid::testing {
namespace {

using Dims = std::vector<std::int64_t>;

class Writer {
 public:
  Writer(std::uint64_t seed, Unlike unlike, bool large) : random_(seed), unlike_(unlike) {
    batch_ = 1 + below(3);
    heads_ = (unlike == Unlike::ScaleOfHeads ? 2 : 1) + below(3);
    n_ = large ? 90 + below(140) : 2 + below(7);
    m_ = below(2) == 0 ? n_ : large ? 90 + below(140) : 2 + below(7);
    d_ = large ? 16 * (1 + below(2)) + below(2) : 1 + below(6);
    e_ = below(2) == 0 ? d_ : 1 + below(6);
  }

  WrittenAttention write() {
    form_ = below(3);
    const Output q = value("q", n_, d_), k = value("k", m_, d_), v = value("v", m_, e_);
    const Output out = form_ == 2 ? by_equations(q, k, v) : by_products(q, k, v);
    Output loss = b_.reduce_mean(b_.op("Square", {b_.op("Sub", {out, value("wanted", n_, e_, false)})}));
    for (const Output& also : also_) loss = b_.add(loss, b_.reduce_mean(b_.op("Square", {also})));
    WrittenAttention made{differentiated(b_, loss, feeds_), text_};
    if (below(2) == 0) write_out_gradients(made.model.graph);
    return made;
  }

 private:
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n));
  }
  void say(const std::string& what) { text_ += what + "; "; }
  Output number(double x) { return b_.constant(Tensor::scalar(static_cast<float>(x))); }
  Output ints(const std::vector<std::int32_t>& x) {
    return b_.constant(Tensor::from<std::int32_t>(Shape{std::ssize(x)}, x));
  }
  Tensor floats(const Shape& shape) {
    Tensor t(DType::Float32, shape);
    for (float& x : t.data<float>()) x = static_cast<float>(below(2001) - 1000) / 600;
    return t;
  }
  Output fed(const std::string& name, const Tensor& tensor) {
    feeds_.emplace_back(name, tensor);
    return b_.placeholder(name, tensor.dtype(), tensor.shape());
  }
  Output transposed(const Output& x, const std::vector<std::int32_t>& axes) {
    return b_.op("Transpose", {x, ints(axes)});
  }

  /// [B, H, rows, width], or as the form has it; learned.
  Output value(const std::string& name, std::int64_t rows, std::int64_t width, bool learned = true) {
    const bool splits = form_ == 1 && learned, inside = form_ == 2 || (form_ == 1 && !learned);
    const Shape shape = splits   ? Shape{batch_, rows, heads_ * width}
                        : inside ? Shape{batch_, rows, heads_, width}
                                 : Shape{batch_, heads_, rows, width};
    Output x = fed(name, floats(shape));
    if (learned) {
      const Output w = b_.read(b_.variable("w" + name, Shape{shape[shape.rank() - 1]},
                                           {.init = {InitKind::Uniform, -1.0F, 1.0F}}));
      x = b_.mul(x, w);  // what is added to all keys has no gradient
    }
    if (splits) x = transposed(b_.reshape(x, {batch_, rows, heads_, width}), {0, 2, 1, 3});
    return x;
  }

  double scale() const { return 1 / std::sqrt(static_cast<double>(d_)); }
  Output scaled(const Output& scores) {
    switch (below(4)) {
      case 0:
        say("no scale");
        return scores;
      case 1:
        say("scores / c");
        return b_.op("RealDiv", {scores, number(1 / scale())});
      default:
        say("scores c");
        return b_.mul(scores, number(scale()));
    }
  }

  Tensor bools(const Shape& shape, bool causal) {
    Tensor seen(DType::Bool, shape);
    for (std::int64_t i = 0; i < shape.elements(); ++i)
      seen.data<bool>()[static_cast<std::size_t>(i)] = causal ? i % m_ <= i / m_ : i % m_ < 2 || below(3) > 0;
    return seen;
  }
  Shape mask_shape() {
    const Shape all[] = {
        {batch_, 1, 1, m_}, {n_, m_}, {batch_, 1, n_, m_}, {heads_, 1, m_}, {1, heads_, n_, m_}};
    return all[below(5)];
  }
  Output added_mask() {
    Tensor t = floats(mask_shape());
    const bool finite = below(2) == 0 || unlike_ == Unlike::OtherAxis;  // a column may be hidden in whole
    const double low = finite ? -1e9 : -std::numeric_limits<double>::infinity();
    for (std::int64_t i = 0; i < t.elements(); ++i)
      if (i % m_ > 1 && below(3) == 0) t.data<float>()[static_cast<std::size_t>(i)] = static_cast<float>(low);
    return fed(fmt::format("mask{}", feeds_.size()), t);
  }

  Output learned_mask(const Shape& shape) {
    return b_.read(b_.variable("mask", shape, {.init = {InitKind::Uniform, -1, 1}}));
  }
  /// For each query and key, shared by the batch, and perhaps by heads.
  Output learned_mask() {
    const Shape all[] = {{n_, m_}, {heads_, n_, m_}, {1, heads_, n_, m_}, {batch_, 1, n_, m_}};
    Shape shape = all[below(4)];
    if (shape == Shape{batch_, heads_, n_, m_})
      shape = {n_, m_};  // shared by nobody, its gradient is not summed
    say(shape.to_string());
    return learned_mask(shape);
  }

  Output masked(const Output& scores) {
    if (unlike_ == Unlike::LearnedMask) return b_.add(scores, learned_mask(Shape{m_}));
    if (unlike_ == Unlike::OtherFill)
      return b_.op("SelectV2", {fed("seen", bools({n_, m_}, false)), scores, number(-3)});
    switch (below(10)) {
      case 8:
        say("learned mask");
        return b_.add(scores, learned_mask());
      case 9:
        say("learned mask, and another");
        return b_.add(b_.add(learned_mask(), scores), added_mask());
      case 0:
        say("added mask");
        return b_.add(scores, added_mask());
      case 1:
        say("two added masks");
        return b_.add(b_.add(added_mask(), scores), added_mask());
      case 2: {
        say("subtracted mask");
        Tensor t(DType::Float32, {batch_, 1, 1, m_});
        for (std::int64_t i = 0; i < t.elements(); ++i)
          t.data<float>()[static_cast<std::size_t>(i)] = i % m_ < 2 || below(2) == 0 ? 0.0F : 1e9F;
        return b_.op("Sub", {scores, fed("padding", t)});
      }
      case 3:
        say("chosen");
        return b_.op("SelectV2", {fed("seen", bools(mask_shape(), false)), scores, number(-1e9)});
      case 4: {
        say("hidden, also whole rows");
        Tensor t(DType::Bool, {batch_, 1, 1, m_});
        for (std::int64_t i = 0; i < t.elements(); ++i)
          t.data<bool>()[static_cast<std::size_t>(i)] = i < m_ ? batch_ > 1 : i % m_ > 1 && below(2) == 0;
        return b_.op("SelectV2", {fed("hidden", t), number(-1e30), scores});
      }
      case 5:
        say("causal, chosen");
        return b_.op("SelectV2", {b_.constant(bools({n_, m_}, true)), scores, number(-1e30)});
      case 6: {
        say("causal, added");
        Tensor t(DType::Float32, {1, n_, m_});
        for (std::int64_t i = 0; i < t.elements(); ++i)
          t.data<float>()[static_cast<std::size_t>(i)] = i % m_ <= i / m_ ? 0.0F : -1e9F;
        return b_.add(scores, b_.constant(t));
      }
      default:
        say("no mask");
        return scores;
    }
  }

  /// From scores [B, H, n, m] to weights.
  Output weights_of(Output scores) {
    if (unlike_ == Unlike::ScaleOfHeads) scores = b_.mul(scores, b_.constant(floats({heads_, 1, 1})));
    if (unlike_ == Unlike::MaskScaled)
      scores = b_.mul(b_.add(scores, added_mask_of_numbers()), number(scale()));
    else if (unlike_ == Unlike::ScaleBelowZero)
      scores = masked(b_.mul(scores, number(-scale())));
    else
      scores = masked(scaled(scores));
    if (unlike_ == Unlike::ScoresUsedTwice) also_.push_back(b_.op("Tanh", {scores}));
    if (unlike_ == Unlike::OtherAxis)
      return transposed(b_.op("Softmax", {transposed(scores, {0, 1, 3, 2})}), {0, 1, 3, 2});
    Output weights = b_.op("Softmax", {scores});
    if (unlike_ == Unlike::WeightsUsedTwice) also_.push_back(weights);
    if (unlike_ == Unlike::Dropped) weights = b_.mul(weights, fed("kept", floats({batch_, heads_, n_, m_})));
    return weights;
  }
  Output added_mask_of_numbers() { return fed("numbers", floats({n_, m_})); }

  /// Transposed keys as PyTorch exports them to ONNX.
  Output exported(const Output& k) {
    say("keys of three axes, scaled behind");
    const Output turned = transposed(b_.reshape(k, {batch_ * heads_, m_, d_}), {0, 2, 1});
    return b_.mul(b_.reshape(turned, {batch_, heads_, d_, m_}), number(std::sqrt(scale())));
  }
  Output by_products(Output q, const Output& k, const Output& v) {
    if (below(3) == 0) {
      say("scaled queries");
      q = b_.mul(q, number(scale()));
    }
    const std::int64_t form = below(3);
    const Output keys = form == 0 ? k : form == 1 ? transposed(k, {0, 1, 3, 2}) : exported(k);
    const Output scores = b_.op("BatchMatMulV2", {q, keys}, {{"adj_x", false}, {"adj_y", form == 0}});
    const Output out = b_.op("BatchMatMulV2", {weights_of(scores), v});
    return form_ == 1 ? transposed(out, {0, 2, 1, 3}) : out;
  }
  Output by_equations(const Output& q, const Output& k, const Output& v) {
    const Output scores = below(2) == 0 ? b_.op("Einsum", {q, k}, {{"equation", "BTNH,BSNH->BNTS"}})
                                        : b_.op("Einsum", {k, q}, {{"equation", "aecd,abcd->acbe"}});
    return b_.op("Einsum", {weights_of(scores), v}, {{"equation", "acbe,aecd->abcd"}});
  }

  /// The gradient of softmax as TensorFlow writes it.
  void write_out_gradients(Graph& graph) {
    say("gradients written out");
    const auto add = [&](const char* op, std::vector<ValueRef> inputs, AttrMap attrs,
                         const std::string& name) {
      Node node;
      node.op = &OpRegistry::global().require(op);
      node.name = graph.unique_name(name);
      node.inputs = std::move(inputs);
      node.attrs = std::move(attrs);
      return ValueRef{graph.add(std::move(node)), 0};
    };
    const NodeId count = graph.size();
    for (NodeId id = 0; id < count; ++id) {
      if (graph.node(id).removed || graph.node(id).op->name != "braid.SoftmaxGrad") continue;
      const std::string name = graph.node(id).name;
      const ValueRef p = graph.node(id).inputs[0], dp = graph.node(id).inputs[1];
      const ValueRef axis =
          add("Const", {}, {{"value", Tensor::scalar<std::int32_t>(-1)}, {"dtype", DType::Int32}},
              name + "/axis");
      const ValueRef sum =
          add("Sum", {add("Mul", {dp, p}, {}, name + "/mul"), axis}, {{"keep_dims", true}}, name);
      const ValueRef ds = add("Mul", {add("Sub", {dp, sum}, {}, name + "/sub"), p}, {}, name + "/mul");
      graph.replace_uses({id, 0}, ds);
    }
  }

  std::mt19937_64 random_;
  Unlike unlike_;
  GraphBuilder b_;
  std::vector<std::pair<std::string, Tensor>> feeds_;
  std::vector<Output> also_;  // what the loss sees, too
  std::int64_t batch_, heads_, n_, m_, d_, e_, form_ = 0;
  std::string text_;
};

}  // namespace

WrittenAttention written_attention(std::uint64_t seed, Unlike unlike, bool large) {
  return Writer(seed, unlike, large).write();
}

MixedModel runnable(const WrittenAttention& written) {
  MixedModel model;
  model.graph = written.model.graph;
  model.request.fetches = written.model.fetches;
  for (const auto& [name, tensor] : written.model.feeds) {
    model.request.feeds.push_back({name, tensor.dtype(), tensor.shape()});
    model.feeds.push_back(tensor);
  }
  return model;
}

}  // namespace braid::testing
