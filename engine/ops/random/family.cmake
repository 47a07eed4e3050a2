# Random numbers.
braid_op_family(random
  KERNELS
    candidate_sampler
    random
    stateless_random)
