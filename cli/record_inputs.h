// The records of data files of any format, one file after the other, and where they go: what `braid data
// convert`, stats, split and shuffle have in common. Thread rule: one thread.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/input/formats/record_file.h"
#include "engine/input/formats/record_sink.h"

namespace braid::cli {

/// How the inputs are read, from the command line.
struct InputOptions {
  std::vector<std::string> files;
  std::string from, separator, comment;
  std::vector<std::string> names;
  bool header = false, no_header = false;
  std::int64_t max_bad_records = 0;
};
void add_input_options(CLI::App& sub, InputOptions& options);

/// Where one output goes.
struct OutputOptions {
  std::string out, to, compression;
  std::int64_t row_group_rows = 65536;
};
void add_output_options(CLI::App& sub, OutputOptions& options);

/// Two files of IDX, images and labels, are records that have both.
class RecordInputs {
 public:
  /// `texts`: fields of lines stay as they were written. Throws: InvalidArgument (no such file, options that
  /// contradict each other).
  explicit RecordInputs(const InputOptions& options, bool texts = false);
  /// From the first record on again. REQUIRES: files, no pipe.
  void restart();
  bool next();
  const FeatureSet& record() const { return beside_ ? joined_ : file_->record(); }
  /// Names of the columns in the file's order, where it has one.
  std::vector<std::string> column_names() const;
  std::int64_t bad_records() const { return bad_ + file_->bad_records(); }

 private:
  void join();

  const InputOptions options_;
  RecordFileOptions open_;
  std::size_t at_ = 0;
  std::int64_t bad_ = 0;  // of the files before
  std::unique_ptr<RecordFile> file_, beside_;
  FeatureSet joined_;
};

/// By --to, else by its name. Throws: InvalidArgument.
FileFormat output_format(const OutputOptions& output);
/// Whether it is of lines, into which fields of lines go as they were written.
bool writes_texts(const OutputOptions& output);

/// What the options and the name of an output say, with its columns where its format needs them, for which
/// all records are read, and the inputs begin again. Throws: InvalidArgument.
RecordSinkOptions sink_options(const OutputOptions& output, RecordInputs& inputs);

/// Throws: InvalidArgument where an output is one of the inputs.
void check_not_an_input(const InputOptions& inputs, const std::string& out);

}  // namespace braid::cli
