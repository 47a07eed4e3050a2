#include "tests/engine/rewrite/mixed_models.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "engine/autodiff/gradients.h"
#include "engine/builder/graph_builder.h"
#include "engine/exec/instance.h"
#include "engine/exec/runtime.h"
#include "engine/import/import.h"
#include "engine/ops/state/variable_init.h"
#include "engine/program/program.h"
#include "models/model.h"
#include "proto/graph.pb.h"
#include "tests/engine/testing/test_ops.h"

namespace braid::testing {
namespace {

constexpr std::int64_t kZooRows = 24, kIds = 50, kClasses = 5;

void add_gradient_fetches(MixedModel& model, const std::string& loss) {
  model.request.fetches = {loss};
  for (const VariableGradient& gradient : add_gradients(model.graph, model.graph.parse_value(loss))) {
    const ValueRef value = gradient.slices ? gradient.slices->values : gradient.dense;
    if (!value.valid()) continue;
    model.request.fetches.push_back(model.graph.value_name(value));
    ++model.gradients;
  }
}

class Maker {
 public:
  explicit Maker(std::uint64_t seed) : random_(seed) {}

  MixedModel make() {
    constexpr std::int64_t kRows[] = {24, 37, 64, 200, 513};
    rows_ = kRows[pick(std::size(kRows))];
    const std::int64_t width = some_width();
    const Output x = feed("x", random_floats(Shape{rows_, width}, static_cast<unsigned>(random_())));
    values_.push_back({x, width});
    if (pick(2) == 0) add_rows_of_table();
    for (int i = 3 + pick(8); i > 0; --i) add();
    return finish();
  }

 private:
  struct Value {
    Output output;  // [rows, width]
    std::int64_t width;
  };

  int pick(std::size_t count) { return static_cast<int>(random_() % count); }
  std::int64_t some_width() {
    constexpr std::int64_t kWidths[] = {1, 3, 7, 8, 16, 24, 33, 48, 64, 96};
    return kWidths[pick(std::size(kWidths))];
  }
  std::string name(const char* what) { return what + std::to_string(names_++); }
  const Value& some() {
    const auto back = static_cast<std::size_t>(pick(std::min<std::size_t>(values_.size(), 4)));
    return values_[values_.size() - 1 - back];
  }
  void keep(const Output& output, std::int64_t width) { values_.push_back({output, width}); }

  Output feed(const std::string& feed_name, const Tensor& tensor) {
    made_.request.feeds.push_back({feed_name, tensor.dtype(), tensor.shape()});
    made_.feeds.push_back(tensor);
    return b_.placeholder(feed_name, tensor.dtype(), tensor.shape());
  }
  Output weights(Shape shape, std::int64_t fan_in) {
    const float deviation = 1.2F / std::sqrt(static_cast<float>(fan_in));
    return b_.read(b_.variable(name("w"), std::move(shape), {.init = {InitKind::Normal, 0.0F, deviation}}));
  }
  Output vector(std::int64_t width, float value) {
    return b_.read(
        b_.variable(name("b"), Shape{width}, {.init = {InitKind::Uniform, value - 0.2F, value + 0.2F}}));
  }
  Output known(std::vector<std::int32_t> numbers) {
    Tensor tensor(DType::Int32, Shape{static_cast<std::int64_t>(numbers.size())});
    std::copy(numbers.begin(), numbers.end(), tensor.data<std::int32_t>().begin());
    return b_.constant(tensor, name("known"));
  }

  Output activated(const Output& x) {
    constexpr const char* kOps[] = {"Relu",     "Sigmoid", "Tanh", "Elu",  "Selu",
                                    "Softplus", "Relu6",   "Erf",  "none", "Swish"};
    const std::string op = kOps[pick(std::size(kOps))];
    if (op == "none") return x;
    if (op == "Swish") return b_.mul(x, b_.op("Sigmoid", {x}));
    return b_.op(op, {x});
  }

  void add() {
    switch (pick(14)) {
      case 0:
      case 1:
      case 2:
        return add_layer();
      case 3:
        return add_norm();
      case 4:
        return add_softmax();
      case 5:
        return add_rows_of_table();
      case 6:
        return add_einsum();
      case 7:
        return add_attention();
      case 8:
        return add_gate();
      case 9:
        return add_join();
      case 10:
        return add_slice();
      case 11:
        return add_convolution();
      case 12:
        return add_experts();
      default: {
        const Value x = some();
        return keep(activated(x.output), x.width);
      }
    }
  }

  void add_layer() {
    const Value x = some();
    const std::int64_t width = some_width();
    Output y;
    if (pick(4) == 0)
      y = b_.matmul(x.output, weights(Shape{width, x.width}, x.width), false, true);
    else
      y = b_.matmul(x.output, weights(Shape{x.width, width}, x.width));
    if (pick(4) != 0) y = b_.bias_add(y, vector(width, 0));
    keep(activated(y), width);
  }

  Output mean_of_row(const Output& x) { return b_.reduce_mean(x, {1}, true); }

  void add_norm() {
    const Value x = some();
    if (x.width < 3) return add_layer();
    const Output centred = b_.op("Sub", {x.output, mean_of_row(x.output)});
    const Output variance = mean_of_row(b_.op("Square", {centred}));
    const Output scaled =
        b_.mul(centred, b_.op("Rsqrt", {b_.add(variance, b_.constant(Tensor::scalar(0.05F)))}));
    keep(b_.add(b_.mul(scaled, vector(x.width, 1)), vector(x.width, 0)), x.width);
  }

  void add_softmax() {
    const Value x = some();
    keep(b_.op(pick(2) == 0 ? "Softmax" : "LogSoftmax", {x.output}), x.width);
  }

  void add_rows_of_table() {
    const std::int64_t ids = 1 + pick(4), width = some_width();
    Tensor tensor(DType::Int64, Shape{rows_, ids});
    for (auto& id : tensor.data<std::int64_t>()) id = pick(kIds);
    const Output at = feed(name("ids"), tensor);
    const Output table = b_.variable(name("table"), Shape{kIds, width},
                                     {.init = {InitKind::Normal, 0.0F, 0.8F}, .sparse = pick(2) == 0});
    const Output rows = b_.gather(table, at);
    if (pick(2) == 0) return keep(b_.reduce_mean(rows, {1}), width);
    keep(b_.reshape(rows, {rows_, ids * width}), ids * width);
  }

  /// [rows, parts, width of one]
  Output parted(const Value& x, std::int64_t& parts) {
    constexpr std::int64_t kParts[] = {8, 4, 3, 2};
    parts = 1;
    for (const std::int64_t some : kParts)
      if (x.width % some == 0 && x.width > some) {
        parts = some;
        break;
      }
    return b_.reshape(x.output, {rows_, parts, x.width / parts});
  }

  void add_einsum() {
    const Value x = some();
    std::int64_t parts = 1;
    const Output y = parted(x, parts);
    const std::int64_t inner = x.width / parts, out = 2 + pick(9);
    Output z;
    if (pick(2) == 0) {
      z = b_.op("Einsum", {y, weights(Shape{inner, out}, inner)}, {{"equation", std::string("rpi,io->rpo")}});
    } else {
      z = b_.op("Einsum", {y, weights(Shape{parts, inner, out}, inner)},
                {{"equation", std::string("rpi,pio->rpo")}});
    }
    keep(b_.reshape(activated(z), {rows_, parts * out}), parts * out);
  }

  void add_attention() {
    const Value x = some();
    std::int64_t parts = 1;
    const Output y = parted(x, parts);
    const Output scores = b_.op("BatchMatMulV2", {y, y}, {{"adj_y", true}});
    const Output mixed = b_.op("BatchMatMulV2", {b_.op("Softmax", {scores}), y});
    keep(b_.reshape(mixed, {rows_, x.width}), x.width);
  }

  /// Equal layers beside each other, which become lanes of one node.
  void add_experts() {
    const Value x = some();
    const std::int64_t inner = 1 + pick(20), out = 1 + pick(9);
    std::vector<Output> experts;
    for (int e = 2 + pick(2); e > 0; --e) {
      Output y = x.output;
      std::int64_t width = x.width;
      for (const std::int64_t next : {inner, out}) {
        y = b_.op("Relu",
                  {b_.bias_add(b_.matmul(y, weights(Shape{width, next}, width)), vector(next, 0.2F))});
        width = next;
      }
      experts.push_back(y);
    }
    keep(b_.concat(experts, 1), out * static_cast<std::int64_t>(experts.size()));
  }

  void add_gate() {
    const Value x = some(), y = some();
    if (x.width != y.width || pick(3) == 0)
      return keep(b_.mul(b_.op("Sigmoid", {b_.matmul(y.output, weights(Shape{y.width, x.width}, y.width))}),
                         x.output),
                  x.width);
    constexpr const char* kOps[] = {"AddV2", "Sub", "Maximum", "Mul"};
    keep(b_.op(kOps[pick(std::size(kOps))], {x.output, b_.op("Tanh", {y.output})}), x.width);
  }

  void add_join() {
    const Value x = some(), y = some();
    if (x.width + y.width > 300) return add_slice();
    keep(b_.concat({x.output, y.output}, 1), x.width + y.width);
  }

  void add_slice() {
    const Value x = some();
    if (x.width < 3) return add_layer();
    const auto begin = static_cast<std::int32_t>(pick(static_cast<std::size_t>(x.width / 2)));
    const auto width = static_cast<std::int32_t>(x.width / 2);
    keep(b_.op("Slice", {x.output, known({0, begin}), known({-1, width})}), width);
  }

  void add_convolution() {
    const Value x = some();
    if (x.width % 16 != 0) return add_layer();
    const std::int64_t in = x.width / 16, out = 1 + pick(4);
    const Output image = b_.reshape(x.output, {rows_, 4, 4, in});
    const Output y =
        b_.op("Conv2D", {image, weights(Shape{3, 3, in, out}, 9 * in)},
              {{"strides", std::vector<std::int64_t>{1, 1, 1, 1}}, {"padding", std::string("SAME")}});
    keep(b_.reshape(activated(y), {rows_, 16 * out}), 16 * out);
  }

  MixedModel finish() {
    const Value x = values_.back();
    const std::int64_t classes = pick(2) == 0 ? 1 : kClasses;
    Output logits = b_.matmul(x.output, weights(Shape{x.width, classes}, x.width));
    logits = b_.bias_add(logits, vector(classes, 0));
    Output losses;
    if (classes == 1) {
      Tensor labels(DType::Float32, Shape{rows_});
      for (float& label : labels.data<float>()) label = static_cast<float>(pick(2));
      losses = b_.op("braid.SigmoidCrossEntropy", {b_.reshape(logits, {rows_}), feed("label", labels)});
    } else if (pick(2) == 0) {
      Tensor labels(DType::Int64, Shape{rows_});
      for (auto& label : labels.data<std::int64_t>()) label = pick(kClasses);
      losses = b_.op("SparseSoftmaxCrossEntropyWithLogits", {logits, feed("label", labels)});
    } else {
      const Output wanted =
          feed("label", random_floats(Shape{rows_, classes}, static_cast<unsigned>(random_())));
      losses = b_.op("SquaredDifference", {logits, wanted});
    }
    const Output loss = b_.reduce_mean(losses);
    made_.graph = import_graph(b_.graph());
    add_gradient_fetches(made_, loss.name());
    made_.request.fetches.push_back(logits.name());
    return std::move(made_);
  }

  std::mt19937_64 random_;
  GraphBuilder b_;
  MixedModel made_;
  std::int64_t rows_ = 0;
  int names_ = 0;
  std::vector<Value> values_;
};

/// Histories of none to ten items, with room behind them.
MixedModel hstu_model() {
  const auto field = [](const char* name, const char* table, const char* ragged) {
    IdField of{.name = name, .ids = kIds, .filled = false, .input = ragged};
    of.table.shared = table;
    return of;
  };
  ModelConfig config;
  config.embedding_dim = 32;
  config.heads = 2;
  config.layers = 2;
  config.hidden = {16};
  config.columns = {{"candidate", Shape{2}}, {"sparse", Shape{3}}, {"dense", Shape{4}}, {"label", Shape{}}};
  config.fields["history"] = {field("seen", "items", "history/seen"), field("by", "makers", "history/by")};
  config.fields["candidate"] = {field("item", "items", ""), field("maker", "makers", "")};
  config.fields["sparse"] = {field("user", "", ""), field("day", "", ""), field("city", "", "")};
  config.fields["action"] = {field("did", "", "action/did")};
  config.fields["action"][0].ids = 8;
  config.fields["action"][0].weighted = true;
  const ModelGraph model = build_model("hstu", config);
  MixedModel made;
  made.graph = import_graph(*model.graph);
  add_gradient_fetches(made, model.loss);
  std::vector<std::int32_t> offsets{0};
  for (std::int64_t b = 0; b < kZooRows; ++b)
    offsets.push_back(offsets.back() + static_cast<std::int32_t>(b * 7 % 11));
  const std::int64_t room = offsets.back() + 5;
  for (const std::string& column : model.columns) {
    const OutputInfo& info = made.graph.info(made.graph.parse_value(column));
    const auto seed = static_cast<unsigned>(made.feeds.size());
    Shape shape = info.shape;
    shape.set_dim(0, column.find('/') == std::string::npos ? kZooRows : room);
    Tensor feed(info.dtype, shape);
    if (column.ends_with("/offsets"))
      feed = Tensor::from<std::int32_t>(Shape{kZooRows + 1}, offsets);
    else if (info.dtype == DType::Float32)
      feed = random_floats(shape, seed);
    else
      for (std::int64_t i = 0; i < feed.elements(); ++i)
        feed.data<std::int64_t>()[static_cast<std::size_t>(i)] = (i * 7 + seed) % 8;
    made.request.feeds.push_back({column, feed.dtype(), feed.shape()});
    made.feeds.push_back(std::move(feed));
  }
  return made;
}

}  // namespace

MixedModel zoo_model(const std::string& name) {
  if (name == "hstu") return hstu_model();
  ModelConfig config;
  config.classes = kClasses;
  config.embedding_dim = 8;
  config.hash_buckets = kIds;
  config.columns = {{"image", Shape{12, 12, 1}}, {"label", Shape{}},    {"dense", Shape{3}},
                    {"sparse", Shape{2}},        {"click", Shape{}},    {"purchase", Shape{}},
                    {"item", Shape{1}},          {"history", Shape{6}}, {"tokens", Shape{6}}};
  const ModelGraph model = build_model(name, config);
  MixedModel made;
  made.graph = import_graph(*model.graph);
  add_gradient_fetches(made, model.loss);
  for (const std::string& column : model.columns) {
    const OutputInfo& info = made.graph.info(made.graph.parse_value(column));
    Shape shape = info.shape;
    shape.set_dim(0, kZooRows);
    const auto seed = static_cast<unsigned>(made.feeds.size());
    Tensor feed(info.dtype, shape);
    if (info.dtype == DType::Float32)
      feed = random_floats(shape, seed);
    else
      for (std::int64_t i = 0; i < feed.elements(); ++i)
        feed.data<std::int64_t>()[static_cast<std::size_t>(i)] = (i * 7 + seed) % kClasses;
    made.feeds.push_back(feed);
    made.request.feeds.push_back({column, info.dtype, shape});
  }
  return made;
}

MixedModel random_model(std::uint64_t seed) { return Maker(seed).make(); }

CompileOptions precision_options(DType half, Domain domain, bool fusion) {
  CompileOptions options;
  options.domain = domain;
  options.fusion = fusion;
  options.precision.half = half;
  return options;
}

std::vector<std::vector<Tensor>> run_steps(const MixedModel& model, const CompileOptions& options, int steps,
                                           const std::shared_ptr<Accelerator>& device, float learning_rate) {
  const auto program = compile(model.graph, model.request, options);
  RuntimeOptions runtime_options;
  runtime_options.device = device;
  Runtime runtime(runtime_options);
  Instance instance(program, runtime);
  for (const VariableInfo& variable : list_variables(model.graph)) {
    auto value = runtime.variables().read(variable.name);
    if (!value) continue;
    initialize_variable(model.graph.node(variable.handle), 1, *value);
    runtime.variables().write(variable.name, *value);
  }
  std::vector<std::vector<Tensor>> fetched;
  for (int step = 0; step < steps; ++step) {
    StepRequest request;
    request.params.step = static_cast<std::uint64_t>(step);
    request.params.learning_rate = learning_rate;
    request.feeds = model.feeds;
    fetched.push_back(
        instance.run(std::move(request), WaitContext::with_timeout(std::chrono::seconds(60))).fetches);
    for (Tensor& tensor : fetched.back()) tensor = tensor.clone();
  }
  return fetched;
}

std::vector<Tensor> run_model(const MixedModel& model, const CompileOptions& options, int steps,
                              const std::shared_ptr<Accelerator>& device) {
  return run_steps(model, options, steps, device).back();
}

double norm(const Tensor& tensor) {
  double squares = 0;
  for (const double x : tensor.data<float>()) squares += x * x;
  return std::sqrt(squares);
}

double distance(const Tensor& a, const Tensor& b) {
  double squares = 0;
  for (std::size_t i = 0; i < b.data<float>().size(); ++i) {
    const double difference = static_cast<double>(a.data<float>()[i]) - b.data<float>()[i];
    squares += difference * difference;
  }
  return std::sqrt(squares);
}

Apart apart(const MixedModel& model, const std::vector<Tensor>& got, const std::vector<Tensor>& expected) {
  constexpr double kNothing = 1e-30;
  Apart result;
  result.loss = distance(got[0], expected[0]) / (norm(expected[0]) + kNothing);
  const auto last = static_cast<std::size_t>(model.gradients);
  double all = 1e-3 * norm(expected[0]);  // all gradients may be rounding, behind a softmax of one column
  for (std::size_t f = 1; f <= last; ++f) all = std::hypot(all, norm(expected[f]));
  for (std::size_t f = 1; f <= last; ++f) {
    const double error = distance(got[f], expected[f]) / (norm(expected[f]) + 0.01 * all + kNothing);
    if (error <= result.gradient) continue;
    result.gradient = error;
    result.worst = model.request.fetches[f];
  }
  for (std::size_t f = last + 1; f < expected.size(); ++f)
    result.rows = std::max(result.rows, distance(got[f], expected[f]) / (norm(expected[f]) + kNothing));
  return result;
}

}  // namespace braid::testing
