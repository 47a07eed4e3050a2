// If, Loop and Scan, where they need no control flow: both branches of an If are computed and one is chosen,
// unless the condition is known; Loop and Scan whose number of rounds is known, or follows from conditions
// that are known, are unrolled.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "engine/import/onnx/node.h"

namespace braid::onnx {
namespace {

constexpr std::int64_t kMaxRounds = 1024;

/// Empty when the body has problems, which are reported where they are.
std::optional<std::vector<BodyValue>> body_of(OnnxNode& n, const char* name,
                                              const std::vector<BodyValue>& arguments,
                                              const Taken* taken = nullptr) {
  std::vector<BodyValue> results = n.around.translate_body(n.body(name), arguments, taken);
  for (const BodyValue& result : results)
    if (!result) return std::nullopt;
  return results;
}

/// Throws: InvalidArgument when the body gives less.
const BodyValue& given(const std::vector<BodyValue>& results, std::size_t i) {
  if (i >= results.size())
    throw InvalidArgument(
        fmt::format("its body gives {} values, it needs {} and more", results.size(), i + 1));
  return results[i];
}

/// How many outputs a node has beyond those of its states. Throws: InvalidArgument when it has less.
std::size_t outputs_beyond(const OnnxNode& n, std::size_t states) {
  const auto outputs = static_cast<std::size_t>(n.outputs());
  if (outputs < states)
    throw InvalidArgument(fmt::format("it has {} outputs and {} states", outputs, states));
  return outputs - states;
}

/// Throws: InvalidArgument when it is a sequence.
Val tensor_of(const BodyValue& value) {
  if (value.sequence) throw InvalidArgument("a sequence is where only a tensor is supported");
  return value.tensor;
}

[[noreturn]] void fail_body() { throw InvalidArgument("its body cannot be translated"); }

void if_op(OnnxNode& n) {
  const Val condition = reshape(n.in(0), Ints{});
  if (const auto known = known_ints(cast(condition, DType::Int64))) {
    const auto results = body_of(n, known->at(0) != 0 ? "then_branch" : "else_branch", {});
    if (!results) fail_body();
    for (int i = 0; i < n.outputs(); ++i) n.out_any(i, given(*results, static_cast<std::size_t>(i)));
    return;
  }
  const Taken if_true{cast(condition, DType::Bool), true}, if_false{if_true.condition, false};
  const auto yes = body_of(n, "then_branch", {}, &if_true), no = body_of(n, "else_branch", {}, &if_false);
  if (!yes || !no) fail_body();
  for (int i = 0; i < n.outputs(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    const Val a = tensor_of(given(*yes, at)), b = tensor_of(given(*no, at));
    Shape both;
    const bool fit = merge_shapes(a.shape(), b.shape(), both) && both.has_rank();
    const auto unknown =
        fit ? std::count_if(both.dims().begin(), both.dims().end(), [](auto d) { return d < 0; }) : 0;
    if (!fit || unknown > 1)
      throw InvalidArgument(
          fmt::format("its branches give shapes {} and {}: only equal ones with at most one "
                      "unknown size are supported (--shape may tell it)",
                      a.shape().to_string(), b.shape().to_string()));
    if (unknown == 1) {  // a step where they differ fails in the Reshape
      n.out(i, where(condition, a, reshape(b, shape_of(a))));
      continue;
    }
    const Ints sizes(both.dims().begin(), both.dims().end());
    n.out(i, where(condition, refined(a, sizes), refined(b, sizes)));
  }
}

/// Of a condition that goes on with a loop.
bool goes_on(Val condition) { return known_ints(cast(reshape(condition, Ints{}), DType::Int64))->at(0) != 0; }

/// A loop whose condition data decide: all rounds up to the trip count are computed, and those that are not
/// taken do not count, nor do their gradients.
class ChosenRounds {
 public:
  /// `rounds`: the trip count, or a number without end; `joins`: values of all rounds are outputs.
  ChosenRounds(std::int64_t rounds, bool joins) : rounds_(rounds), joins_(joins) {}

  bool any() const { return taken_.has_value(); }
  const Taken* taken() const { return taken_ ? &*taken_ : nullptr; }
  /// One more condition. Throws: InvalidArgument where not all rounds can be computed.
  void add(Val condition) {
    if (rounds_ > kMaxChosen || joins_)
      throw InvalidArgument(
          fmt::format("control flow is not supported: its condition must be known (--shape may tell it), or "
                      "its trip count at most {} and no scan outputs",
                      kMaxChosen));
    const Val now = cast(reshape(condition, Ints{}), DType::Bool);
    taken_ = Taken{taken_ ? tf("LogicalAnd", {taken_->condition, now}) : now, true};
  }
  /// A state as the body gets it.
  BodyValue gated(const BodyValue& state) const {
    if (!taken_ || state.sequence || !is_floating(state.tensor.dtype())) return state;
    return {where(taken_->condition, state.tensor, tf("StopGradient", {state.tensor})), {}};
  }
  /// What the round leaves of a state. Throws: InvalidArgument where its shape changes.
  BodyValue chosen(const BodyValue& before, const BodyValue& after) const {
    if (!taken_) return after;
    const Val a = tensor_of(after), b = tensor_of(before);
    if (a.shape() != b.shape())
      throw InvalidArgument(
          fmt::format("a state is {} before a round and {} behind it, where its condition is not known",
                      b.shape().to_string(), a.shape().to_string()));
    return {where(taken_->condition, a, b), {}};
  }

 private:
  static constexpr std::int64_t kMaxChosen = 256;
  const std::int64_t rounds_;
  const bool joins_;
  std::optional<Taken> taken_;
};

void loop(OnnxNode& n) {
  std::int64_t rounds = std::numeric_limits<std::int64_t>::max();
  if (n.has(0)) rounds = need_ints(n.in(0), "control flow is not supported: the trip count").at(0);
  Val condition = n.has(1) ? n.in(1) : n.b.number(1, DType::Bool);
  std::vector<BodyValue> state;
  for (int i = 2; i < n.inputs(); ++i) state.push_back(n.in_any(i));
  const std::size_t states = state.size();
  std::vector<std::vector<Val>> scanned(outputs_beyond(n, states));
  ChosenRounds by_data(rounds, !scanned.empty());
  for (std::int64_t round = 0; round < rounds; ++round) {
    if (by_data.any() || condition.known() == nullptr)
      by_data.add(condition);
    else if (!goes_on(condition))
      break;
    if (round == kMaxRounds) throw InvalidArgument(fmt::format("more than {} rounds", kMaxRounds));
    std::vector<BodyValue> arguments{{n.b.number(static_cast<double>(round), DType::Int64), {}},
                                     {condition, {}}};
    for (const BodyValue& value : state) arguments.push_back(by_data.gated(value));
    const auto results = body_of(n, "body", arguments, by_data.taken());
    if (!results) fail_body();
    condition = tensor_of(given(*results, 0));
    for (std::size_t i = 0; i < states; ++i) state[i] = by_data.chosen(state[i], given(*results, i + 1));
    for (std::size_t i = 0; i < scanned.size(); ++i)
      scanned[i].push_back(tensor_of(given(*results, states + 1 + i)));
  }
  for (std::size_t i = 0; i < states; ++i) n.out_any(static_cast<int>(i), state[i]);
  for (std::size_t i = 0; i < scanned.size(); ++i) {
    if (scanned[i].empty()) throw InvalidArgument("a loop without rounds has no outputs to join");
    n.out(static_cast<int>(states + i), pack(scanned[i], 0));
  }
}

/// One batch entry or, from operator set 9 on, the whole node.
std::vector<Val> scan_rounds(OnnxNode& n, std::vector<Val> state, const std::vector<Val>& inputs,
                             const Ints& in_axes, const Ints& in_directions, const Ints& out_axes,
                             const Ints& out_directions) {
  const std::size_t states = state.size();
  const int first_axis = inputs.empty() ? 0 : positive_axis(in_axes[0], inputs[0].rank());
  const std::int64_t rounds = inputs.empty() ? 0 : inputs[0].static_dim(first_axis);
  if (rounds == 0 || rounds > kMaxRounds)
    throw InvalidArgument(fmt::format("{} rounds cannot be unrolled", rounds));
  std::vector<std::vector<Val>> scanned(outputs_beyond(n, states));
  for (std::int64_t round = 0; round < rounds; ++round) {
    std::vector<BodyValue> arguments;
    for (const Val& value : state) arguments.push_back({value, {}});
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const int axis = positive_axis(in_axes[i], inputs[i].rank());
      const std::int64_t at = in_directions[i] != 0 ? rounds - 1 - round : round;
      arguments.push_back({squeeze(slice(inputs[i], axis, at, at + 1), {axis}), {}});
    }
    const auto results = body_of(n, "body", arguments);
    if (!results) fail_body();
    for (std::size_t i = 0; i < states; ++i) state[i] = tensor_of(given(*results, i));
    for (std::size_t i = 0; i < scanned.size(); ++i)
      scanned[i].push_back(tensor_of(given(*results, states + i)));
  }
  for (std::size_t i = 0; i < scanned.size(); ++i) {
    if (out_directions[i] != 0) std::reverse(scanned[i].begin(), scanned[i].end());
    const int rank = scanned[i].front().rank() + 1;
    state.push_back(pack(scanned[i], positive_axis(out_axes[i], rank)));
  }
  return state;
}

void scan(OnnxNode& n) {
  const bool batched = n.opset < 9;  // input 0 is the lengths of the sequences, axis 0 the batch
  const int first = batched ? 1 : 0;
  if (batched && n.has(0)) throw InvalidArgument("sequence lengths are not supported");
  const std::int64_t scanned_inputs = n.positive("num_scan_inputs", 0);
  if (scanned_inputs > n.inputs() - first)
    throw InvalidArgument(
        fmt::format("num_scan_inputs is {} of {} inputs", scanned_inputs, n.inputs() - first));
  const auto inputs = static_cast<std::size_t>(scanned_inputs);
  const std::size_t states = static_cast<std::size_t>(n.inputs() - first) - inputs;
  const std::size_t outs = outputs_beyond(n, states);
  const auto list = [&](const char* name, std::size_t count) { return n.is(name, Ints(count, 0)); };
  const Ints in_directions = list(batched ? "directions" : "scan_input_directions", inputs);
  const Ints in_axes = list("scan_input_axes", inputs), out_axes = list("scan_output_axes", outs);
  const Ints out_directions = list("scan_output_directions", outs);
  const std::int64_t batch = batched ? n.in(1).static_dim(0) : 1;
  if (batch < 1 || batch > kMaxRounds)
    throw InvalidArgument(fmt::format("a batch of {} cannot be unrolled", batch));
  std::vector<std::vector<Val>> results(states + outs);
  for (std::int64_t entry = 0; entry < batch; ++entry) {
    std::vector<Val> values;
    for (int i = first; i < n.inputs(); ++i)
      values.push_back(batched ? squeeze(slice(n.in(i), 0, entry, entry + 1), {0}) : n.in(i));
    const std::vector<Val> state(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(states));
    const std::vector<Val> scanned(values.begin() + static_cast<std::ptrdiff_t>(states), values.end());
    const std::vector<Val> one =
        scan_rounds(n, state, scanned, in_axes, in_directions, out_axes, out_directions);
    for (std::size_t i = 0; i < one.size(); ++i) results[i].push_back(one[i]);
  }
  for (std::size_t i = 0; i < results.size(); ++i)
    n.out(static_cast<int>(i), batched ? pack(results[i], 0) : tf("Identity", {results[i].front()}));
}

}  // namespace

void add_bodies(Translations& t) {
  t.add("If", if_op);
  t.add("Loop", loop);
  t.add("Scan", scan);
}

}  // namespace braid::onnx
