// Ops of ragged values on a device beside the same ops of the host, on random shapes: rows that are empty, of
// one value, of thousands; all masks; float32 as it is, rounded to TF32, and halves. Attention also gives the
// same bits in each run.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "base/error.h"
#include "tests/engine/ops/cuda_runner.h"
#include "tests/engine/ops/half_cases.h"
#include "tests/support/missing.h"

namespace braid::testing {
namespace {

using ::testing::HasSubstr;

class Random {
 public:
  explicit Random(std::uint64_t seed) : random_(seed) {}
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n));
  }
  std::int64_t one_of(const std::vector<std::int64_t>& list) {
    return list[static_cast<std::size_t>(below(std::ssize(list)))];
  }
  /// Rows from none to `longest` values, with empty ones and ones of a single value often among them.
  std::vector<std::int64_t> offsets(std::int64_t batch, std::int64_t longest) {
    std::vector<std::int64_t> all{0};
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::int64_t kind = below(6);
      all.push_back(all.back() + (kind == 0 ? 0 : kind == 1 ? 1 : kind == 2 ? longest : below(longest + 1)));
    }
    return all;
  }
  Tensor list(const std::vector<std::int64_t>& values) {
    const Tensor wide = Tensor::from<std::int64_t>(Shape{std::ssize(values)}, values);
    return below(2) == 0 ? wide : converted(wide, DType::Int32);
  }

 private:
  std::mt19937_64 random_;
};

struct Attention {
  std::string name;
  OpCase forward;
  Tensor d_out;
  bool softmax = false;
};

Attention random_attention(std::uint64_t seed, std::int64_t longest, std::int64_t most_rows,
                           std::vector<std::int64_t> widths) {
  Random random(seed);
  Attention a;
  const std::int64_t heads = 1 + random.below(3), qk = random.one_of(widths);
  const std::int64_t v = random.below(2) == 0 ? qk : random.one_of(widths);
  const std::int64_t batch = 1 + random.below(most_rows);
  const std::vector<std::int64_t> offsets = random.offsets(batch, longest);
  const std::int64_t n = offsets.back() + random.below(5);
  a.softmax = random.below(2) == 0;
  a.forward.label = "attention";
  for (const std::int64_t width : {qk, qk, v})
    a.forward.inputs.push_back(
        converted(random_f64({n, heads, width}, seed * 10 + a.forward.inputs.size(), -2, 2), DType::Float32));
  a.d_out = converted(random_f64({n, heads, v}, seed * 10 + 5, -2, 2), DType::Float32);
  a.forward.inputs.push_back(random.list(offsets));
  if (random.below(2) == 0) {
    std::vector<std::int64_t> targets;
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::int64_t length =
          offsets[static_cast<std::size_t>(b) + 1] - offsets[static_cast<std::size_t>(b)];
      targets.push_back(random.below(std::min<std::int64_t>(length, random.below(3) == 0 ? 200 : 4) + 1));
    }
    a.forward.inputs.push_back(random.list(targets));
  }
  a.forward.attrs = {
      {"activation", a.softmax ? "softmax" : "silu"},
      {"causal", random.below(3) > 0},
      {"window", random.below(2) == 0 ? 0 : 1 + random.below(longest)},
      {"context", random.below(2) == 0 ? 0 : 1 + random.below(80)},
      {"max_length", random.below(2) == 0 ? 0 : longest + random.below(10)},
      {"scale", random.below(2) == 0 ? 0.0 : 0.05 + 0.1 * static_cast<double>(random.below(5))}};
  a.name = fmt::format("seed {}, {} values in {} rows, {} heads of {} and {}, {}", seed, n, batch, heads, qk,
                       v, a.softmax ? "softmax" : "silu");
  return a;
}

/// The gradient's case; what softmax keeps is the host's.
OpCase backward_of(const Attention& a, const std::vector<Tensor>& forward) {
  OpCase c = a.forward;
  c.inputs.insert(c.inputs.begin() + 3, a.d_out);
  if (a.softmax) c.inputs.insert(c.inputs.end(), {forward[0], forward[1]});
  return c;
}

/// The largest difference, relative to the largest number that is expected, or to `least`.
double difference(const Tensor& expected, const Tensor& actual, double least) {
  EXPECT_EQ(expected.shape(), actual.shape());
  const std::vector<double> a = to_doubles(cast(expected, DType::Float32));
  const std::vector<double> b = to_doubles(cast(actual, DType::Float32));
  double most = least, worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(a[i]));
    worst = std::max(worst, std::isfinite(b[i]) ? std::abs(a[i] - b[i]) : INFINITY);
  }
  return worst / most;
}

struct Kind {
  const char* name;
  DType half;  // Float32: none
  Products products;
  double tolerance;
};
constexpr Kind kKinds[] = {{"float32", DType::Float32, Products::Exact, 5e-5},
                           {"TF32", DType::Float32, Products::Tf32, 2e-2},
                           {"float16", DType::Float16, Products::Exact, 1.5e-2},
                           {"bfloat16", DType::BFloat16, Products::Exact, 4e-2}};

OpCase narrowed(OpCase c, std::size_t floats, const Kind& kind, std::vector<std::int64_t> outputs) {
  if (kind.half == DType::Float32) return c;
  for (std::size_t i = 0; i < floats; ++i) c.inputs[i] = cast(c.inputs[i], kind.half);
  if (!outputs.empty()) {
    c.attrs.set(kHalfOutputs, outputs);
    c.attrs.set(kHalfType, kind.half);
  }
  return c;
}

/// The host computes with the same, rounded, inputs in float32.
void compare(const char* op, const OpCase& c, const Kind& kind, const std::vector<const char*>& names,
             double least = 1e-3) {
  const OpDef& def = OpRegistry::global().require(op);
  const Results host = run_program(def, c, Domain::Host, 1);
  const Results device = run_program(def, c, Domain::Device, 3, 1, kind.products);
  ASSERT_TRUE(device.on_device) << op;
  for (std::size_t o = 0; o < names.size(); ++o)
    EXPECT_LT(difference(host.outputs[o], device.outputs[o], least), kind.tolerance) << names[o];
  const Results again = run_program(def, c, Domain::Device, 1, 1, kind.products);
  for (std::size_t o = 0; o < names.size(); ++o)
    EXPECT_EQ(std::memcmp(device.outputs[o].raw(), again.outputs[o].raw(), again.outputs[o].bytes()), 0)
        << names[o] << " differs from run to run";
}

void compare(const Attention& a, const Kind& kind, bool half_outputs) {
  SCOPED_TRACE(fmt::format("{}, {}", kind.name, a.name));
  try {
    compare("braid.RaggedAttention",
            narrowed(a.forward, 3, kind,
                     half_outputs ? std::vector<std::int64_t>{0} : std::vector<std::int64_t>{}),
            kind,
            a.softmax ? std::vector<const char*>{"output", "log_sum"} : std::vector<const char*>{"output"});
    // Where a query sees itself alone, softmax's gradients are differences of equal, rounded, sums.
    const Results forward =
        run_program(OpRegistry::global().require("braid.RaggedAttention"), a.forward, Domain::Host, 1);
    compare("braid.RaggedAttentionGrad",
            narrowed(backward_of(a, forward.outputs), 4, kind,
                     half_outputs ? std::vector<std::int64_t>{0, 2} : std::vector<std::int64_t>{}),
            kind, {"dq", "dk", "dv"}, a.softmax ? 3 : 1e-3);
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
}

class CudaRaggedAttention : public ::testing::TestWithParam<Kind> {};

TEST_P(CudaRaggedAttention, IsTheHostsOnRandomShapes) {
  if (!cuda_device()) GTEST_SKIP() << missing::kCudaDevice;
  for (std::uint64_t seed = 0; seed < 60 && !HasFailure(); ++seed) {
    const bool odd = seed % 4 == 3;  // widths without tensor cores
    compare(random_attention(seed, seed % 5 == 0 ? 400 : 90, 6,
                             odd ? std::vector<std::int64_t>{1, 3, 7, 20, 130}
                                 : std::vector<std::int64_t>{8, 16, 24, 32, 48, 64, 96, 128}),
            GetParam(), seed % 2 == 0);
  }
}

/// Heads [first, first + count) of a value [n, heads, d] become the parts' from there on.
void put_heads(const Tensor& from, Tensor& to, std::int64_t first) {
  const std::int64_t n = from.shape()[0], width = from.shape()[1] * from.shape()[2];
  const std::int64_t row = to.shape()[1] * to.shape()[2];
  for (std::int64_t i = 0; i < n; ++i)
    std::copy_n(from.data<float>().data() + i * width, width,
                to.data<float>().data() + i * row + first * from.shape()[2]);
}

/// Queries, keys and values that are parts of one value, whose gradient is one output, with `rest` in front
/// of dv, dq and dk: beside the host, which has each apart.
void compare_parts(const Attention& a, const Kind& kind) {
  SCOPED_TRACE(fmt::format("{}, {}, parts", kind.name, a.name));
  const Shape& q = a.forward.inputs[0].shape();
  const std::int64_t n = q[0], heads = q[1], width = q[2];
  Tensor wide(DType::Float32, {n, 4 * heads, width});
  const Tensor rest = converted(random_f64({n, heads * width}, 77, -2, 2), DType::Float32);
  put_heads(rest.reshaped({n, heads, width}), wide, 0);
  const std::vector<std::int64_t> first{2 * heads, 3 * heads, heads};
  for (std::size_t i = 0; i < 3; ++i) put_heads(a.forward.inputs[i], wide, first[i]);
  const auto of_parts = [&](OpCase c) {
    for (std::size_t i = 0; i < 3; ++i) c.inputs[i] = wide;
    c.attrs.set("heads", heads);
    c.attrs.set("first_heads", first);
    return c;
  };
  const auto run = [&](const char* op, const OpCase& c, Domain domain) {
    return run_program(OpRegistry::global().require(op), c, domain, 1, 1, kind.products).outputs;
  };
  const OpCase forward = narrowed(a.forward, 3, kind, {});
  const std::vector<Tensor> out = run("braid.RaggedAttention", forward, Domain::Host);
  EXPECT_LT(
      difference(out[0],
                 run("braid.RaggedAttention", narrowed(of_parts(a.forward), 3, kind, {}), Domain::Device)[0],
                 1e-3),
      kind.tolerance);
  const OpCase backward = backward_of(a, run("braid.RaggedAttention", a.forward, Domain::Host));
  const std::vector<Tensor> apart =
      run("braid.RaggedAttentionGrad", narrowed(backward, 4, kind, {}), Domain::Host);
  Tensor expected(DType::Float32, wide.shape());
  put_heads(rest.reshaped({n, heads, width}), expected, 0);
  for (std::size_t i = 0; i < 3; ++i) put_heads(apart[i], expected, first[i]);
  OpCase joined = of_parts(backward);
  joined.attrs.set("joined_heads", 4 * heads);
  joined.attrs.set("first_gradients", first);
  joined.attrs.set("rest_columns", std::vector<std::int64_t>{0});
  joined = narrowed(joined, 4, kind, {0});
  joined.inputs.push_back(kind.half == DType::Float32 ? rest : cast(rest, kind.half));
  const std::vector<Tensor> got = run("braid.RaggedAttentionGrad", joined, Domain::Device);
  ASSERT_EQ(got.size(), 1U);
  EXPECT_LT(difference(expected, got[0], a.softmax ? 3 : 1e-3), kind.tolerance);
}

TEST_P(CudaRaggedAttention, TakesPartsOfValuesAndJoinsTheirGradients) {
  if (!cuda_device()) GTEST_SKIP() << missing::kCudaDevice;
  for (std::uint64_t seed = 2000; seed < 2016 && !HasFailure(); ++seed) {
    const std::int64_t width = seed % 4 == 0 ? 7 : seed % 4 == 1 ? 40 : 128;
    compare_parts(random_attention(seed, seed % 5 == 0 ? 400 : 90, 6, {width}), GetParam());
  }
}

TEST_P(CudaRaggedAttention, TakesThousandsOfValues) {
  if (!cuda_device()) GTEST_SKIP() << missing::kCudaDevice;
  Kind of_long_sums = GetParam();
  of_long_sums.tolerance = std::max(of_long_sums.tolerance, 1e-4);  // of both float32 sums
  for (const std::uint64_t seed : {1000, 1001, 1002, 1003})
    compare(random_attention(seed, 4095, 2, {64, 128}), of_long_sums, true);
}

INSTANTIATE_TEST_SUITE_P(Kinds, CudaRaggedAttention, ::testing::ValuesIn(kKinds),
                         [](const auto& info) { return std::string(info.param.name); });

/// By one query a row, beside the host.
void compare_queries(std::uint64_t seed, std::int64_t longest, const Kind& kind) {
  Random random(seed);
  const std::int64_t heads = 1 + random.below(3), rows = 1 + random.below(6);
  const std::int64_t qk = random.one_of({1, 3, 8, 20, 64, 128, 200, 512});
  const std::int64_t v = random.below(2) == 0 ? qk : random.one_of({1, 7, 32, 128, 260});
  const std::vector<std::int64_t> offsets = random.offsets(rows, longest);
  const std::int64_t n = offsets.back() + random.below(5);
  const bool softmax = random.below(2) == 0;
  SCOPED_TRACE(fmt::format("{}, seed {}, {} values in {} rows, {} heads of {} and {}, {}", kind.name, seed, n,
                           rows, heads, qk, v, softmax ? "softmax" : "silu"));
  const auto values = [&](std::int64_t count, std::int64_t width, std::uint64_t salt) {
    return converted(random_f64({count, heads, width}, seed * 10 + salt, -1, 1), DType::Float32);
  };
  OpCase forward{.label = "queries",
                 .inputs = {values(rows, qk, 1), values(n, qk, 2), values(n, v, 3), random.list(offsets)},
                 .attrs = {{"activation", softmax ? "softmax" : "silu"},
                           {"max_length", random.below(2) == 0 ? 0 : longest + random.below(10)}}};
  const bool half_outputs = random.below(2) == 0;
  const auto halved = [&](std::vector<std::int64_t> outputs) {
    return half_outputs ? std::move(outputs) : std::vector<std::int64_t>{};
  };
  compare("braid.QueryAttention", narrowed(forward, 3, kind, halved({0})), kind,
          softmax ? std::vector<const char*>{"output", "log_sum"} : std::vector<const char*>{"output"});
  OpCase backward = forward;
  backward.inputs.insert(backward.inputs.begin() + 3, values(rows, v, 4));
  if (softmax) {
    const Results kept =
        run_program(OpRegistry::global().require("braid.QueryAttention"), forward, Domain::Host, 1);
    backward.inputs.insert(backward.inputs.end(), {kept.outputs[0], kept.outputs[1]});
  }
  compare("braid.QueryAttentionGrad", narrowed(backward, 4, kind, halved({1, 2})), kind, {"dq", "dk", "dv"},
          softmax ? 1 : 1e-3);
}

TEST_P(CudaRaggedAttention, OfOneQueryARowIsTheHosts) {
  if (!cuda_device()) GTEST_SKIP() << missing::kCudaDevice;
  for (std::uint64_t seed = 0; seed < 60 && !HasFailure(); ++seed)
    compare_queries(seed, seed % 10 == 0 ? 4095 : 90, GetParam());
}

TEST(CudaRaggedAttentionTest, ValuesOfNoRowAreZerosAndAreNotLookedAt) {
  if (!cuda_device()) GTEST_SKIP() << missing::kCudaDevice;
  for (const char* activation : {"silu", "softmax"})
    for (const std::int64_t width : {5, 32}) {
      const std::int64_t used = 70, all = 100;
      OpCase c{.label = "room", .attrs = {{"activation", activation}}};
      for (int i = 0; i < 4; ++i) {
        c.inputs.push_back(
            converted(random_f64({all, 2, width}, static_cast<std::uint64_t>(i)), DType::Float32));
        float* const room = c.inputs.back().data<float>().data() + used * 2 * width;
        std::fill(room, room + (all - used) * 2 * width, NAN);
      }
      c.inputs.push_back(i64({3}, {0, 1, used}));
      if (activation == std::string("softmax")) {
        c.inputs.push_back(c.inputs[2]);
        c.inputs.push_back(converted(random_f64({all, 2}, 9), DType::Float32));
      }
      OpCase forward = c;
      forward.inputs = {c.inputs[0], c.inputs[1], c.inputs[2], c.inputs[4]};
      for (const auto& [op, of] :
           {std::pair{"braid.RaggedAttention", forward}, {"braid.RaggedAttentionGrad", c}}) {
        SCOPED_TRACE(fmt::format("{} {} {}", op, activation, width));
        const Results got = run_program(OpRegistry::global().require(op), of, Domain::Device, 1);
        for (const Tensor& output : got.outputs) {
          if (output.elements() == 0) continue;
          const std::int64_t row = output.elements() / all;
          for (std::int64_t i = 0; i < output.elements(); ++i) {
            const float x = output.data<float>()[static_cast<std::size_t>(i)];
            ASSERT_TRUE(i < used * row ? std::isfinite(x) : x == 0) << i << ": " << x;
          }
        }
      }
    }
}

/// Equal bits, for what is only moved.
void expect_same(const char* op, const OpCase& c) {
  SCOPED_TRACE(fmt::format("{} of {}, {}", op, dtype_name(c.inputs[0].dtype()), c.label));
  try {
    const OpDef& def = OpRegistry::global().require(op);
    const Results host = run_program(def, c, Domain::Host, 1),
                  device = run_program(def, c, Domain::Device, 3);
    ASSERT_TRUE(device.on_device);
    for (std::size_t o = 0; o < host.outputs.size(); ++o) {
      ASSERT_EQ(host.outputs[o].shape(), device.outputs[o].shape());
      EXPECT_EQ(std::memcmp(host.outputs[o].raw(), device.outputs[o].raw(), host.outputs[o].bytes()), 0)
          << "output " << o;
    }
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
}

TEST(CudaRaggedLayout, MovesAsTheHostDoes) {
  if (!cuda_device()) GTEST_SKIP() << missing::kCudaDevice;
  for (std::uint64_t seed = 0; seed < 60 && !HasFailure(); ++seed) {
    Random random(seed);
    const std::int64_t batch = random.below(8), width = random.one_of({1, 2, 3, 8, 33, 64, 512});
    const std::int64_t longest = random.one_of({1, 20, 700});
    const std::vector<std::int64_t> a = random.offsets(batch, longest), b = random.offsets(batch, 3);
    const auto type = static_cast<DType>(
        random.one_of({static_cast<std::int64_t>(DType::Float32), static_cast<std::int64_t>(DType::Float64),
                       static_cast<std::int64_t>(DType::Int64), static_cast<std::int64_t>(DType::Int32),
                       static_cast<std::int64_t>(DType::BFloat16)}));
    const auto make = [&](std::int64_t rows) {
      const Tensor wide = random_f64({rows, width}, seed * 7 + static_cast<std::uint64_t>(rows), -99, 99);
      return type == DType::BFloat16 ? cast(converted(wide, DType::Float32), type) : converted(wide, type);
    };
    const Tensor x = make(a.back() + random.below(5)), y = make(b.back() + random.below(5));
    const Tensor of_x = random.list(a), of_y = random.list(b);
    const std::string label = fmt::format("seed {}", seed);
    const bool repeat = random.below(2) == 0;
    expect_same("braid.RaggedConcat",
                {.label = label, .inputs = {x, y, of_x, of_y}, .attrs = {{"repeat_last", repeat}}});
    const Tensor both = make(x.shape()[0] + y.shape()[0]);
    expect_same("braid.RaggedSplit", {.label = label, .inputs = {both, x, y, of_x, of_y}});
    if (batch > 0) {
      const std::int64_t each = 1 + random.below(9);
      expect_same("braid.RaggedConcat", {.label = label + ", width in front",
                                         .inputs = {make(batch * each), x, of_x},
                                         .attrs = {{"a_width", each}}});
      expect_same("braid.RaggedConcat", {.label = label + ", width behind",
                                         .inputs = {x, make(batch * each), of_x},
                                         .attrs = {{"b_width", each}, {"repeat_last", true}}});
    }
    const std::int64_t length = 1 + random.below(longest + 3);
    expect_same("braid.RaggedToDense",
                {.label = label, .inputs = {x, of_x}, .attrs = {{"max_length", length}}});
    const Tensor flat = make(batch * length);
    const Tensor dense = batch == 0 ? run_op("Reshape", {flat, i64({3}, {0, length, width})})[0]
                                    : run_op("Reshape", {flat, i64({3}, {batch, length, width})})[0];
    expect_same("braid.DenseToRagged", {.label = label, .inputs = {dense, of_x, x}});
    expect_same("braid.RowsLike", {.label = label, .inputs = {x, y}});
    expect_same("braid.RaggedPositions", {.label = label,
                                          .inputs = {of_x, x},
                                          .attrs = {{"from_end", random.below(2) == 0},
                                                    {"prefix", random.below(5)},
                                                    {"limit", random.below(2) * 10}}});
    expect_same("braid.SameOffsets", {.label = label, .inputs = {of_x, random.list(a)}});
  }
}

/// The text of the error that the op's kernel on the device finds.
std::string device_error(const char* op, std::vector<Tensor> inputs, AttrMap attrs = {}) {
  try {
    const OpCase c{.label = "bad", .inputs = std::move(inputs), .attrs = std::move(attrs)};
    run_program(OpRegistry::global().require(op), c, Domain::Device, 1);
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "none";
}

TEST(CudaRaggedErrors, BadOffsetsAndTargetsAreReported) {
  if (!cuda_device()) GTEST_SKIP() << missing::kCudaDevice;
  const Tensor x = converted(random_f64({4, 2, 8}, 1), DType::Float32),
               y = converted(random_f64({3, 2, 8}, 2), DType::Float32);
  const Tensor offsets = i64({3}, {0, 1, 4}), falls = i64({3}, {0, 3, 2}), beyond = i64({3}, {0, 3, 5});
  const Tensor late = i64({3}, {1, 3, 4});
  for (const Tensor& bad : {falls, beyond, late}) {
    EXPECT_THAT(device_error("braid.RaggedAttention", {x, x, x, bad}), HasSubstr("is not in [0, 4)"));
    EXPECT_THAT(device_error("braid.RaggedAttentionGrad", {x, x, x, x, bad}), HasSubstr("is not in [0, 4)"));
    EXPECT_THAT(device_error("braid.QueryAttention",
                             {run_op("Slice", {x, i64({3}, {0, 0, 0}), i64({3}, {2, 2, 8})})[0], x, x, bad}),
                HasSubstr("is not in [0, 4)"));
    EXPECT_THAT(device_error("braid.RaggedToDense", {x, bad}, {{"max_length", 3}}),
                HasSubstr("is not in [0, 4)"));
    EXPECT_THAT(
        device_error("braid.DenseToRagged", {run_op("Reshape", {x, i64({4}, {2, 2, 2, 8})})[0], bad, x}),
        HasSubstr("is not in [0, 4)"));
    EXPECT_THAT(device_error("braid.RaggedPositions", {bad, x}), HasSubstr("is not in [0, 4)"));
    EXPECT_THAT(device_error("braid.RaggedConcat", {x, y, bad, i64({3}, {0, 1, 3})}),
                HasSubstr("is not in [0, 4)"));
  }
  EXPECT_THAT(device_error("braid.RaggedSplit", {y, x, y, offsets, i64({3}, {0, 1, 2})}),
              HasSubstr("index 6 is not in [0, 3)"));
  EXPECT_THAT(device_error("braid.SameOffsets", {offsets, i32({3}, {0, 2, 4})}),
              HasSubstr("index 2 is not in [0, 1)"));
  EXPECT_THAT(device_error("braid.RaggedAttention", {x, x, x, offsets, i64({2}, {2, 0})}),
              HasSubstr("index 2 is not in [0, 2)"));
  EXPECT_THAT(device_error("braid.RaggedAttention", {x, x, x, offsets, i64({2}, {0, -1})}),
              HasSubstr("index -1 is not in [0, 4)"));
  EXPECT_THAT(device_error("braid.RaggedAttention", {x, x, x, offsets}, {{"max_length", 2}}),
              HasSubstr("index 3 is not in [0, 3)"));
}

}  // namespace
}  // namespace braid::testing
