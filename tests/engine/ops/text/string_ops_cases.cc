#include "tests/engine/ops/op_cases.h"

namespace braid::testing {

BRAID_OP_CASES(string_ops) {
  const std::string words[] = {"", "a", "hello", "a text of more than sixteen bytes"};
  const Tensor text = Tensor::strings({2, 2}, words);
  const std::vector<std::int64_t> key{98765, 132};
  for (const char* op : {"StringToHashBucketFast", "StringToHashBucket"})
    table.add(op, {.label = "matrix", .inputs = {text}, .attrs = {{"num_buckets", 1000}}});
  table.add("StringToHashBucketStrong",
            {.label = "matrix", .inputs = {text}, .attrs = {{"num_buckets", 1000}, {"key", key}}});
  const std::string numbers[] = {"1", " -2 ", "+3"};
  for (const DType dtype : {DType::Float32, DType::Float64, DType::Int32, DType::Int64})
    table.add("StringToNumber", {.label = std::string(dtype_name(dtype)),
                                 .inputs = {Tensor::strings({3}, numbers)},
                                 .attrs = {{"out_type", dtype}}});
  const std::string raw[] = {"abcd", "efgh"};
  table.add("DecodeRaw",
            {.label = "int32", .inputs = {Tensor::strings({2}, raw)}, .attrs = {{"out_type", DType::Int32}}});
}

}  // namespace braid::testing
