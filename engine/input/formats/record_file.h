// Any data file as a sequence of records with named, typed features: what `braid data show` and `braid data
// convert` work on. Readers for training (readers.h) go their own, faster way.
//   TfRecord   features of tf.train.Example
//   Criteo     label, I1..I13, C1..C26; numbers as int64 or float, categories as bytes, nothing for a
//              missing field
//   Csv        fields under the names of the header, else "1", "2", ...; a column is int64 or float when all
//              that is in it is, else bytes
//   Text       "line"
//   Parquet    the file's columns; a null is a missing feature
//   Idx        the items along the first axis: "label" int64 of a list, else "image" with its elements
// Thread rule: one object, one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/input/files/byte_source.h"
#include "engine/input/formats/example.h"

namespace braid {

enum class FileFormat { TfRecord, Criteo, Csv, Text, Idx, Parquet };
const char* file_format_name(FileFormat format);
/// "tfrecord", "criteo", "csv", "tsv", "text", "idx", "parquet". Throws: InvalidArgument.
FileFormat file_format_from_name(const std::string& name);

struct RecordFileOptions {
  std::optional<FileFormat> format =
      {};  // absent: what the content looks like; Csv where lines could be Text and an option of Csv is set
  char separator = 0;                   // Csv: 0 is a tab where the first lines have one, else a comma
  std::optional<bool> header = {};      // Csv: absent: what the first line looks like
  std::vector<std::string> names = {};  // Csv: of the columns, in place of the header's or of their numbers
  std::vector<std::string> expected = {};  // Csv: a first line with one of these names is a header
  std::string comment = {};                // Csv: lines that begin with it are skipped
  std::int64_t max_bad_records = 0;
  bool texts = false;  // Csv, Criteo: all fields are Bytes, as they were written; else numbers are numbers
};

class RecordFile {
 public:
  virtual ~RecordFile() = default;
  /// Throws: InvalidArgument (cannot open: path, reason), DataLoss (place, what).
  static std::unique_ptr<RecordFile> open(const std::filesystem::path& file,
                                          const RecordFileOptions& options);

  /// Goes to the next record; false at the end. Throws: DataLoss for a bad record beyond the limit.
  virtual bool next() = 0;
  /// REQUIRES: next() gave true. Valid until the next call.
  virtual const FeatureSet& record() const = 0;
  virtual FileFormat format() const = 0;
  virtual Compression compression() const = 0;
  virtual std::int64_t bad_records() const { return 0; }
  /// Names of the columns in the file's order, where it has one.
  virtual std::vector<std::string> column_names() const { return {}; }
  /// Of fields; 0 where there are none.
  virtual char separator() const { return 0; }
  virtual bool has_header() const { return false; }
};

}  // namespace braid
