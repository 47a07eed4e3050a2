# braid.* ops that the compiler puts in the place of several others.
braid_op_family(fused
  KERNELS
    cast_many
    fused_conv2d
    fused_matmul
    gather_many
    group_rows
    outer_products
    pair_dots
    product_update
    relu_bias_grad
    relu_input_grad
  OPS
    fused_region
  SOURCES
    region_loops.cc
    region_tiles.cc)
