// Bytes -> a GraphDef of one hostile op or a few (graph_grammar.h) -> imported, planned and run.
#include "engine/import/import.h"
#include "tests/fuzz/graph_grammar.h"
#include "tests/fuzz/run_graph.h"
#include "tests/fuzz/target.h"

namespace braid::fuzz {

std::vector<std::string> seeds() { return {}; }

}  // namespace braid::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace braid;
  fuzz::Choices choices(data, size);
  const std::string bytes = fuzz::make_graph_case(choices).SerializeAsString();
  const std::filesystem::path file =
      fuzz::as_file("graph.pb", reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  fuzz::expect_accepted_or_refused(fuzz::NoMemory::MayNameANode, [&] {
    const GraphDef graph = read_graph_file(file);
    std::vector<std::string> fetches;
    if (graph.node_size() > 0) fetches.push_back(graph.node(graph.node_size() - 1).name());
    fuzz::check_and_run(graph, {}, fetches);
  });
  return 0;
}
