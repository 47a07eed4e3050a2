// Ops that take float16 or bfloat16 where they are written for float32, and compute in float32: what mixed
// precision (engine/rewrite/mixed_precision.h) makes of products and of what stands between them. An op says
// it where it is registered:
//
//   registry.add(takes_halves(std::move(def), {.kind = HalfKind::Product, .inputs = {0, 1}, .outputs =
//   {0}}));
//
// Its shape rule then takes halves for these inputs, and its CPU kernel widens them into scratch, computes,
// and rounds. Outputs are halves where the node's attributes say so. A CUDA kernel that takes them itself is
// named by cuda_takes_halves(). Files do not make such nodes: of their halves, importers compute in float32
// (engine/import/widen.h). Thread rule: filled while ops are registered; const from then on.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "engine/ir/op.h"

namespace braid {

/// Attributes of a node: the outputs that are halves, and the type that these have.
inline constexpr const char* kHalfOutputs = "_half_outputs";
inline constexpr const char* kHalfType = "_half_type";

inline bool is_half(DType dtype) { return dtype == DType::Float16 || dtype == DType::BFloat16; }

enum class HalfKind {
  Product,   // reads halves wherever it may: what it reads is cast; each output is a half or not
  Follower,  // reads halves where they are halves already, or its outputs are wanted as halves, which they
             // all are then. One without such inputs makes halves where they are wanted, as rows of tables
             // are
  Move,      // passes halves on, as ops do that move elements: where its inputs are halves, or may be for few
             // casts, and its outputs are wanted so or read by nobody who minds
};

struct HalfForm {
  HalfKind kind = HalfKind::Product;
  std::vector<int> inputs = {};   // all of them are halves, or none; -1: every input
  std::vector<int> outputs = {};  // -1: every output
  /// Of an op whose attributes say where they are: its `inputs`.
  std::vector<int> (*inputs_of)(const Node& node) = nullptr;
  /// Input that has output 0's type, whichever that is; -1: none.
  int like_output = -1;
  bool whole = false;  // of a product: its outputs are halves where its inputs are
  /// Whether it is faster so on a device; null: it is.
  bool (*pays)(const Node& node, std::span<const OutputInfo> inputs) = nullptr;
};

/// The same op, which takes halves. REQUIRES: its kernel and shape rule take float32.
OpDef takes_halves(OpDef def, HalfForm form);
/// What the op said, or null.
const HalfForm* half_form(const OpDef& op);
/// Places among the node's inputs and outputs that its form names.
std::vector<int> half_inputs(const HalfForm& form, const Node& node);
std::vector<int> half_outputs(const HalfForm& form, const Node& node);

/// These ops' CUDA kernels take halves as their forms say.
void cuda_takes_halves(std::initializer_list<std::string_view> ops);
bool has_half_kernel_on_cuda(const OpDef& op);

/// The node's output `output` is a half of that type from now on.
void set_half_output(Node& node, int output, DType half);

}  // namespace braid
