#include "examples/text_pipeline/pipeline.h"

#include "engine/builder/graph_builder.h"
#include "engine/import/import.h"
#include "engine/staging/stage_marks.h"
#include "proto/graph.pb.h"

namespace braid {
namespace {

constexpr std::int64_t kRows = 100;

Output text(GraphBuilder& b, const std::vector<std::string>& values) {
  return b.constant(Tensor::strings({static_cast<std::int64_t>(values.size())}, values));
}

}  // namespace

TextPipeline make_text_pipeline(std::int64_t batch, bool with_stage) {
  GraphBuilder b;
  const std::int64_t width = batch + 1;
  const Output lines = b.placeholder(TextPipeline::kLines, DType::String, {batch});
  const Output csv = b.op(
      "DecodeCSV", {lines, text(b, {""}), text(b, {""})},
      {{"field_delim", ","}, {"OUT_TYPE", std::vector<DType>{DType::String, DType::String}}}, "decode_csv");
  Nested<Output> columns = Nested<Output>::list({csv, Output{csv.node, 1}});
  if (with_stage) columns = staged(b, columns, {.capacity = 4});

  const Output table =
      b.variable("table", {kRows, width}, {.init = {.kind = InitKind::Uniform, .a = -1, .b = 1}});
  const Output ids =
      b.op("StringToHashBucket", {columns[0].leaf()}, {{"num_buckets", std::int64_t{10}}}, "ids");
  const Output rows = b.op("ResourceGather", {table, ids}, {{"dtype", DType::Float32}}, "rows");

  const Output axis = b.constant(Tensor::scalar<std::int32_t>(0), "axis");
  const Output words = b.op("ConcatV2", {columns[1].leaf(), text(b, {"xxx"}), axis}, {{"N", std::int64_t{2}}},
                            TextPipeline::kWords);
  const Output twice =
      b.op("Pack", {words, words}, {{"N", std::int64_t{2}}, {"axis", std::int64_t{0}}}, "twice");
  b.op("ConcatV2", {b.op("AsString", {rows}, {}, "numbers"), twice, axis}, {{"N", std::int64_t{2}}},
       TextPipeline::kTarget);

  Tensor change(DType::Float32, {kRows, width});
  for (float& value : change.data<float>()) value = 0.125F;
  b.op("AssignAddVariableOp", {table, b.constant(change)}, {{"dtype", DType::Float32}},
       TextPipeline::kUpdate);
  return {import_graph(b.graph(), "text pipeline")};
}

}  // namespace braid
