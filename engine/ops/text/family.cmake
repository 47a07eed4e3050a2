# Strings, parsing and printing.
braid_op_family(text
  GRAPH_KERNELS
    print
    string_ops
  OPS
    text_ops
  SOURCES
    decode_csv.cc
    parse_example.cc)
