// A step of the model hstu on a device: everything that computes is there, so that a step is one captured
// graph. Compiled only.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/ir/op.h"
#include "engine/program/program.h"
#include "tests/engine/rewrite/mixed_models.h"
#include "tests/engine/testing/assumed_kernels.h"

namespace braid::testing {
namespace {

TEST(HstuOnDevice, NothingOfAStepRunsOnTheHost) {
  assume_cuda_kernels();
  const MixedModel model = zoo_model("hstu");
  for (const DType half : {DType::Float32, DType::BFloat16})
    for (const bool fusion : {false, true}) {
      SCOPED_TRACE(fmt::format("{}{}", dtype_name(half), fusion ? ", regions" : ""));
      const auto program =
          compile(model.graph, model.request, precision_options(half, Domain::Device, fusion));
      int attentions = 0, of_parts = 0, joined = 0;
      for (const ProgramOp& op : program->ops) {
        const Node& node = program->graph.node(op.node);
        EXPECT_EQ(op.domain, Domain::Device) << node.op->name << " '" << node.name << "'";
        if (node.op->name.find("Attention") == std::string::npos) continue;
        ++attentions;
        of_parts += node.attrs.get("heads", std::int64_t{0}) > 0;
        joined += node.attrs.get("joined_heads", std::int64_t{0}) > 0;
        EXPECT_EQ(program->graph.info(node.inputs[0]).dtype, half) << node.name;
      }
      EXPECT_EQ(attentions, 4) << "two layers, of which the last has a query a row, forward and backward";
      EXPECT_EQ(of_parts, 2) << "the first layer reads parts of its product, forward and backward";
      EXPECT_EQ(joined, 1) << "and writes the gradients of these side by side";
      for (const Note& note : program->notes)
        EXPECT_EQ(note.text.find("no CUDA kernel"), std::string::npos) << note.text;
    }
}

}  // namespace
}  // namespace braid::testing
