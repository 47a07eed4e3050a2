// Bytes of a TFRecord file of tf.train.Example -> a table by a schema.
#include <array>
#include <fstream>
#include <iterator>

#include "engine/input/formats/example.h"
#include "engine/input/formats/readers.h"
#include "engine/input/formats/tfrecord.h"
#include "tests/fuzz/target.h"

namespace braid::fuzz {

std::vector<std::string> seeds() {
  const std::filesystem::path file = as_file("seed.tfrecord", nullptr, 0);
  std::vector<std::string> files;
  for (const Compression compression : {Compression::None, Compression::Gzip, Compression::Zlib})
    for (int records = 0; records < 3; ++records) {
      TfRecordWriter writer(file, compression);
      for (int i = 0; i < records; ++i) {
        ExampleWriter example;
        const std::array<float, 2> numbers{1.5F, static_cast<float>(i)};
        const std::array<std::int64_t, 1> label{i};
        const std::array<std::string_view, 2> words{"a", "bc"};
        example.add("number", numbers);
        example.add("label", label);
        example.add("word", words);
        writer.write(example.finish());
      }
      writer.finish();
      std::ifstream in(file, std::ios::binary);
      files.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
  return files;
}

}  // namespace braid::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace braid;
  const std::filesystem::path file = fuzz::as_file("input.tfrecord", data, size);
  TfRecordOptions options;
  options.columns = {{.name = "number", .kind = ColumnKind::Numeric, .length = 2},
                     {.name = "label", .kind = ColumnKind::Label},
                     {.name = "word", .kind = ColumnKind::Categorical, .buckets = 10, .length = 3}};
  options.read.max_bad_records = 1;
  fuzz::expect_accepted_or_refused(fuzz::NoMemory::IsAFault, [&] { read_tfrecord({file}, options); });
  return 0;
}
