# Random numbers.
braid_op_family(random
  KERNELS
    random
  GRAPH_KERNELS
    candidate_sampler
    stateless_random)
