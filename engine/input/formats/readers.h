// Files -> Table, all at once or some rows at a time, gzip too; every error names file and line (or record
// and byte).
//   IDX       images and labels of the MNIST family: "image" uint8 [rows, height, width, 1] scaled by 1/255
//             (other types as float32, other ranks as they are), "label" int64 [rows]
//
//   CSV       columns by a schema (engine/input/schema/schema.h): "dense", "sparse" and "label" unless it
//   says
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
//   NPY       arrays, a file a column, named like the file; the first dimension are the rows. Floats become
//             float32, integers and bool int64
//
// Throws: InvalidArgument (a missing file), DataLoss (a bad record beyond `max_bad_records`: file, line,
// column, what was expected).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/input/files/file_piece.h"
#include "engine/input/schema/schema.h"
#include "engine/input/schema/table.h"

namespace braid {
/// The whole file, inflated when it is gzip. Throws: InvalidArgument (cannot open: path and
/// reason), DataLoss (damaged gzip).
std::string read_text_file(const std::filesystem::path& file);

/// The lines of a vocabulary file, without empty ones.
std::vector<std::string> read_words(const std::filesystem::path& file);

/// What the row-wise readers have in common.
struct ReadOptions {
  std::int64_t max_bad_records = 0;
  int rank = 0, world = 1;  // of all rows of all files, those whose number mod world is rank
  std::function<void(std::int64_t)> progress = {};  // called now and then with the records seen so far
  /// A field whose text each row has as its key (Table::keys), also one that the schema skips.
  std::string key_column = {};
  /// A field by whose text rows are grouped: 64 bits of its hash are the column kGroupColumn.
  std::string group_column = {};
  /// Columns of the table that are not looked at, and that files need not have: they are 0. (Labels of rows
  /// that are to be predicted.)
  std::vector<std::string> ignored = {};
  /// A bad record becomes a row of zeros (Table::bad_rows), so that rows are as many as records.
  bool keep_bad_records = false;
};

/// The rows of files, one file after the other, a table at a time: what is held of the files is little,
/// whatever their size (of IDX it is all). Thread rule: one thread.
class RowStream {
 public:
  virtual ~RowStream() = default;
  /// The next rows, `most` of them if there are so many; without rows at the end. next(0) gives the columns.
  /// Throws: as the readers of this file.
  virtual std::shared_ptr<Table> next(std::int64_t most) = 0;
  /// Passes over the next rows, `most` of them if there are so many; how many there were. Bad records among
  /// them may go by unseen.
  virtual std::int64_t skip(std::int64_t most) { return next(most)->rows; }
  /// Begins again, with these pieces in place of the files. Not of IDX and NPY.
  virtual void begin(std::vector<FilePiece> pieces);
};

std::shared_ptr<const Table> read_idx(const std::filesystem::path& images,
                                      const std::filesystem::path& labels);
/// Without `labels` they are 0.
std::unique_ptr<RowStream> stream_idx(const std::filesystem::path& images,
                                      const std::optional<std::filesystem::path>& labels);

struct CsvOptions {
  char separator = ',';
  bool header = false;
  std::string comment = {};  // lines that begin with it are skipped
  std::vector<ColumnSpec> columns = {};
  ReadOptions read = {};
};

std::shared_ptr<const Table> read_csv(const std::vector<std::filesystem::path>& files,
                                      const CsvOptions& options);
std::unique_ptr<RowStream> stream_csv(std::vector<std::filesystem::path> files, CsvOptions options);

/// Lines of text: each column of the schema is named "line" and is made of the whole line. Empty lines count.
struct TextOptions {
  std::vector<ColumnSpec> columns = {};
  ReadOptions read = {};
};

std::shared_ptr<const Table> read_text_lines(const std::vector<std::filesystem::path>& files,
                                             const TextOptions& options);
std::unique_ptr<RowStream> stream_text_lines(std::vector<std::filesystem::path> files, TextOptions options);

/// TFRecord files of tf.train.Example: columns are named after features; one that a record lacks is missing.
struct TfRecordOptions {
  std::vector<ColumnSpec> columns = {};
  ReadOptions read = {};
};

std::shared_ptr<const Table> read_tfrecord(const std::vector<std::filesystem::path>& files,
                                           const TfRecordOptions& options);
std::unique_ptr<RowStream> stream_tfrecord(std::vector<std::filesystem::path> files, TfRecordOptions options);

/// Arrays as columns. Throws also: InvalidArgument (no rows, other numbers of rows, strings, two of one
/// name).
std::shared_ptr<Table> table_of_arrays(std::vector<std::pair<std::string, Tensor>> arrays);
std::unique_ptr<RowStream> stream_npy(const std::vector<std::filesystem::path>& files,
                                      const ReadOptions& read);

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
std::unique_ptr<RowStream> stream_criteo(std::vector<std::filesystem::path> files, CriteoOptions options);

}  // namespace braid
