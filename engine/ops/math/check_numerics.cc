// CheckNumerics(x), attribute message, and CheckNumericsV2: x itself; a NaN or an infinity in it is an error.
// Gradient: dy, checked as well. Attribute braid_fatal (default false): what is wrong is the job's own
// numbers, not its input.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/ops/common/dispatch.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"

namespace braid {
namespace {

template <class T>
BRAID_VECTOR_CLONES bool all_finite(const T* x, std::int64_t n) {
  T sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += x[i] * T(0);  // 0 for what is finite, else NaN
  return sum == T(0);
}

template <class T>
[[noreturn]] void refuse(const std::string& place, bool is_fatal, const T* x, std::int64_t begin,
                         std::int64_t end) {
  const T* bad = std::find_if(x + begin, x + end, [](T value) { return !std::isfinite(value); });
  const std::string message =
      fmt::format("{} : element {} is {}", place, bad - x, std::isnan(*bad) ? "NaN" : "infinite");
  if (is_fatal) throw Internal(message);
  throw InvalidArgument(message);
}

PreparedKernel prepare(const PrepareContext& c) {
  const std::string message = c.attr("message", std::string());
  const std::string place = place_of(c.node) + ": " + (message.empty() ? "CheckNumerics" : message);
  const bool is_fatal = c.attr("braid_fatal", false);
  return with_float("CheckNumerics", c.inputs[0].dtype, [&]<class T>() {
    return parallel_kernel(c, c.outputs[0].shape.elements(), kElementGrain,
                           [place, is_fatal](const KernelArgs& a, std::int64_t begin, std::int64_t end) {
                             const T* x = a.in<T>(0);
                             if (!all_finite(x + begin, end - begin)) refuse(place, is_fatal, x, begin, end);
                             if (a.out<T>(0) != x)
                               std::memcpy(a.out<T>(0) + begin, x + begin,
                                           static_cast<std::size_t>(end - begin) * sizeof(T));
                           });
  });
}

void gradient(GradContext& c) {
  const std::string message = "not a number or infinite in the gradient of '" + c.node().name + "'";
  c.set_grad(0, c.op("CheckNumerics", {c.grad()}, {{"message", message}}));
}

}  // namespace

void register_check_numerics(OpRegistry& registry) {
  for (const char* name : {"CheckNumerics", "CheckNumericsV2"})
    registry.add({.name = name,
                  .traits = computes(),
                  .min_inputs = 1,
                  .max_inputs = 1,
                  .infer =
                      [](InferContext& c) {
                        require_floating(c, 0);
                        infer_same_as_first(c);
                      },
                  .gradient = gradient,
                  .cost = cost_per_output(1),
                  .cpu = prepare,
                  .in_place = {{0, 0}},
                  .stateful = true,  // never folded: its error belongs to a step
                  .stands_for = 0});
}

}  // namespace braid
