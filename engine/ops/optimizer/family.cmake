# Updates of variables, dense and by rows.
braid_op_family(optimizer
  KERNELS
    adafactor
    adam_8bit
    apply_optimizer
    clip_by_norm
    loss_scale
    sparse_apply_optimizer
    sum_runs
  GRAPH_KERNELS
    resource_apply
    resource_apply_adaptive
  SOURCES
    optimizer_attrs.cc
    typed_apply.cc
    update_inputs.cc)
