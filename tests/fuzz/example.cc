// Bytes of a tf.train.Example or SequenceExample, without the frame whose checksums keep random changes out
// -> features.
#include "engine/input/formats/example.h"

#include <array>

#include "tests/fuzz/target.h"

namespace braid::fuzz {

std::vector<std::string> seeds() {
  std::vector<std::string> records;
  for (int values = 0; values < 4; ++values) {
    ExampleWriter example;
    const std::vector<float> numbers(static_cast<std::size_t>(values), 1.5F);
    const std::vector<std::int64_t> ids(static_cast<std::size_t>(values), -7);
    const std::vector<std::string_view> words(static_cast<std::size_t>(values), "word");
    example.add("number", numbers);
    example.add("id", ids);
    example.add("word", words);
    records.emplace_back(example.finish());
  }
  // A list of features: field 2 of a SequenceExample.
  records.push_back(std::string(
      "\x12\x14\x0a\x12\x0a\x01s\x12\x0d\x0a\x05\x1a\x03\x0a\x01\x07\x0a\x04\x1a\x02\x0a\x00", 22));
  return records;
}

}  // namespace braid::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace braid;
  fuzz::expect_accepted_or_refused(fuzz::NoMemory::IsAFault, [&] {
    ExampleReader reader;
    reader.parse(fuzz::as_text(data, size));
    for (const Feature& feature : reader.features()) {
      if (feature.kind == FeatureKind::Float) reader.floats(feature);
      if (feature.kind == FeatureKind::Int64) reader.ints(feature);
      if (feature.kind == FeatureKind::Bytes) reader.bytes(feature);
    }
  });
  return 0;
}
