#include "worker/evaluation/prediction_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/formats/npy.h"
#include "base/formats/zip.h"

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

/// Elements as braid::Tensor lays strings out.
std::vector<std::byte> laid_out(const std::vector<std::string>& texts) {
  std::vector<std::int64_t> offsets{0};
  std::string all;
  for (const std::string& text : texts) offsets.push_back(static_cast<std::int64_t>((all += text).size()));
  std::vector<std::byte> bytes(offsets.size() * sizeof(std::int64_t) + all.size());
  std::memcpy(bytes.data(), offsets.data(), offsets.size() * sizeof(std::int64_t));
  if (!all.empty()) std::memcpy(bytes.data() + offsets.size() * sizeof(std::int64_t), all.data(), all.size());
  return bytes;
}

/// The number that the text is, written as numbers are.
std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || std::to_string(number) != text) return std::nullopt;
  return number;
}

/// An array a column, and one of the keys: integers where all of them are, else text. Kept until the end.
class NpzPredictions : public PredictionFile {
 public:
  NpzPredictions(const std::filesystem::path& file, std::string key, std::vector<PredictedColumn> columns)
      : zip_(file), key_(std::move(key)), columns_(std::move(columns)), values_(columns_.size()) {}

  void add(std::string_view key, std::span<const double> values) override {
    keys_.emplace_back(key);
    for (std::size_t c = 0; c < columns_.size(); ++c)
      values_[c].push_back(!values.empty()        ? values[c]
                           : columns_[c].is_class ? -1.0
                                                  : std::numeric_limits<double>::quiet_NaN());
  }

  void finish() override {
    add_keys();
    for (std::size_t c = 0; c < columns_.size(); ++c) {
      const std::vector<double>& values = values_[c];
      if (!columns_[c].is_class) {
        add_array<float>(columns_[c].name, DType::Float32, {values.begin(), values.end()});
      } else if (columns_[c].words.empty()) {
        add_array<std::int64_t>(columns_[c].name, DType::Int64, {values.begin(), values.end()});
      } else {
        std::vector<std::string> texts;
        for (const double value : values) texts.push_back(word(columns_[c].words, value));
        add_texts(columns_[c].name, texts);
      }
    }
    zip_.finish();
  }

 private:
  static std::string word(const std::vector<std::string>& words, double value) {
    if (value < 0) return {};
    const auto number = static_cast<std::size_t>(value);
    return number < words.size() ? words[number] : std::to_string(number);
  }

  void add_keys() {
    std::vector<std::int64_t> numbers;
    for (const std::string& key : keys_)
      if (const auto number = whole_number(key)) numbers.push_back(*number);
    if (numbers.size() == keys_.size())
      add_array<std::int64_t>(key_, DType::Int64, numbers);
    else
      add_texts(key_, keys_);
  }

  template <class T>
  void add_array(const std::string& name, DType dtype, const std::vector<T>& values) {
    const std::int64_t rows = std::ssize(values);
    add_entry(name, format_npy(dtype, {&rows, 1}, std::as_bytes(std::span(values))));
  }
  void add_texts(const std::string& name, const std::vector<std::string>& texts) {
    const std::int64_t rows = std::ssize(texts);
    add_entry(name, format_npy(DType::String, {&rows, 1}, laid_out(texts)));
  }
  void add_entry(const std::string& name, const std::string& array) {
    const auto bytes = bytes_of(array);
    zip_.add(name + ".npy", {&bytes, 1});
  }

  ZipWriter zip_;
  const std::string key_;
  const std::vector<PredictedColumn> columns_;
  std::vector<std::string> keys_;
  std::vector<std::vector<double>> values_;  // by column
};

}  // namespace

std::unique_ptr<PredictionFile> PredictionFile::create(const std::filesystem::path& file, std::string key,
                                                       std::vector<PredictedColumn> columns) {
  const std::string ending = file.extension();
  if (ending == ".npy") return std::make_unique<NpyPredictions>(file, columns);
  if (ending == ".npz") return std::make_unique<NpzPredictions>(file, std::move(key), std::move(columns));
  if (ending != ".csv" && ending != ".tsv" && file != "-")
    throw InvalidArgument("--out '" + file.string() +
                          "': its name does not say a format (.csv, .tsv, .npy, .npz)");
  const char separator = ending == ".tsv" ? '\t' : ',';
  return std::make_unique<TextPredictions>(file, separator, std::move(key), std::move(columns));
}

}  // namespace braid::worker
