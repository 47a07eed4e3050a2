// RNN, GRU and LSTM: X [T, N, input], W [directions, gates * hidden, input], R likewise,
// B [directions, 2 * gates * hidden]. A row whose sequence has ended keeps its state and gives zeros.
// A usual GRU or LSTM is braid.Gru or braid.Lstm, if the graph may have these; all others are unrolled over
// time.
#include <fmt/format.h>

#include <functional>

#include "base/error.h"
#include "engine/import/onnx/node.h"

namespace braid::onnx {
namespace {

using Activation = std::function<Val(Val)>;

Activation activation(const std::string& name, double alpha, double beta) {
  if (name == "Relu" || name == "Tanh" || name == "Sigmoid" || name == "Softsign" || name == "Softplus")
    return [name](Val x) { return tf(name.c_str(), {x}); };
  if (name == "Affine") return [=](Val x) { return x * alpha + beta; };
  if (name == "LeakyRelu") return [=](Val x) { return tf("LeakyRelu", {x}, {{"alpha", alpha}}); };
  if (name == "ThresholdedRelu")
    return [=](Val x) { return where(tf("Greater", {x, like(alpha, x)}), x, like(0, x)); };
  if (name == "ScaledTanh") return [=](Val x) { return tf("Tanh", {x * beta}) * alpha; };
  if (name == "HardSigmoid")
    return [=](Val x) { return minimum(maximum(x * alpha + beta, like(0, x)), like(1, x)); };
  if (name == "Elu")
    return [=](Val x) { return where(tf("Less", {x, like(0, x)}), tf("Expm1", {x}) * alpha, x); };
  throw InvalidArgument("activation '" + name + "' is not supported");
}

/// What the three have in common: the inputs by direction, and the walk over time.
class Recurrent {
 public:
  Recurrent(OnnxNode& n, int gates, std::vector<std::string> defaults) : n_(n), gates_(gates) {
    const std::string direction = n.s("direction", "forward");
    directions_ = direction == "bidirectional" ? 2 : 1;
    first_reversed_ = direction == "reverse";
    layout_ = n.i("layout", 0) != 0;
    x_ = layout_ ? transpose(n.in(0), {1, 0, 2}) : n.in(0);
    hidden_ = n.has_attr("hidden_size") ? n.positive("hidden_size", 0) : n.in(2).static_dim(2);
    constexpr std::int64_t kMaxHidden = std::int64_t{1} << 31;
    if (hidden_ > kMaxHidden) throw InvalidArgument(fmt::format("hidden_size is {}", hidden_));
    if (n.has_attr("clip")) throw InvalidArgument("attribute clip is not supported");
    std::vector<std::string> names = n.ss("activations");
    if (names.empty())
      for (int d = 0; d < directions_; ++d) names.insert(names.end(), defaults.begin(), defaults.end());
    const std::vector<double> alphas = n.fs("activation_alpha"), betas = n.fs("activation_beta");
    for (std::size_t i = 0; i < names.size(); ++i) {
      const bool hard = names[i] == "HardSigmoid";
      const double alpha = hard                      ? 0.2
                           : names[i] == "LeakyRelu" ? 0.01
                                                     : 1,
                   beta = hard                       ? 0.5
                          : names[i] == "ScaledTanh" ? 1
                                                     : 0;
      activations_.push_back(
          activation(names[i], i < alphas.size() ? alphas[i] : alpha, i < betas.size() ? betas[i] : beta));
    }
    is_usual_ = n.b.may_own() && !n.has(4) && x_.dtype() == DType::Float32 && alphas.empty() && betas.empty();
    for (std::size_t i = 0; i < names.size(); ++i) is_usual_ &= names[i] == defaults[i % defaults.size()];
    if (activations_.size() != defaults.size() * static_cast<std::size_t>(directions_))
      throw InvalidArgument("it needs other numbers of activations");
  }

  std::int64_t hidden() const { return hidden_; }
  int directions() const { return directions_; }
  const Activation& act(int direction, int i) const {
    return activations_[static_cast<std::size_t>(direction) *
                            (activations_.size() / static_cast<std::size_t>(directions_)) +
                        static_cast<std::size_t>(i)];
  }
  /// Of an input [directions, ...].
  Val of(int input, int direction) const {
    return squeeze(slice(n_.in(input), 0, direction, direction + 1), {0});
  }
  /// The first (`half` 0) or second half of the bias, zeros where there is none.
  Val bias(int direction, int half) const {
    const std::int64_t size = gates_ * hidden_;
    if (!n_.has(3)) return broadcast_to(like(0, x_), n_.b.ints({size}));
    return slice(of(3, direction), 0, half * size, (half + 1) * size);
  }
  /// The state that input `i` gives, [N, hidden]; zeros without.
  Val initial(int i, int direction) const {
    if (n_.has(i)) {
      const Val all = layout_ ? transpose(n_.in(i), {1, 0, 2}) : n_.in(i);
      return squeeze(slice(all, 0, direction, direction + 1), {0});
    }
    return broadcast_to(like(0, x_),
                        pack({size_of(x_, 1), n_.b.number(static_cast<double>(hidden_), DType::Int64)}, 0));
  }

  /// Whether it has the usual activations, and all rows run to the end.
  bool is_usual() const { return is_usual_; }
  /// The inputs' products of all steps, [T, N, gates * hidden].
  Val inputs(Val w, Val bias) const {
    const Val rows = reshape(x_, Ints{-1, w.static_dim(1)});
    const Val products = tf("MatMul", {rows, w}, {{"transpose_b", true}}) + bias;
    const Val width = n_.b.number(static_cast<double>(gates_ * hidden_), DType::Int64);
    return reshape(products, std::vector<Val>{size_of(x_, 0), size_of(x_, 1), width});
  }
  /// A node for all steps; `last` are the states behind the last one, where output 0 does not have them.
  void run_node(int direction, const char* op, const std::vector<Val>& inputs, std::vector<int> last = {}) {
    const bool reversed = first_reversed_ || direction == 1;
    const Val h = tf(op, inputs, {{"reverse", reversed}});
    outputs_.push_back(h);
    std::vector<Val> states{squeeze(reversed ? slice(h, 0, 0, 1) : slice(h, 0, -1, kToEnd), {0})};
    for (const int o : last) states.push_back(h.at(o));
    finals_.push_back(std::move(states));
  }

  /// step(x [N, input], states) -> the next states, of which the first is the output.
  template <class Step>
  void run(int direction, std::vector<Val> states, Step step) {
    const bool reversed = first_reversed_ || direction == 1;
    const std::int64_t steps = x_.static_dim(0);
    constexpr std::int64_t kMaxSteps = 1 << 16;
    if (steps < 1 || steps > kMaxSteps)
      throw InvalidArgument(fmt::format("{} steps cannot be unrolled", steps));
    std::vector<Val> outputs(static_cast<std::size_t>(steps));
    for (std::int64_t i = 0; i < steps; ++i) {
      const std::int64_t t = reversed ? steps - 1 - i : i;
      std::vector<Val> next = step(squeeze(slice(x_, 0, t, t + 1), {0}), states);
      Val output = next.front();
      if (n_.has(4)) {
        const Val lengths = cast(n_.in(4), DType::Int64);
        const Val runs = expand_dims(tf("Greater", {lengths, like(static_cast<double>(t), lengths)}), 1);
        output = where(runs, output, like(0, output));
        for (std::size_t s = 0; s < next.size(); ++s) next[s] = where(runs, next[s], states[s]);
      }
      outputs[static_cast<std::size_t>(t)] = output;
      states = std::move(next);
    }
    outputs_.push_back(pack(outputs, 0));  // [T, N, hidden]
    finals_.push_back(std::move(states));
  }

  void finish() {
    // [T, directions, N, hidden], or with layout [N, T, directions, hidden]
    const Val y = pack(outputs_, 1);
    n_.out(0, layout_ ? transpose(y, {2, 0, 1, 3}) : y);
    for (std::size_t s = 0; s < finals_.front().size(); ++s) {
      std::vector<Val> parts;
      for (const auto& states : finals_) parts.push_back(states[s]);
      if (n_.wants(static_cast<int>(s) + 1)) n_.out(static_cast<int>(s) + 1, pack(parts, layout_ ? 1 : 0));
    }
  }

 private:
  OnnxNode& n_;
  int gates_, directions_;
  bool first_reversed_, layout_;
  Val x_;
  std::int64_t hidden_;
  bool is_usual_ = false;
  std::vector<Activation> activations_;
  std::vector<Val> outputs_;
  std::vector<std::vector<Val>> finals_;
};

/// a times the transposed b.
Val times(Val a, Val b) { return tf("MatMul", {a, b}, {{"transpose_b", true}}); }

void rnn(OnnxNode& n) {
  Recurrent r(n, 1, {"Tanh"});
  for (int d = 0; d < r.directions(); ++d) {
    const Val w = r.of(1, d), u = r.of(2, d), bias = r.bias(d, 0) + r.bias(d, 1);
    r.run(d, {r.initial(5, d)}, [&](Val x, const std::vector<Val>& states) {
      return std::vector<Val>{r.act(d, 0)(times(x, w) + times(states[0], u) + bias)};
    });
  }
  r.finish();
}

/// Gates z, r, h.
void gru(OnnxNode& n) {
  Recurrent r(n, 3, {"Sigmoid", "Tanh"});
  const std::int64_t size = r.hidden();
  const bool linear_before_reset = n.i("linear_before_reset", 0) != 0;
  for (int d = 0; d < r.directions(); ++d) {
    const Val w = r.of(1, d), wb = r.bias(d, 0), rb = r.bias(d, 1);
    if (linear_before_reset && r.is_usual()) {
      r.run_node(d, "braid.Gru", {r.inputs(w, wb), r.of(2, d), r.initial(5, d), rb});
      continue;
    }
    const std::vector<Val> u = split(r.of(2, d), 0, {2 * size, size}), ub = split(rb, 0, {2 * size, size});
    r.run(d, {r.initial(5, d)}, [&](Val x, const std::vector<Val>& states) {
      const Val h = states[0];
      const std::vector<Val> from_x = split(times(x, w) + wb, 1, {2 * size, size});
      const std::vector<Val> gates = split(r.act(d, 0)(from_x[0] + times(h, u[0]) + ub[0]), 1, {size, size});
      const Val from_h =
          linear_before_reset ? gates[1] * (times(h, u[1]) + ub[1]) : times(gates[1] * h, u[1]) + ub[1];
      const Val fresh = r.act(d, 1)(from_x[1] + from_h);
      return std::vector<Val>{(1.0 - gates[0]) * fresh + gates[0] * h};
    });
  }
  r.finish();
}

/// Gates i, o, f, c; peepholes i, o, f.
void lstm(OnnxNode& n) {
  Recurrent r(n, 4, {"Sigmoid", "Tanh", "Tanh"});
  const std::int64_t size = r.hidden();
  const bool coupled = n.i("input_forget", 0) != 0;
  for (int d = 0; d < r.directions(); ++d) {
    const Val w = r.of(1, d), u = r.of(2, d), bias = r.bias(d, 0) + r.bias(d, 1);
    if (r.is_usual() && !n.has(7) && !coupled) {
      constexpr int kCell = 3;  // output
      r.run_node(d, "braid.Lstm", {r.inputs(w, bias), u, r.initial(5, d), r.initial(6, d)}, {kCell});
      continue;
    }
    std::vector<Val> peepholes;
    if (n.has(7)) peepholes = split(r.of(7, d), 0, {size, size, size});
    r.run(d, {r.initial(5, d), r.initial(6, d)}, [&](Val x, const std::vector<Val>& states) {
      const Val c = states[1];
      const std::vector<Val> g = split(times(x, w) + times(states[0], u) + bias, 1, {size, size, size, size});
      const auto with = [&](Val gate, Val cell, int i) {
        return peepholes.empty() ? gate : gate + peepholes[static_cast<std::size_t>(i)] * cell;
      };
      const Val input = r.act(d, 0)(with(g[0], c, 0));
      const Val forget = coupled ? 1.0 - input : r.act(d, 0)(with(g[2], c, 2));
      const Val cell = forget * c + input * r.act(d, 1)(g[3]);
      const Val output = r.act(d, 0)(with(g[1], cell, 1));
      return std::vector<Val>{output * r.act(d, 2)(cell), cell};
    });
  }
  r.finish();
}

}  // namespace

void add_recurrent(Translations& t) {
  t.add("RNN", rnn);
  t.add("GRU", gru);
  t.add("LSTM", lstm);
}

}  // namespace braid::onnx
