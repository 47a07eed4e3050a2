#include "engine/compile/passes.h"

#include <fmt/format.h>

#include <array>
#include <iterator>

#include "engine/graph/check_values.h"
#include "engine/graph/passes.h"
#include "engine/memory/passes.h"
#include "engine/program/cost_model.h"
#include "engine/rewrite/horizontal_fusion.h"
#include "engine/rewrite/joined_gathers.h"
#include "engine/rewrite/passes.h"
#include "engine/rewrite/unit_transposes.h"
#include "engine/schedule/passes.h"
#include "engine/schedule/segments.h"
#include "engine/verify/verify.h"

namespace braid {
namespace {

constexpr PassDomain kAll = PassDomain::All, kDevice = PassDomain::Device;

constexpr auto kPasses = std::to_array<Pass>({
    {"ignore_scopes", "graph", kAll, ignore_scopes, "where asked for: forgets ids that nodes were given"},
    {"resolve_request", "graph", kAll, resolve_request,
     "names of feeds, fetches and targets become values and nodes"},
    {"prune", "graph", kAll, [](Plan& plan) { prune(plan, false); }, "removes what no fetch or target needs"},
    {"infer_shapes", "graph", kAll, infer_shapes, "shapes for these feeds; what is known becomes a constant"},
    {"keep_write_order", "graph", kAll, keep_write_order,
     "who needs a value that is known waits for the writes behind it all the same"},
    {"simplify", "graph", kAll, simplify, "bypasses nodes that are identities for these shapes"},
    {"cse", "graph", kAll, eliminate_common_subexpressions, "one node for nodes that compute the same"},
    {"prune_shapes", "graph", kAll, [](Plan& plan) { prune(plan, true); },
     "removes what was needed for its shape only"},
    {"check_values", "graph", kAll,
     [](Plan& plan) {
       if (plan.options.check_numerics) check_values(plan);
     },
     "where asked for: checks that end the step at the first NaN or infinity"},
    {"unpack_slices", "rewrite", kAll, unpack_slices,
     "slices of one place each as outputs of one node, and their gradients side by side"},
    {"before_unpack", "rewrite", kAll, hoist_before_unpack,
     "what is done to each output of an Unpack alike is done once, before it"},
    {"transposed_factors", "rewrite", kAll, read_transposed_factors,
     "products read transposed factors as they lie"},
    {"attention", "rewrite", kAll, fuse_attention,
     "one node for attention that is written as products, masks and softmax"},
    {"shared_factors", "rewrite", kAll, share_factors,
     "products of many matrices with one are one product of all their rows"},
    {"joined_gathers", "rewrite", kAll, join_gathers,
     "slices of one value that are joined are one gather, and their gradients one sum"},
    {"channels_last", "rewrite", kAll, put_channels_last,
     "images of convolutions, and what is computed from them, have their channels last"},
    {"bag_updates", "rewrite", kAll, bag_updates,
     "sparse updates read the gradients of bags' sums, not rows of single ids"},
    {"few_rows", "rewrite", kDevice, add_few_rows,
     "gradients of gathers of few rows are added to these rows alone"},
    {"dot_interaction", "rewrite", kDevice, fuse_dot_interaction,
     "one node for products of pairs of vectors of which some are gathered"},
    {"outer_products", "rewrite", kDevice, fuse_outer_products, "one node for a sum of outer products"},
    {"horizontal_fusion", "rewrite", kAll, fuse_horizontally,
     "where asked for: independent nodes of one kind and shape become one"},
    {"gemm_padding", "rewrite", kDevice, pad_gemms,
     "zeros beside columns, so that products read aligned rows"},
    {"pool_order", "rewrite", kDevice, order_pools,
     "max pooling before what is done to each element, and after its gradient"},
    {"pool_places", "rewrite", kDevice, keep_pool_places,
     "max pooling keeps the places that it took, and its gradient reads these"},
    {"fuse", "rewrite", kDevice, fuse, "chains of short nodes become one node"},
    {"join_outputs", "rewrite", kDevice, join_outputs, "parts that are joined are written where they belong"},
    {"heads", "rewrite", kDevice, fuse_heads, "one node for the gradients of a head of one output"},
    {"input_gradients", "rewrite", kDevice, fuse_input_gradients,
     "one node for the gradients of a layer of few inputs"},
    {"sgd_epilogue", "rewrite", kDevice, fuse_sgd_epilogue,
     "plain gradient descent as the last step of the product that is the gradient"},
    {"gemm_layout", "rewrite", kDevice, assign_gemm_layout,
     "gradients lie as the products that sum over their rows read them"},
    {"update_factors", "rewrite", kDevice, find_update_factors,
     "updates multiply gradients by the number that clips them"},
    {"filter_order", "rewrite", kDevice, order_filters,
     "filters of convolutions lie as the device's library reads them"},
    {"batch_norm", "rewrite", kDevice, split_batch_norms,
     "with regions: batch norm as elementwise nodes and sums"},
    {"mixed_precision", "rewrite", kAll, mix_precision,
     "where asked for: products read 16-bit floats, and what lies between them is stored so"},
    {"update_parts", "rewrite", kDevice, read_update_parts,
     "sparse updates read gradients that are parts of wider tensors where they are"},
    {"attention_parts", "rewrite", kDevice, read_attention_parts,
     "attention reads parts of wider values, and writes their gradients, where they are"},
    {"attention_layouts", "rewrite", kAll, place_attention,
     "dense attention does so, behind transpositions and views, too"},
    {"unit_transposes", "rewrite", kAll, view_unit_transposes,
     "transpositions that only move axes of one element are views"},
    {"regions", "rewrite", kAll, fuse_regions,
     "where asked for: regions of elementwise nodes and reductions of rows become one node"},
    {"merge_casts", "rewrite", kAll, merge_casts, "casts of one value that no region took become one"},
    {"placement", "graph", kAll, place, "which nodes run on the device; copies where values cross"},
    {"group_gathers", "rewrite", kDevice, group_gathers, "one node for many gathers"},
    {"join_bags", "rewrite", kDevice, join_bags, "sums of bags are written where they are joined"},
    {"group_updates", "rewrite", kDevice, group_updates, "one node for many small updates"},
    {"split_updates", "rewrite", kDevice, split_updates,
     "the grouping of rows of sparse updates as a node that waits for indices only"},
    {"split_exchanges", "rewrite", kDevice, split_exchanges,
     "what peers have written is taken by a node of its own, beside what is sent next"},
    {"group_norms", "rewrite", kDevice, group_norms, "one node for the squares of many gradients"},
    {"offload", "rewrite", kAll, offload_values,
     "where asked for: values that rest are on the host meanwhile"},
    {"lower", "schedule", kAll, lower, "nodes to ops, values to buffers; views and constants are no ops"},
    {"variable_order", "schedule", kAll, order_variables,
     "unordered reads of a variable before its writes; unordered writes are refused"},
    {"costs", "program", kAll, model_costs, "microseconds of every op, by the cost model or as measured"},
    {"streams", "schedule", kAll, assign_streams, "the stream of every op: ids, rules, then the policy"},
    {"issue_order", "schedule", kAll, set_issue_order,
     "one topological order, of which each stream takes its part"},
    {"events_and_memory", "memory", kAll, place_events_and_memory,
     "the smallest set of waits; arena offsets; waits that let large buffers share memory"},
    {"cross_step", "memory", kAll, order_steps, "waits on the step before, where two may be in flight"},
    {"instructions", "schedule", kAll, write_instructions, "the streams' instruction lists"},
    {"segments", "schedule", kAll, [](Plan& plan) { cut_segments(plan.program); },
     "parts that can be captured, a CUDA graph each"},
    {"verify", "verify", kAll,
     [](Plan& plan) {
       if (plan.options.verify) verify(plan.program);
     },
     "proves that every conflicting pair of accesses is ordered, also across steps"},
});

}  // namespace

std::span<const Pass> passes() { return kPasses; }

std::string passes_text(bool markdown) {
  std::string text;
  const auto out = std::back_inserter(text);
  if (markdown) text = "| Pass | Folder | Runs for | What it does |\n|---|---|---|---|\n";
  for (const Pass& pass : kPasses) {
    const std::string_view domain = pass.domain == PassDomain::Device ? "devices" : "all";
    if (markdown)
      fmt::format_to(out, "| `{}` | `engine/{}` | {} | {} |\n", pass.name, pass.folder, domain, pass.does);
    else
      fmt::format_to(out, "{:<18} {:<9} {:<8} {}\n", pass.name, pass.folder, domain, pass.does);
  }
  return text;
}

}  // namespace braid
