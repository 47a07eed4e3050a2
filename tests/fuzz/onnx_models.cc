// Bytes of an ONNX file -> imported, planned and run. The seeds are models of the grammar.
#include "base/error.h"
#include "engine/import/onnx/onnx.h"
#include "tests/fuzz/onnx_grammar.h"
#include "tests/fuzz/run_graph.h"
#include "tests/fuzz/target.h"

namespace braid::fuzz {

std::vector<std::string> seeds() {
  std::vector<std::string> models;
  std::uint32_t state = 1;
  for (int model = 0; model < 1000; ++model) {
    std::string bytes(600, '\0');
    for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525U + 1013904223U) >> 24);
    Choices choices(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    models.push_back(make_onnx_case(choices).model.SerializeAsString());
  }
  return models;
}

}  // namespace braid::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace braid;
  fuzz::expect_accepted_or_refused(fuzz::NoMemory::MayNameANode, [&] {
    const OnnxImport model = try_parse_onnx(fuzz::as_text(data, size), "model", {});
    std::vector<std::string> fetches;
    for (const OnnxValue& output : model.outputs) fetches.push_back(output.name);
    fuzz::check_and_run(model.graph, {}, fetches);
    if (!model.problems.empty())
      throw InvalidArgument("node '" + model.problems.front().node + "': " + model.problems.front().reason);
  });
  return 0;
}
