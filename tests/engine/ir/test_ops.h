// Small ops for tests of the graph itself, which must not depend on the ops that the engine has.
#pragma once

#include <string>

#include "engine/ir/op.h"

namespace braid::testing {

/// No inputs; output float32 of attribute "shape" (default: unknown rank).
inline const OpDef& source_op() {
  static const OpDef op = [] {
    OpDef def;
    def.name = "TestSource";
    def.infer = [](InferContext& c) { c.output(DType::Float32, c.attr("shape", Shape::unknown_rank())); };
    return def;
  }();
  return op;
}

/// Any number of inputs of one shape; one output of that shape.
inline const OpDef& join_op() {
  static const OpDef op = [] {
    OpDef def;
    def.name = "TestJoin";
    def.min_inputs = 1;
    def.max_inputs = -1;
    def.infer = [](InferContext& c) {
      Shape shape = c.shape(0);
      for (int i = 1; i < c.inputs(); ++i) {
        if (!merge_shapes(shape, c.shape(i), shape)) {
          throw InvalidArgument("shapes " + shape.to_string() + " and " + c.shape(i).to_string() + " differ");
        }
      }
      c.output(DType::Float32, shape);
    };
    return def;
  }();
  return op;
}

inline Node make_node(const OpDef& op, std::string name, std::vector<ValueRef> inputs = {},
                      AttrMap attrs = {}) {
  Node node;
  node.op = &op;
  node.name = std::move(name);
  node.inputs = std::move(inputs);
  node.attrs = std::move(attrs);
  return node;
}

}  // namespace braid::testing
