// Bytes of a .npy file -> an array.
#include "base/formats/npy.h"

#include <cstring>
#include <span>

#include "tests/fuzz/target.h"

namespace braid::fuzz {

std::vector<std::string> seeds() {
  const auto array = [](const std::string& dict, const std::string& data) {
    std::string bytes("\x93NUMPY\x01\x00", 8);
    const auto size = static_cast<std::uint16_t>(dict.size());
    bytes.append(reinterpret_cast<const char*>(&size), sizeof(size));
    return bytes + dict + data;
  };
  const auto dict = [](const std::string& descr, const std::string& shape, const char* fortran = "False") {
    return "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': (" + shape + "), }\n";
  };
  const std::vector<std::int64_t> shape{2, 3};
  const std::vector<std::byte> data(24);
  return {format_npy(DType::Float32, shape, data),
          array(dict(">i8", "3,"), std::string(24, '\1')),
          array(dict("|S3", "2, 2"), "abcdefghijkl"),
          array(dict("|S0", "4,"), ""),
          array(dict("|S0", "4611686018427387904,"), ""),
          array(dict("<U2", "2,", "True"), std::string(16, 'u')),
          array(dict("<U4611686018427387904", "2,"), std::string(16, 'u')),
          array(dict("<f4", "4294967296, 4294967296, 0"), ""),
          array(dict("<f2", "2, 3", "True"), std::string(12, '\2')),
          array(dict("|b1", ""), "\1")};
}

}  // namespace braid::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace braid;
  fuzz::expect_accepted_or_refused(fuzz::NoMemory::IsAFault,
                                   [&] { parse_npy(std::as_bytes(std::span(data, size)), "x.npy"); });
  return 0;
}
