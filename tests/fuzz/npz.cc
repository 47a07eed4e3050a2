// Bytes of a .npz file -> its arrays.
#include <fstream>
#include <iterator>
#include <span>

#include "base/formats/npy.h"
#include "base/formats/zip.h"
#include "tests/fuzz/target.h"

namespace braid::fuzz {

std::vector<std::string> seeds() {
  const std::filesystem::path file = as_file("seed.npz", nullptr, 0);
  const std::vector<std::int64_t> shape{2, 3};
  const std::vector<std::byte> data(24);
  const std::string array = format_npy(DType::Float32, shape, data);
  std::vector<std::string> archives;
  for (int count = 0; count < 4; ++count) {
    ZipWriter writer(file);
    for (int i = 0; i < count; ++i) {
      const std::span<const std::byte> bytes = std::as_bytes(std::span(array));
      writer.add("a" + std::to_string(i) + ".npy", std::span(&bytes, 1));
    }
    writer.finish();
    std::ifstream in(file, std::ios::binary);
    archives.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  }
  return archives;
}

}  // namespace braid::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace braid;
  const std::filesystem::path file = fuzz::as_file("input.npz", data, size);
  fuzz::expect_accepted_or_refused(fuzz::NoMemory::IsAFault, [&] {
    const ZipReader zip(file);
    for (const ZipEntry& entry : zip.entries()) parse_npy(zip.read(entry), entry.name);
  });
  return 0;
}
