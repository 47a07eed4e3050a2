// Bytes of a Criteo file -> a table.
#include "engine/input/formats/readers.h"
#include "tests/fuzz/target.h"

namespace braid::fuzz {

std::vector<std::string> seeds() {
  std::string row = "1";
  for (int i = 0; i < 13; ++i) row += "\t" + std::to_string(i * 7 - 3);
  for (int i = 0; i < 26; ++i) row += "\t68fd1e64";
  std::string sparse = "0";
  for (int i = 0; i < 39; ++i) sparse += "\t";
  std::string commas = row;
  for (char& c : commas)
    if (c == '\t') c = ',';
  return {row + "\n", row + "\n" + sparse + "\n", sparse, commas + "\n", "\n", ""};
}

}  // namespace braid::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace braid;
  const std::filesystem::path file = fuzz::as_file("input.txt", data, size);
  CriteoOptions options;
  options.read.max_bad_records = 1;
  fuzz::expect_accepted_or_refused(fuzz::NoMemory::IsAFault, [&] { read_criteo({file}, options); });
  return 0;
}
