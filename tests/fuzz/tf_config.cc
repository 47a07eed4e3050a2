// The text of TF_CONFIG -> a cluster.
#include "launch/tf_config.h"

#include "tests/fuzz/target.h"

namespace braid::fuzz {

std::vector<std::string> seeds() {
  return {
      R"({"cluster": {"chief": ["a:1"], "worker": ["b:2", "c:3"], "ps": ["d:4"]}, "task": {"type": "worker", "index": 1}})",
      R"({"cluster": {"worker": {"0": "a:1", "7": "b:2"}}, "task": {"type": "worker", "index": "7"}})",
      R"({"sparseCluster": {"worker": {"3": "a:1"}, "ps": ["b:1"]}, "task": {"type": "ps", "index": 0}})",
      "{}",
      "",
      R"({"cluster": {}, "task": {}})"};
}

}  // namespace braid::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace braid;
  fuzz::expect_accepted_or_refused(fuzz::NoMemory::IsAFault,
                                   [&] { launch::parse_tf_config(fuzz::as_text(data, size)); });
  return 0;
}
