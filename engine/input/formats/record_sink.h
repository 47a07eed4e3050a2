// Records with named, typed features into a data file: the other direction of record_file.h.
//   TfRecord   tf.train.Example, features in the record's order
//   Criteo     tab separated; a category that is an integer is written as the hexadecimal hash it stands for
//   Csv        a header and a column for each name; the values of a list stand between '|'
//   Parquet    a column for each name, lists where a record has several values
//   Text       the feature "line", or the only one
// Thread rule: one object, one thread.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/input/formats/record_file.h"

namespace braid {

/// Of a column of Parquet.
struct RecordSinkKind {
  FeatureKind kind = FeatureKind::Bytes;
  bool is_list = false;
};

struct RecordSinkOptions {
  FileFormat format = FileFormat::TfRecord;
  Compression compression = Compression::None;
  char separator = ',';                    // Csv
  std::vector<std::string> columns = {};   // Csv, Parquet: names in order
  std::vector<RecordSinkKind> kinds = {};  // Parquet: of the columns
  std::int64_t row_group_rows = 65536;     // Parquet
};

class RecordSink {
 public:
  virtual ~RecordSink() = default;
  /// Throws: InvalidArgument (cannot be written there; a format that cannot be written).
  static std::unique_ptr<RecordSink> create(const std::filesystem::path& file,
                                            const RecordSinkOptions& options);

  /// Throws: InvalidArgument (what the format cannot hold: the feature and why), Unavailable (disk).
  virtual void write(const FeatureSet& record) = 0;
  /// Until here the file is not there; afterwards it is whole.
  virtual void finish() = 0;
};

}  // namespace braid
