// Bytes of a GraphDef, binary or text, of a MetaGraphDef or a SavedModel -> imported, planned and run.
#include <google/protobuf/text_format.h>

#include "engine/import/import.h"
#include "tests/fuzz/graph_grammar.h"
#include "tests/fuzz/run_graph.h"
#include "tests/fuzz/target.h"

namespace braid::fuzz {

std::vector<std::string> seeds() {
  std::vector<std::string> graphs;
  std::uint32_t state = 1;
  for (int graph = 0; graph < 400; ++graph) {
    std::string bytes(600, '\0');
    for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525U + 1013904223U) >> 24);
    Choices choices(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
    const GraphDef def = make_graph_case(choices);
    std::string text;
    if (graph % 4 == 0 && google::protobuf::TextFormat::PrintToString(def, &text)) graphs.push_back(text);
    graphs.push_back(def.SerializeAsString());
  }
  return graphs;
}

}  // namespace braid::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace braid;
  const std::filesystem::path file = fuzz::as_file("graph.pb", data, size);
  fuzz::expect_accepted_or_refused(fuzz::NoMemory::MayNameANode, [&] {
    const GraphDef graph = read_graph_file(file);
    std::vector<std::string> fetches;
    if (graph.node_size() > 0) fetches.push_back(graph.node(graph.node_size() - 1).name());
    fuzz::check_and_run(graph, {}, fetches);
  });
  return 0;
}
