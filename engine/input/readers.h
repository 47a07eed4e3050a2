// Files -> Table. Readers load whole files, gzip too; every error names file and line (or record and byte).
//   IDX       images and labels of the MNIST family: "image" uint8 [rows, height, width, 1] scaled by 1/255
//             (other types as float32, other ranks as they are), "label" int64 [rows]
//
//   CSV       columns by a schema (engine/input/schema.h): "dense", "sparse" and "label" unless it says
//             otherwise
//
//   TFRECORD  features of tf.train.Example by the same kind of schema
//
//   TEXT      lines, each a record of the one field "line", by the same kind of schema
//
//   CRITEO    label, 13 integers, 26 hexadecimal categories: "dense" float [rows, 13], "sparse" int64
//             [rows, 26], "label" float [rows]; tab separated without a header, comma separated with one, or
//             TFRecord
//
// Throws: InvalidArgument (a missing file), DataLoss (a bad record beyond `max_bad_records`: file, line,
// column, what was expected).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/input/schema.h"
#include "engine/input/table.h"

namespace braid {
/// The whole file, inflated when it is gzip. Throws: InvalidArgument (cannot open: path and
/// reason), DataLoss (damaged gzip).
std::string read_text_file(const std::filesystem::path& file);

/// The lines of a vocabulary file, without empty ones.
std::vector<std::string> read_words(const std::filesystem::path& file);

std::shared_ptr<const Table> read_idx(const std::filesystem::path& images,
                                      const std::filesystem::path& labels);

/// What the row-wise readers have in common.
struct ReadOptions {
  std::int64_t max_bad_records = 0;
  int rank = 0, world = 1;  // of all rows of all files, those whose number mod world is rank
  std::function<void(std::int64_t)> progress = {};  // called now and then with the records seen so far
};

struct CsvOptions {
  char separator = ',';
  bool header = false;
  std::string comment = {};  // lines that begin with it are skipped
  std::vector<ColumnSpec> columns = {};
  ReadOptions read = {};
};

std::shared_ptr<const Table> read_csv(const std::vector<std::filesystem::path>& files,
                                      const CsvOptions& options);

/// Lines of text: each column of the schema is named "line" and is made of the whole line. Empty lines count.
struct TextOptions {
  std::vector<ColumnSpec> columns = {};
  ReadOptions read = {};
};

std::shared_ptr<const Table> read_text_lines(const std::vector<std::filesystem::path>& files,
                                             const TextOptions& options);

/// TFRecord files of tf.train.Example: columns are named after features; one that a record lacks is missing.
struct TfRecordOptions {
  std::vector<ColumnSpec> columns = {};
  ReadOptions read = {};
};

std::shared_ptr<const Table> read_tfrecord(const std::vector<std::filesystem::path>& files,
                                           const TfRecordOptions& options);

/// What becomes of the 13 numbers x of a row. SquaredLog is floor(log(x)^2) where x > 2, as the winners of
/// the contest had it.
enum class DenseTransform { Log1p, Raw, SquaredLog };

struct CriteoOptions {
  std::int64_t buckets = 100000;  // of each of the 26 columns
  DenseTransform dense = DenseTransform::Log1p;
  ReadOptions read = {};
};

std::shared_ptr<const Table> read_criteo(const std::vector<std::filesystem::path>& files,
                                         const CriteoOptions& options);

}  // namespace braid
