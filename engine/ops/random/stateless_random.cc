// TensorFlow's stateless random numbers, bit for bit where its are integers or uniform: what they are follows
// from a seed that the graph computes, not from the step, so a graph that counts its own seeds (Keras'
// dropout) draws what TensorFlow draws.
//   StatelessRandomGetKeyCounter(seed [2]) -> key [1], counter [2], uint64; also with V2
//   StatelessRandomGetAlg() -> int32, 1: Philox
//   StatelessRandomUniformV2(shape, key, counter, alg), StatelessRandomNormalV2, StatelessTruncatedNormalV2
//   StatelessRandomUniform(shape, seed), StatelessRandomNormal, StatelessTruncatedNormal
// All of float32. Element i is word i % 4 of Philox4x32-10's block counter + i / 4; a uniform has its low 23
// bits, normals are by Box and Muller from two words (tensorflow/core/lib/random/random_distributions.h). A
// truncated normal takes the next word's instead of a value outside of (-2, 2); each four elements have 256
// blocks of their own for that (tensorflow/core/kernels/random_ops_util.h).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/philox.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

struct Stream {
  PhiloxKey key;
  std::uint64_t low = 0, high = 0;  // the 128-bit counter

  PhiloxCounter block(std::uint64_t skipped) const {
    const std::uint64_t at = low + skipped, carried = high + (at < low ? 1 : 0);
    return philox4x32({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32),
                       static_cast<std::uint32_t>(carried), static_cast<std::uint32_t>(carried >> 32)},
                      key);
  }
};

constexpr std::uint64_t word_pair(std::uint32_t low, std::uint32_t high) {
  return std::uint64_t{low} | std::uint64_t{high} << 32;
}

/// Scrambled, so that it does not matter which part of the seed differs.
Stream stream_of_seed(std::uint64_t seed0, std::uint64_t seed1) {
  const PhiloxCounter mixed = Stream{{0x3ec8f720, 0x02461e29}, seed0, seed1}.block(0);
  return {{mixed[0], mixed[1]}, 0, word_pair(mixed[2], mixed[3])};
}

float uniform(std::uint32_t bits) {
  const std::uint32_t word = (bits & 0x7fffffU) | 127U << 23;
  float value = 0;
  std::memcpy(&value, &word, sizeof(value));
  return value - 1.0F;
}

struct Pair {
  float first, second;
};

Pair box_muller(std::uint32_t a, std::uint32_t b) {
  constexpr float kLeast = 1.0e-7F;
  const float u = std::max(uniform(a), kLeast);
  const auto angle = static_cast<float>(2.0 * std::numbers::pi * double{uniform(b)});
  const float radius = std::sqrt(-2.0F * std::log(u));
  return {std::sin(angle) * radius, std::cos(angle) * radius};
}

/// Four elements of a block.
std::array<float, 4> uniforms(const Stream& stream, std::uint64_t block) {
  const PhiloxCounter words = stream.block(block);
  return {uniform(words[0]), uniform(words[1]), uniform(words[2]), uniform(words[3])};
}

std::array<float, 4> normals(const Stream& stream, std::uint64_t block) {
  const PhiloxCounter words = stream.block(block);
  const Pair a = box_muller(words[0], words[1]), b = box_muller(words[2], words[3]);
  return {a.first, a.second, b.first, b.second};
}

std::array<float, 4> truncated_normals(const Stream& stream, std::uint64_t group) {
  constexpr std::uint64_t kBlocks = 256;
  constexpr float kMost = 2.0F;
  std::array<float, 4> out{};
  std::size_t filled = 0;
  for (std::uint64_t b = 0; filled < out.size(); ++b) {
    const PhiloxCounter words = stream.block(group * kBlocks + b);
    for (std::size_t w = 0; w < 4; w += 2) {
      const Pair pair = box_muller(words[w], words[w + 1]);
      for (const float value : {pair.first, pair.second})
        if (filled < out.size() && std::abs(value) < kMost) out[filled++] = value;
    }
  }
  return out;
}

using Block = std::array<float, 4> (*)(const Stream&, std::uint64_t);

void fill(Block block, const Stream& stream, std::int64_t begin, std::int64_t end, float* out) {
  for (std::int64_t i = begin; i < end;) {
    const std::array<float, 4> values = block(stream, static_cast<std::uint64_t>(i / 4));
    for (std::int64_t k = i % 4; k < 4 && i < end; ++k, ++i) out[i] = values[static_cast<std::size_t>(k)];
  }
}

Stream stream_of_inputs(const KernelArgs& a, bool has_key, bool long_seed) {
  if (has_key) {
    const std::uint64_t key = a.in<std::uint64_t>(1)[0];
    return {{static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)},
            a.in<std::uint64_t>(2)[0],
            a.in<std::uint64_t>(2)[1]};
  }
  if (long_seed) return stream_of_seed(a.in<std::uint64_t>(1)[0], a.in<std::uint64_t>(1)[1]);
  const auto* seed = a.in<std::int32_t>(1);
  return stream_of_seed(static_cast<std::uint64_t>(std::int64_t{seed[0]}),
                        static_cast<std::uint64_t>(std::int64_t{seed[1]}));
}

void require_seed(InferContext& c, int input) {
  c.require_rank(input, 1);
  require_index_dtype(c, input);
  if (c.shape(input).is_static() && c.shape(input)[0] != 2) c.fail("a seed is two numbers");
}

void infer(InferContext& c) {
  const DType dtype = c.attr("dtype", DType::Float32);
  if (dtype != DType::Float32)
    c.fail("attribute dtype must be float32, got " + std::string(dtype_name(dtype)));
  c.require_rank(0, 1);
  require_index_dtype(c, 0);
  if (c.inputs() == 2) require_seed(c, 1);
  if (const Tensor* shape = c.value(0)) return c.output(dtype, Shape(tensor_to_int64s(*shape)));
  if (!c.shape(0).is_static()) return c.output(dtype, Shape::unknown_rank());
  c.output(dtype, Shape(std::vector<std::int64_t>(static_cast<std::size_t>(c.shape(0)[0]), Shape::kUnknown)));
}

PreparedKernel prepare(const PrepareContext& c, Block block) {
  const bool has_key = c.inputs.size() > 2, long_seed = !has_key && c.inputs[1].dtype == DType::Int64;
  return parallel_kernel(c, c.outputs[0].shape.elements(), kElementGrain,
                         [=](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                           fill(block, stream_of_inputs(a, has_key, long_seed), begin, end, a.out<float>(0));
                         });
}

void infer_key(InferContext& c) {
  require_seed(c, 0);
  c.output(DType::UInt64, Shape{1});
  c.output(DType::UInt64, Shape{2});
}

PreparedKernel prepare_key(const PrepareContext& c) {
  const bool is_long = c.inputs[0].dtype == DType::Int64;
  return serial_kernel([is_long](const KernelArgs& a) {
    const auto part = [&](int i) {
      return is_long ? a.in<std::uint64_t>(0)[i]
                     : static_cast<std::uint64_t>(std::int64_t{a.in<std::int32_t>(0)[i]});
    };
    const Stream stream = stream_of_seed(part(0), part(1));
    a.out<std::uint64_t>(0)[0] = word_pair(stream.key[0], stream.key[1]);
    a.out<std::uint64_t>(1)[0] = stream.low;
    a.out<std::uint64_t>(1)[1] = stream.high;
  });
}

constexpr const char* kDrawn = "its output is drawn, not computed from its inputs";

void add_draws(OpRegistry& registry, const char* name, int inputs, Block block) {
  registry.add({.name = name,
                .traits = computes(),
                .min_inputs = inputs,
                .max_inputs = inputs,
                .infer = infer,
                .no_gradient_reason = kDrawn,
                .cpu = [block](const PrepareContext& c) { return prepare(c, block); },
                .shape_values = {0}});
}

}  // namespace

void register_stateless_random(OpRegistry& registry) {
  registry.add({.name = "StatelessRandomGetKeyCounter",
                .traits = computes().names({"key", "counter"}),
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = infer_key,
                .no_gradient_reason = kDrawn,
                .cpu = prepare_key});
  registry.add({.name = "StatelessRandomGetAlg",
                .traits = computes().type_attrs({}),
                .infer = [](InferContext& c) { c.output(DType::Int32, Shape{}); },
                .no_gradient_reason = "its output is a constant",
                .cpu =
                    [](const PrepareContext&) {
                      return serial_kernel([](const KernelArgs& a) { a.out<std::int32_t>(0)[0] = 1; });
                    }});
  add_draws(registry, "StatelessRandomUniform", 2, uniforms);
  add_draws(registry, "StatelessRandomNormal", 2, normals);
  add_draws(registry, "StatelessTruncatedNormal", 2, truncated_normals);
  add_draws(registry, "StatelessRandomUniformV2", 4, uniforms);
  add_draws(registry, "StatelessRandomNormalV2", 4, normals);
  add_draws(registry, "StatelessTruncatedNormalV2", 4, truncated_normals);
}

}  // namespace braid
