#include "worker/evaluation/prediction_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/formats/npy.h"

namespace braid::worker {
namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 20;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

/// A file under another name until it is whole.
class Unfinished {
 public:
  explicit Unfinished(std::filesystem::path file)
      : path_(std::move(file)),
        temporary_(path_.string() + ".tmp-" + std::to_string(::getpid())),
        file_(File::create(temporary_)) {}
  ~Unfinished() {
    std::error_code ignored;
    if (!finished_) std::filesystem::remove(temporary_, ignored);
  }
  Unfinished(const Unfinished&) = delete;

  File& file() { return file_; }
  const std::filesystem::path& temporary() const { return temporary_; }
  void finish() {
    file_.sync();
    file_.close();
    rename_path(temporary_, path_);
    finished_ = true;
  }

 private:
  const std::filesystem::path path_, temporary_;
  File file_;
  bool finished_ = false;
};

class TextPredictions : public PredictionFile {
 public:
  TextPredictions(const std::filesystem::path& file, char separator, std::string key,
                  std::vector<PredictedColumn> columns)
      : separator_(separator), columns_(std::move(columns)) {
    if (file != "-") file_.emplace(file);
    add_text(key);
    for (const PredictedColumn& column : columns_) {
      buffer_ += separator_;
      add_text(column.name);
    }
    buffer_ += '\n';
  }

  void add(std::string_view key, std::span<const double> values) override {
    add_text(key);
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      buffer_ += separator_;
      if (!values.empty()) add_value(columns_[c], values[c]);
    }
    buffer_ += '\n';
    if (buffer_.size() > kBuffer) flush();
  }

  void finish() override {
    flush();
    if (file_)
      file_->finish();
    else if (std::fflush(stdout) != 0)
      throw Unavailable(fmt::format("--out -: cannot write: {}", std::strerror(errno)));
  }

 private:
  void add_value(const PredictedColumn& column, double value) {
    if (!column.is_class) {
      fmt::format_to(std::back_inserter(buffer_), "{}", static_cast<float>(value));
      return;
    }
    const auto number = static_cast<std::size_t>(value);
    if (number < column.words.size())
      add_text(column.words[number]);
    else
      buffer_ += std::to_string(number);
  }

  /// In quotes where it would not be one field else.
  void add_text(std::string_view text) {
    if (text.find_first_of("\"\r\n") == std::string_view::npos &&
        text.find(separator_) == std::string_view::npos && !text.starts_with(' ') && !text.ends_with(' ')) {
      buffer_ += text;
      return;
    }
    buffer_ += '"';
    for (const char c : text) buffer_.append(c == '"' ? 2 : 1, c);
    buffer_ += '"';
  }

  void flush() {
    if (file_)
      file_->file().write(bytes_of(buffer_));
    else if (std::fwrite(buffer_.data(), 1, buffer_.size(), stdout) != buffer_.size())
      throw Unavailable(fmt::format("--out -: cannot write: {}", std::strerror(errno)));
    buffer_.clear();
  }

  const char separator_;
  const std::vector<PredictedColumn> columns_;
  std::optional<Unfinished> file_;  // absent: standard output
  std::string buffer_;
};

/// [rows] of one column, else [rows, columns]. How many rows there are is written into the header at the end,
/// which has the room for it whatever the number is.
class NpyPredictions : public PredictionFile {
 public:
  NpyPredictions(const std::filesystem::path& file, const std::vector<PredictedColumn>& columns)
      : file_(file) {
    for (const PredictedColumn& column : columns) taken_.push_back(!column.is_class);
    for (const bool taken : taken_) width_ += taken;
    const std::string head = header();
    header_bytes_ = head.size();
    file_.file().write(bytes_of(head));
  }

  void add(std::string_view, std::span<const double> values) override {
    for (std::size_t c = 0; c < taken_.size(); ++c)
      if (taken_[c])
        buffer_.push_back(values.empty() ? std::numeric_limits<float>::quiet_NaN()
                                         : static_cast<float>(values[c]));
    ++rows_;
    if (buffer_.size() * sizeof(float) > kBuffer) flush();
  }

  void finish() override {
    flush();
    const std::string head = header();
    if (head.size() != header_bytes_) throw Internal("the header of a .npy file has outgrown its room");
    std::FILE* const again = std::fopen(file_.temporary().c_str(), "r+b");
    const bool good = again && std::fwrite(head.data(), 1, head.size(), again) == head.size();
    const bool closed = again && std::fclose(again) == 0;
    if (!good || !closed)
      throw Unavailable("cannot write '" + file_.temporary().string() + "': " + std::strerror(errno));
    file_.finish();
  }

 private:
  std::string header() const {
    std::vector<std::int64_t> shape{rows_};
    if (width_ != 1) shape.push_back(width_);
    return npy_header(DType::Float32, shape);
  }
  void flush() {
    file_.file().write(std::as_bytes(std::span(buffer_)));
    buffer_.clear();
  }

  Unfinished file_;
  std::vector<bool> taken_;  // by column
  std::int64_t width_ = 0, rows_ = 0;
  std::size_t header_bytes_ = 0;
  std::vector<float> buffer_;
};

}  // namespace

std::unique_ptr<PredictionFile> PredictionFile::create(const std::filesystem::path& file, std::string key,
                                                       std::vector<PredictedColumn> columns) {
  const std::string ending = file.extension();
  if (ending == ".npy") return std::make_unique<NpyPredictions>(file, columns);
  if (ending != ".csv" && ending != ".tsv" && file != "-")
    throw InvalidArgument("--out '" + file.string() + "': its name does not say a format (.csv, .tsv, .npy)");
  const char separator = ending == ".tsv" ? '\t' : ',';
  return std::make_unique<TextPredictions>(file, separator, std::move(key), std::move(columns));
}

}  // namespace braid::worker
