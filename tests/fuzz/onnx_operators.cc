// Bytes -> a model of one hostile operator or a few (onnx_grammar.h) -> imported, planned and run.
#include "base/error.h"
#include "engine/import/onnx/onnx.h"
#include "tests/fuzz/onnx_grammar.h"
#include "tests/fuzz/run_graph.h"
#include "tests/fuzz/target.h"

namespace braid::fuzz {

std::vector<std::string> seeds() { return {}; }

}  // namespace braid::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace braid;
  fuzz::Choices choices(data, size);
  const fuzz::OnnxCase made = fuzz::make_onnx_case(choices);
  const std::string bytes = made.model.SerializeAsString();
  fuzz::expect_accepted_or_refused(fuzz::NoMemory::MayNameANode, [&] {
    const OnnxImport model = try_parse_onnx(bytes, "model", {});
    std::vector<std::string> fetches;
    for (const OnnxValue& output : model.outputs) fetches.push_back(output.name);
    fuzz::check_and_run(model.graph, made.feeds, fetches);
    if (!model.problems.empty())
      throw InvalidArgument("node '" + model.problems.front().node + "': " + model.problems.front().reason);
  });
  return 0;
}
