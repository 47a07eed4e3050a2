// MirrorPad(x, paddings [rank, 2]), attribute mode: REFLECT mirrors at the first and last element, SYMMETRIC
// at the border beside them. MirrorPadGrad(dy, paddings): what flows back, each element the sum of its
// images, added in their order. Each is the other's gradient.
#include <fmt/format.h>

#include <algorithm>

#include "engine/ops/array/paddings.h"
#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"

namespace braid {
namespace {

/// 1 when the border element is not repeated.
template <class Context>
std::int64_t mirror_offset(const Context& c) {
  const std::string mode = c.attr("mode", std::string("REFLECT"));
  if (mode != "REFLECT" && mode != "SYMMETRIC")
    c.fail("mode must be REFLECT or SYMMETRIC, got '" + mode + "'");
  return mode == "REFLECT" ? 1 : 0;
}

/// `sign` is 1 for the padded shape of input 0, -1 for the shape that was padded to it.
void infer(InferContext& c, int sign) {
  const Paddings paddings = require_paddings(c);
  const std::int64_t offset = mirror_offset(c);
  const Shape& in = c.shape(0);
  if (paddings.rank == Shape::kUnknown) return c.output(c.dtype(0), Shape::unknown_rank());
  std::vector<std::int64_t> dims(static_cast<std::size_t>(paddings.rank), Shape::kUnknown);
  const std::vector<std::int64_t>& pads = paddings.values;
  for (std::size_t i = 0; i < dims.size() && in.has_rank() && !pads.empty(); ++i) {
    const std::int64_t given = in[static_cast<int>(i)];
    if (given == Shape::kUnknown) continue;
    dims[i] = given + sign * (pads[2 * i] + pads[2 * i + 1]);
    const std::int64_t inner = sign > 0 ? given : dims[i];
    if (std::max(pads[2 * i], pads[2 * i + 1]) > std::max<std::int64_t>(inner - offset, 0))
      c.fail(fmt::format("paddings {} and {} of axis {} are larger than its {} elements allow", pads[2 * i],
                         pads[2 * i + 1], i, inner));
  }
  c.output(c.dtype(0), Shape(std::move(dims)));
}

/// Which element of the inner tensor each element of the padded one is: by the first axis, and by all others
/// together.
struct Mirror {
  std::vector<std::int64_t> first{0};
  std::vector<std::int64_t> rest{0};
  std::int64_t first_size = 1, rest_size = 1;  // of the inner tensor

  Mirror(const Shape& inner, const std::vector<std::int64_t>& pads, std::int64_t offset) {
    for (int axis = 0; axis < inner.rank(); ++axis) {
      const std::int64_t size = inner[axis];
      const std::int64_t before = pads[static_cast<std::size_t>(2 * axis)];
      const std::int64_t padded = size + before + pads[static_cast<std::size_t>(2 * axis + 1)];
      std::vector<std::int64_t>& map = axis == 0 ? first : rest;
      std::vector<std::int64_t> next;
      for (const std::int64_t base : map)
        for (std::int64_t i = 0; i < padded; ++i) {
          std::int64_t k = i - before;
          if (k < 0) k = -k - 1 + offset;
          if (k >= size) k = 2 * size - 1 - offset - k;
          next.push_back(base * size + k);
        }
      map = std::move(next);
      (axis == 0 ? first_size : rest_size) *= size;
    }
  }
};

PreparedKernel prepare(const PrepareContext& c) {
  const Mirror m(c.inputs[0].shape, tensor_to_int64s(*c.values[1]), mirror_offset(c));
  const auto rows = static_cast<std::int64_t>(m.first.size()),
             width = static_cast<std::int64_t>(m.rest.size());
  return with_number_or_bool("MirrorPad", c.inputs[0].dtype, [&]<class T>() {
    return parallel_kernel(c, rows, row_grain(width),
                           [m, width](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                             for (std::int64_t r = begin; r < end; ++r) {
                               const T* x = a.in<T>(0) + m.first[static_cast<std::size_t>(r)] * m.rest_size;
                               T* y = a.out<T>(0) + r * width;
                               for (std::size_t j = 0; j < m.rest.size(); ++j) y[j] = x[m.rest[j]];
                             }
                           });
  });
}

PreparedKernel prepare_grad(const PrepareContext& c) {
  const Mirror m(c.outputs[0].shape, tensor_to_int64s(*c.values[1]), mirror_offset(c));
  std::vector<std::vector<std::int64_t>> images(static_cast<std::size_t>(m.first_size));
  for (std::size_t r = 0; r < m.first.size(); ++r)
    images[static_cast<std::size_t>(m.first[r])].push_back(static_cast<std::int64_t>(r));
  return with_number("MirrorPadGrad", c.inputs[0].dtype, [&]<class T>() {
    return parallel_kernel(c, m.first_size, row_grain(static_cast<std::int64_t>(m.rest.size())),
                           [m, images](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                             std::fill(a.out<T>(0) + begin * m.rest_size, a.out<T>(0) + end * m.rest_size,
                                       T{});
                             for (std::int64_t i = begin; i < end; ++i)
                               for (const std::int64_t r : images[static_cast<std::size_t>(i)]) {
                                 const T* dy = a.in<T>(0) + r * static_cast<std::int64_t>(m.rest.size());
                                 T* dx = a.out<T>(0) + i * m.rest_size;
                                 for (std::size_t j = 0; j < m.rest.size(); ++j) dx[m.rest[j]] += dy[j];
                               }
                           });
  });
}

template <const char* other>
void gradient(GradContext& c) {
  c.set_grad(
      0, c.op(other, {c.grad(), c.input(1)}, {{"mode", c.node().attrs.get<std::string>("mode", "REFLECT")}}));
}
constexpr char kPad[] = "MirrorPad", kPadGrad[] = "MirrorPadGrad";

}  // namespace

void register_mirror_pad(OpRegistry& registry) {
  OpDef pad{.name = kPad,
            .traits = moves().type_attrs({{"T", 0}, {"Tpaddings", 1}}),
            .min_inputs = 2,
            .max_inputs = 2,
            .infer = [](InferContext& c) { infer(c, 1); },
            .gradient = gradient<kPadGrad>,
            .cpu = prepare,
            .shape_values = {1}};
  registry.add(pad);
  pad.name = kPadGrad;
  pad.traits = computes().type_attrs({{"T", 0}, {"Tpaddings", 1}});
  pad.infer = [](InferContext& c) { infer(c, -1); };
  pad.gradient = gradient<kPad>;
  pad.cpu = prepare_grad;
  registry.add(std::move(pad));
}

}  // namespace braid
