// Bytes of an IDX file -> images, and a record file.
#include "engine/input/formats/readers.h"
#include "engine/input/formats/record_file.h"
#include "tests/fuzz/target.h"

namespace braid::fuzz {

std::vector<std::string> seeds() {
  return {std::string("\0\0\x08\x03\0\0\0\2\0\0\0\2\0\0\0\2"
                      "12345678",
                      24),
          std::string("\0\0\x08\x01\0\0\0\2\1\0", 10),
          std::string("\0\0\x0d\x02\0\0\0\1\0\0\0\1\0\0\0\0", 16)};
}

}  // namespace braid::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace braid;
  const std::filesystem::path images = fuzz::as_file("input.idx3", data, size);
  const std::string text("\0\0\x08\x01\0\0\0\2\1\0", 10);
  const std::filesystem::path labels =
      fuzz::as_file("labels.idx1", reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
  fuzz::expect_accepted_or_refused(fuzz::NoMemory::IsAFault, [&] { read_idx(images, labels); });
  fuzz::expect_accepted_or_refused(fuzz::NoMemory::IsAFault, [&] {
    const auto records = RecordFile::open(images, {});
    while (records->next()) records->record();
  });
  return 0;
}
