// Random numbers: TensorFlow's ops of counter-based streams, so what they give is not what another runtime
// gives.
#include <cmath>

#include "base/error.h"
#include "engine/import/onnx/node.h"
#include "engine/import/onnx/tensors.h"

namespace braid::onnx {
namespace {

/// float32
Val random(OnnxNode& n, const char* op, Val shape) {
  const double seed = n.f("seed", 0);
  if (!(std::abs(seed) < 0x1p62)) throw InvalidArgument("the seed is not a number, or too large");
  const AttrMap attrs{{"dtype", DType::Float32}, {"seed", static_cast<std::int64_t>(seed)}};
  return n.b.op(op, {shape}, attrs);
}

DType dtype_attr(OnnxNode& n, DType fallback) {
  return n.has_attr("dtype") ? dtype_of_onnx(n.i32("dtype", 0)) : fallback;
}

void uniform(OnnxNode& n, Val shape, DType dtype) {
  const double low = n.f("low", 0), high = n.f("high", 1);
  n.out(0, cast(random(n, "RandomUniform", shape) * (high - low) + low, dtype));
}

void normal(OnnxNode& n, Val shape, DType dtype) {
  n.out(0, cast(random(n, "RandomStandardNormal", shape) * n.f("scale", 1) + n.f("mean", 0), dtype));
}

void random_uniform(OnnxNode& n) { uniform(n, n.b.ints(n.is("shape")), dtype_attr(n, DType::Float32)); }
void random_normal(OnnxNode& n) { normal(n, n.b.ints(n.is("shape")), dtype_attr(n, DType::Float32)); }
void random_uniform_like(OnnxNode& n) { uniform(n, shape_of(n.in(0)), dtype_attr(n, n.in(0).dtype())); }
void random_normal_like(OnnxNode& n) { normal(n, shape_of(n.in(0)), dtype_attr(n, n.in(0).dtype())); }

void bernoulli(OnnxNode& n) {
  const Val p = n.in(0);
  const Val drawn = cast(random(n, "RandomUniform", shape_of(p)), p.dtype());
  n.out(0, cast(tf("Less", {drawn, p}), dtype_attr(n, p.dtype())));
}

}  // namespace

void add_random(Translations& t) {
  t.add("RandomUniform", random_uniform);
  t.add("RandomNormal", random_normal);
  t.add("RandomUniformLike", random_uniform_like);
  t.add("RandomNormalLike", random_normal_like);
  t.add("Bernoulli", bernoulli);
}

}  // namespace braid::onnx
