// Tables of ops without kernels, whose values are known before a program runs (OpDef::fold).
#pragma once

#include <span>

#include "engine/ir/op.h"

namespace braid {

struct FoldedOp {
  const char* name;
  int min_inputs, max_inputs;  // max_inputs -1: any number
  void (*infer)(InferContext&);
  FoldFn fold;
  OpTraits (*traits)() = computes;
};

inline void register_folded_ops(OpRegistry& registry, std::span<const FoldedOp> ops,
                                const char* no_gradient_reason) {
  for (const FoldedOp& op : ops) {
    OpDef def;
    def.name = op.name;
    def.traits = op.traits();
    def.min_inputs = op.min_inputs;
    def.max_inputs = op.max_inputs;
    def.infer = op.infer;
    def.fold = op.fold;
    def.no_gradient_reason = no_gradient_reason;
    registry.add(std::move(def));
  }
}

}  // namespace braid
