// Computes a node's outputs before the program runs, from inputs whose values are known at compile time:
// views are reshaped, what makes strings is computed by OpDef::fold, everything else runs its
// CPU kernel once (on strings, with numbers for them: string_ids.h). Used by shape inference (values that
// decide shapes) and by the fold pass. Never folded: stateful ops, side effects, handles, asynchronous
// kernels, and more than max_bytes of inputs and outputs together (views have no limit: they share the
// input's memory). Thread rule: one thread an object.
#pragma once

#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "engine/ir/graph.h"
#include "engine/ir/op.h"
#include "engine/ir/tensor.h"

namespace braid {

class ConstantFolder {
 public:
  static constexpr std::size_t kMaxBytes = 64 * 1024;

  explicit ConstantFolder(std::size_t max_bytes = kMaxBytes) : max_bytes_(max_bytes) {}

  /// The values of all outputs, or empty when the node cannot be folded. `values[i]` is the value of input i
  /// or null; an input of which the op reads the shape only needs a static shape and no value. REQUIRES:
  /// node.outputs are inferred. Throws: InvalidArgument when the kernel refuses the values.
  std::vector<Tensor> fold(const Node& node, std::span<const OutputInfo> inputs,
                           std::span<const Tensor* const> values);

 private:
  std::vector<Tensor> run_on_ids(const Node& node, std::span<const OutputInfo> inputs,
                                 std::span<const Tensor* const> values);
  std::vector<Tensor> run_kernel(const Node& node, std::span<const OutputInfo> inputs,
                                 std::span<const Tensor* const> values);

  std::size_t max_bytes_;
  ThreadPool pool_{1};  // the caller's thread
  Services services_;   // empty: ops that need one are not folded
};

}  // namespace braid
