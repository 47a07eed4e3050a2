# Variables, tables and checkpoints.
braid_op_family(state
  KERNELS
    resource_scatter
    variable
  OPS
    lookup_table
    save_restore
  SOURCES
    initial_rows.cc
    variable_init.cc)
