// Bytes of both files of a TensorFlow checkpoint, one after the other -> its tensors. The first two bytes say
// how long the index is.
#include "base/formats/tensor_bundle.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "tests/fuzz/target.h"

namespace braid::fuzz {
namespace {

std::string content_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace

std::vector<std::string> seeds() {
  std::filesystem::path prefix = as_file("seed", nullptr, 0);
  std::vector<std::string> bundles;
  for (int count = 1; count < 5; ++count) {
    TensorBundleWriter writer(prefix);
    for (int i = 0; i < count; ++i) {
      const std::vector<std::int64_t> shape{i, 2};
      const std::vector<std::byte> data(static_cast<std::size_t>(i) * 8);
      writer.add("layer" + std::to_string(i) + "/kernel", DType::Float32, shape, data);
    }
    writer.finish();
    const std::string index = content_of(prefix.string() + ".index");
    const std::string data = content_of(prefix.string() + ".data-00000-of-00001");
    const auto length = static_cast<std::uint16_t>(index.size());
    bundles.push_back(std::string(reinterpret_cast<const char*>(&length), 2) + index + data);
  }
  return bundles;
}

}  // namespace braid::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace braid;
  if (size < 2) return 0;
  const std::size_t length = std::min<std::size_t>(data[0] | data[1] << 8, size - 2);
  const std::filesystem::path index = fuzz::as_file("input.index", data + 2, length);
  fuzz::as_file("input.data-00000-of-00001", data + 2 + length, size - 2 - length);
  fuzz::expect_accepted_or_refused(fuzz::NoMemory::IsAFault, [&] {
    const TensorBundleReader reader(index);
    for (const auto& [name, entry] : reader.entries()) reader.read(name);
  });
  return 0;
}
