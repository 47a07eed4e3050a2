// Short forms for gradient rules: each makes one node.
#pragma once

#include "engine/ir/op.h"

namespace braid::grad {

inline ValueRef mul(GradContext& c, ValueRef a, ValueRef b) { return c.op("Mul", {a, b}); }
inline ValueRef add(GradContext& c, ValueRef a, ValueRef b) { return c.op("AddV2", {a, b}); }
inline ValueRef sub(GradContext& c, ValueRef a, ValueRef b) { return c.op("Sub", {a, b}); }
inline ValueRef div(GradContext& c, ValueRef a, ValueRef b) { return c.op("RealDiv", {a, b}); }
inline ValueRef neg(GradContext& c, ValueRef a) { return c.op("Neg", {a}); }

/// A scalar of the type of input `like`.
inline ValueRef scalar(GradContext& c, double value, int like = 0) {
  return c.constant(c.input_info(like).dtype == DType::Float64 ? Tensor::scalar(value)
                                                               : Tensor::scalar(static_cast<float>(value)));
}

/// Gives input i of an op whose inputs broadcast the gradient `g`, which has the output's shape.
inline void set_broadcast_grad(GradContext& c, int i, ValueRef g) {
  const Shape& in = c.input_info(i).shape;
  const bool same = in.has_rank() && in.is_static() && in == c.output_info().shape;
  c.set_grad(i, same ? g : c.reduce_to(g, c.input(i)));
}

}  // namespace braid::grad
