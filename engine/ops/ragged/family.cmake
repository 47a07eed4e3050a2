# Values whose rows lie side by side, as many for each row of the batch as its offsets say.
braid_op_family(ragged
  KERNELS
    query_attention
    ragged_attention
    ragged_concat
    ragged_dense
    ragged_rows
  CUDA_SOURCES
    attention_bfloat16.cu
    attention_choice.cu
    attention_float16.cu
    attention_float32.cu
    attention_plain.cu
    attention_plan.cu
    attention_tf32.cu)
