# Sparse and ragged tensors, segments.
braid_op_family(sparse
  KERNELS
    bag
    bag_grad
    bucket_ids
    bucket_rows
    fill_empty_rows_grad
    hot_rows
    segment_reduce
    segment_sum
    slices_to_dense
    sparse_dense
    sparse_segment
  OPS
    ragged_ops
    sparse_ops
    sparse_values)
