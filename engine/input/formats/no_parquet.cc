// Stand-in for programs without Apache Arrow.
#include "base/error.h"
#include "engine/input/formats/parquet_files.h"
#include "engine/input/formats/parquet_records.h"

namespace braid {
namespace {

[[noreturn]] void refuse_parquet() {
  throw InvalidArgument(
      "this program reads no Parquet. The Python module never does: use `braid train`, or convert the file "
      "by "
      "`braid data convert`. For the binary: pip install -r cmake/arrow-requirements.txt, and configure "
      "again with "
      "-DPython_EXECUTABLE=... or -DBRAID_ARROW_ROOT=.../site-packages/pyarrow");
}

}  // namespace

bool has_parquet() { return false; }
std::unique_ptr<RowStream> stream_parquet(std::vector<std::filesystem::path>, ParquetOptions) {
  refuse_parquet();
}
std::vector<IndexedFile> parquet_indexes(const std::vector<std::filesystem::path>&, const ParquetOptions&,
                                         std::uint64_t) {
  refuse_parquet();
}

std::unique_ptr<RecordFile> open_parquet_records(const std::filesystem::path&) { refuse_parquet(); }
std::unique_ptr<RecordSink> create_parquet_sink(const std::filesystem::path&, const RecordSinkOptions&) {
  refuse_parquet();
}

}  // namespace braid
