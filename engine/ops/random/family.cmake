# Random numbers.
braid_op_family(random
  KERNELS
    random)
