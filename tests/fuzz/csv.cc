// Bytes of a CSV file -> a table by a schema, and its columns as `braid data show` guesses them.
#include "engine/input/formats/readers.h"
#include "engine/input/formats/record_file.h"
#include "tests/fuzz/target.h"

namespace braid::fuzz {

std::vector<std::string> seeds() {
  return {"1.5,red,1\n-2,blue,0\n?,,1\n",
          "\"1\",\"a \"\"quoted\"\" word\",0\r\n3e5,b,1\r\n",
          "",
          "\n\n",
          "x",
          "1,2,3",
          std::string("1,\0,0\n", 6),
          "\xef\xbb\xbf"
          "1,a,0\n",
          "nan,inf,1e999\n"};
}

}  // namespace braid::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace braid;
  const std::filesystem::path file = fuzz::as_file("input.csv", data, size);
  fuzz::expect_accepted_or_refused(fuzz::NoMemory::IsAFault, [&] {
    CsvOptions options;
    options.columns = {{.name = "number", .kind = ColumnKind::Numeric},
                       {.name = "word", .kind = ColumnKind::Categorical, .buckets = 10},
                       {.name = "label", .kind = ColumnKind::Label}};
    options.read.max_bad_records = 1;
    read_csv({file}, options);
  });
  fuzz::expect_accepted_or_refused(fuzz::NoMemory::IsAFault, [&] {
    const auto records = RecordFile::open(file, {});
    while (records->next()) records->record();
  });
  return 0;
}
