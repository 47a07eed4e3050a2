#include "cli/record_readers.h"

#include <fstream>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "engine/input/formats/tfrecord.h"

namespace braid::cli {
namespace {

class Lines : public RecordReader {
 public:
  Lines(const std::string& file, std::int64_t skipped) : file_(file), stream_(file, std::ios::binary) {
    if (!stream_) throw InvalidArgument("'" + file + "': cannot be opened");
    for (std::string line; number_ < skipped && std::getline(stream_, line);) ++number_;
  }
  std::optional<KeyedRecord> next() override {
    std::string line;
    if (!std::getline(stream_, line)) return std::nullopt;
    if (line.ends_with('\r')) line.pop_back();
    return KeyedRecord{file_ + ":" + std::to_string(++number_), std::move(line)};
  }

 private:
  std::string file_;
  std::ifstream stream_;
  std::int64_t number_ = 0;
};

class TfRecords : public RecordReader {
 public:
  explicit TfRecords(const std::string& file) : file_(file), reader_(file) {}
  std::optional<KeyedRecord> next() override {
    const auto record = reader_.next();
    if (!record) return std::nullopt;
    return KeyedRecord{file_ + ":" + std::to_string(reader_.offset()), std::string(*record)};
  }

 private:
  std::string file_;
  TfRecordReader reader_;
};

class OneRecord : public RecordReader {
 public:
  explicit OneRecord(KeyedRecord record) : record_(std::move(record)) {}
  std::optional<KeyedRecord> next() override { return std::exchange(record_, std::nullopt); }

 private:
  std::optional<KeyedRecord> record_;
};

}  // namespace

std::unique_ptr<RecordReader> open_records(std::string_view op, const std::string& file,
                                           std::int64_t skip_header_lines) {
  if (op == "TextLineReader") return std::make_unique<Lines>(file, skip_header_lines);
  if (op == "TFRecordReader") return std::make_unique<TfRecords>(file);
  if (op == "WholeFileReader") return std::make_unique<OneRecord>(KeyedRecord{file, read_file(file)});
  if (op == "IdentityReader") return std::make_unique<OneRecord>(KeyedRecord{file, file});
  return nullptr;
}

}  // namespace braid::cli
