// Passes that put nodes in the place of others because that is faster. Each is one function and one file;
// engine/compile/passes.cc has the order. Thread rule: one thread.
#pragma once

#include "engine/program/plan.h"

namespace braid {

/// Slices of one place each of a value as one Unpack, and the sum of their gradients as one Pack.
void unpack_slices(Plan& plan);

/// What is done to each output of an Unpack alike is done once, before it.
void hoist_before_unpack(Plan& plan);

/// Products of many matrices with one are one product of all their rows; so is the gradient of that one.
void share_factors(Plan& plan);

/// Images of convolutions, and what is computed from them, have their channels last.
void put_channels_last(Plan& plan);

/// Products read transposed factors as they lie, and give transposed products by themselves.
void read_transposed_factors(Plan& plan);

/// Sparse updates that read the gradients of bags' sums, not rows of single ids.
void bag_updates(Plan& plan);

/// On a device: gradients of gathers of few rows are added to the rows alone (few_rows.cc).
void add_few_rows(Plan& plan);

/// Attention written as products and softmax, and its gradient, as a node each (fuse_attention.cc).
void fuse_attention(Plan& plan);

/// Products of pairs of vectors of which some are gathered, and their gradients, as one node on a device.
void fuse_dot_interaction(Plan& plan);

/// The sum of outer products of many pairs of vectors as one node on a device.
void fuse_outer_products(Plan& plan);

/// Zeros beside the columns of a device's products, where rows would not be a multiple of 16 bytes.
void pad_gemms(Plan& plan);

/// On a device: max pooling before what is done to each element, and after its gradient.
void order_pools(Plan& plan);

/// On a device: max pooling keeps the places that it took, and its gradient reads these.
void keep_pool_places(Plan& plan);

/// Puts chains of short nodes of a device's program into one.
void fuse(Plan& plan);

/// On a device: lanes that are joined are written, and their gradients read, where they belong.
void join_outputs(Plan& plan);

/// On a device: the gradients of a head of one output, of its weights and of the layer below, in one node.
void fuse_heads(Plan& plan);

/// On a device: the gradients of a layer that reads few inputs of the model, in one node.
void fuse_input_gradients(Plan& plan);

/// On a device: plain gradient descent as the last step of the product that is the gradient.
void fuse_sgd_epilogue(Plan& plan);

/// On a device: gradients of layers lie as the products that sum over their rows like it.
void assign_gemm_layout(Plan& plan);

/// On a device: updates multiply gradients by the number that clips them, not a node before each.
void find_update_factors(Plan& plan);

/// On a device: sparse updates read gradients that are parts of wider tensors where they are.
void read_update_parts(Plan& plan);

/// On a device: filters of convolutions have their outputs first, as its library reads them.
void order_filters(Plan& plan);

/// On a device that fuses: batch norm as elementwise nodes and sums, which regions take in.
void split_batch_norms(Plan& plan);
/// Where asked for: products read halves, and what lies between them is stored so (mixed_precision.cc).
void mix_precision(Plan& plan);
/// Behind regions: casts of one value that no region took are one.
void merge_casts(Plan& plan);

/// On a device: attention within rows reads parts of wider values, and writes their gradients, where they are
/// (attention_parts.cc).
void read_attention_parts(Plan& plan);
/// Dense attention that reads parts of wider values, and writes their gradients, where they are
/// (attention_layouts.cc).
void place_attention(Plan& plan);

/// Where asked for: regions of elementwise nodes and reductions of rows become one node (fuse_regions.cc).
void fuse_regions(Plan& plan);

/// One node for many gathers, and one for many small updates, of a device's program.
void group_gathers(Plan& plan);
void group_updates(Plan& plan);
/// Sums of bags are written where they are joined (join_bags.cc).
void join_bags(Plan& plan);

/// Of sparse updates, the grouping of their rows as a node that waits for indices only.
void split_updates(Plan& plan);

/// On a device: exchanges with peers as two nodes, of which the second takes what came (split_exchanges.cc).
void split_exchanges(Plan& plan);

/// On a device: squares that clipping adds up are one node for dense gradients, and one for grouped rows.
void group_norms(Plan& plan);

/// Where asked for: values that rest are on the host meanwhile (offload_values.cc). Throws: InvalidArgument
/// for a pattern that is none, or fits no value that could be offloaded.
void offload_values(Plan& plan);

}  // namespace braid
