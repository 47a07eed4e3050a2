#include "tests/engine/ops/op_cases.h"

namespace braid::testing {
namespace {

Tensor words(std::vector<std::uint64_t> values) {
  return Tensor::from<std::uint64_t>(Shape{static_cast<std::int64_t>(values.size())}, values);
}

}  // namespace

BRAID_OP_CASES(random) {
  for (const char* op : {"RandomUniform", "RandomStandardNormal", "TruncatedNormal"}) {
    table.add(op, {.label = "matrix", .inputs = {axes({3, 5})}});
    table.add(op,
              {.label = "many blocks", .inputs = {i64({1}, {100001})}, .attrs = {{"seed", 7}, {"seed2", 1}}});
    table.add(op, {.label = "empty", .inputs = {axes({0, 2})}});
  }
  table.add("RandomUniformInt", {.label = "int32", .inputs = {axes({100}), i32({}, {-3}), i32({}, {4})}});
  table.add("RandomUniformInt",
            {.label = "int64, many blocks", .inputs = {axes({70000}), i64({}, {0}), i64({}, {1LL << 40})}});
  table.add("RandomShuffle", {.label = "rows", .inputs = {random_f64({9, 3}, 1)}});
  table.add("RandomShuffle", {.label = "many rows", .inputs = {random_i64({5001, 2}, 1, 0, 1LL << 40)}});
  table.add("RandomShuffle", {.label = "bytes", .inputs = {converted(random_f64({300}, 1), DType::Bool)}});
  table.add("RandomShuffle", {.label = "no rows", .inputs = {random_f64({0, 3}, 1)}});
  for (const char* op : {"StatelessRandomUniform", "StatelessRandomNormal", "StatelessTruncatedNormal"}) {
    table.add(op, {.label = "matrix", .inputs = {axes({3, 5}), i64({2}, {7, -3})}});
    table.add(op, {.label = "many blocks, short seed", .inputs = {i64({1}, {100001}), i32({2}, {1, 2})}});
    const Tensor key = words({1 << 20}), counter = words({5, 6});
    table.add(std::string(op) + "V2",
              {.label = "key and counter", .inputs = {axes({70}), key, counter, i32({}, {1})}});
  }
  table.add("StatelessRandomGetKeyCounter", {.label = "long", .inputs = {i64({2}, {7, -3})}});
  table.add("StatelessRandomGetKeyCounter", {.label = "short", .inputs = {i32({2}, {7, -3})}});
  for (const char* op : {"UniformCandidateSampler", "LogUniformCandidateSampler"})
    for (const bool unique : {false, true})
      table.add(op, {.label = unique ? "unique" : "with repetitions",
                     .inputs = {i64({3, 2}, {0, 1, 5, 9, 49, 3})},
                     .attrs = {{"num_true", 2}, {"num_sampled", 20}, {"range_max", 50}, {"unique", unique}}});
  table.add("StatelessRandomGetAlg", {.label = "Philox"});
}

}  // namespace braid::testing
