// RandomUniform ([0, 1)), RandomStandardNormal, TruncatedNormal (within two standard deviations), float32,
// RandomUniformInt(shape, minval, maxval) in [minval, maxval), and RandomShuffle(x): x with its rows in a
// random order. Counter-based numbers of base/init.h, another set each step (engine/ops/common/random_key.h).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/random_key.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

Shape shape_input(const InferContext& c) {
  c.require_rank(0, 1);
  require_index_dtype(c, 0);
  if (!c.value(0))
    return c.shape(0).is_static()
               ? Shape(std::vector<std::int64_t>(static_cast<std::size_t>(c.shape(0)[0]), Shape::kUnknown))
               : Shape::unknown_rank();
  Shape shape(tensor_to_int64s(*c.value(0)));
  for (std::int64_t d : shape.dims())
    if (d < 0) c.fail("the shape has a negative dimension: " + shape.to_string());
  return shape;
}

void infer_float(InferContext& c) {
  const DType dtype = c.attr("dtype", DType::Float32);
  if (dtype != DType::Float32)
    c.fail("attribute dtype must be float32, got " + std::string(dtype_name(dtype)));
  c.output(dtype, shape_input(c));
}

using Fill = void (*)(RngKey, std::uint64_t first, std::span<float> out);

PreparedKernel prepare_float(const PrepareContext& c, Fill fill) {
  return parallel_kernel(
      c, c.outputs[0].shape.elements(), kElementGrain,
      [key = RandomKey(c.node.attrs, c.node.name), fill](const KernelArgs& a, std::int64_t begin,
                                                         std::int64_t end) {
        fill(key.at(*a.params), static_cast<std::uint64_t>(begin),
             std::span<float>(a.out<float>(0) + begin, static_cast<std::size_t>(end - begin)));
      });
}

void infer_int(InferContext& c) {
  require_index_dtype(c, 1);
  c.require_same_dtype(1, 2);
  for (int i : {1, 2}) c.require_rank(i, 0);
  c.output(c.dtype(1), shape_input(c));
}

/// low + floor(r * range / 2^64) with r of 64 random bits.
template <class T>
T scaled(std::uint32_t high_bits, std::uint32_t low_bits, T low, std::uint64_t range) {
  const std::uint64_t r = std::uint64_t{high_bits} << 32 | low_bits;
  const auto offset = static_cast<std::uint64_t>(static_cast<unsigned __int128>(r) * range >> 64);
  return static_cast<T>(static_cast<std::uint64_t>(low) + offset);
}

/// Elements [begin, end).
template <class T>
void fill_integers(RngKey key, std::int64_t begin, std::int64_t end, T low, std::uint64_t range, T* out) {
  constexpr std::int64_t kPiece = 512;
  std::array<std::uint32_t, 2 * kPiece> bits;
  for (std::int64_t i = begin; i < end; i += kPiece) {
    const std::int64_t n = std::min(kPiece, end - i);
    fill_bits(key, static_cast<std::uint64_t>(2 * i),
              std::span(bits.data(), static_cast<std::size_t>(2 * n)));
    for (std::int64_t k = 0; k < n; ++k) {
      const auto at = static_cast<std::size_t>(2 * k);
      out[i + k] = scaled(bits[at], bits[at + 1], low, range);
    }
  }
}

/// Element i alone.
template <class T>
T integer_at(RngKey key, std::int64_t i, T low, std::uint64_t range) {
  std::array<std::uint32_t, 2> bits;
  fill_bits(key, static_cast<std::uint64_t>(2 * i), bits);
  return scaled(bits[0], bits[1], low, range);
}

PreparedKernel prepare_int(const PrepareContext& c) {
  return with_index("RandomUniformInt", c.outputs[0].dtype, [&]<class T>() {
    return serial_kernel([key = RandomKey(c.node.attrs, c.node.name), count = c.outputs[0].shape.elements(),
                          place = place_of(c.node), pool = &c.pool](const KernelArgs& a) {
      const T low = a.in<T>(1)[0], high = a.in<T>(2)[0];
      if (low >= high)
        throw InvalidArgument(fmt::format("{}: minval {} is not below maxval {}", place, low, high));
      const std::uint64_t range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
      pool->parallel_range(count, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
        fill_integers(key.at(*a.params), begin, end, low, range, a.out<T>(0));
      });
    });
  });
}

/// A permutation from the last row down: row i changes places with one of the rows [0, i].
PreparedKernel prepare_shuffle(const PrepareContext& c) {
  const Shape& shape = c.inputs[0].shape;
  const std::int64_t rows = shape.rank() == 0 ? 1 : shape[0];
  const std::size_t element = dtype_size(c.inputs[0].dtype);
  if (element == 0) c.fail("does not take " + std::string(dtype_name(c.inputs[0].dtype)));
  const std::size_t row_bytes = rows == 0 ? 0 : static_cast<std::size_t>(shape.elements() / rows) * element;
  PreparedKernel kernel;
  kernel.scratch_bytes = static_cast<std::size_t>(rows) * sizeof(std::int64_t);
  kernel.run = [=, key = RandomKey(c.node.attrs, c.node.name), pool = &c.pool](const KernelArgs& a) {
    auto* from = static_cast<std::int64_t*>(a.scratch);
    for (std::int64_t i = 0; i < rows; ++i) from[i] = i;
    for (std::int64_t i = rows - 1; i > 0; --i) {
      const std::int64_t other =
          integer_at<std::int64_t>(key.at(*a.params), i, 0, static_cast<std::uint64_t>(i) + 1);
      std::swap(from[i], from[other]);
    }
    pool->parallel_range(
        rows, row_grain(static_cast<std::int64_t>(row_bytes)), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i)
            std::memcpy(a.out<char>(0) + static_cast<std::size_t>(i) * row_bytes,
                        a.in<char>(0) + static_cast<std::size_t>(from[i]) * row_bytes, row_bytes);
        });
  };
  return kernel;
}

OpDef random_op(std::string name, int inputs, std::function<void(InferContext&)> infer, PrepareFn cpu) {
  return {.name = std::move(name),
          .traits = computes(),
          .min_inputs = inputs,
          .max_inputs = inputs,
          .infer = std::move(infer),
          .no_gradient_reason = "its output is drawn, not computed from its inputs",
          .cpu = std::move(cpu),
          .shape_values = {0},
          .stateful = true};
}

}  // namespace

void register_random(OpRegistry& registry) {
  const auto add = [&registry](std::string name, Fill fill) {
    registry.add(random_op(std::move(name), 1, infer_float,
                           [fill](const PrepareContext& c) { return prepare_float(c, fill); }));
  };
  add("RandomUniform", fill_uniform01);
  add("RandomStandardNormal", fill_normal01);
  add("TruncatedNormal", fill_truncated_normal01);
  registry.add(random_op("RandomUniformInt", 3, infer_int, prepare_int));
  registry.add({.name = "RandomShuffle",
                .traits = moves().any_type(),
                .min_inputs = 1,
                .max_inputs = 1,
                .infer = infer_same_as_first,
                .no_gradient_reason = "TensorFlow gives it none",
                .cpu = prepare_shuffle,
                .stateful = true});
}

}  // namespace braid
