#include "engine/input/files/file_reads.h"

#include <algorithm>
#include <utility>

#include "engine/input/files/data_file.h"

namespace braid {

void ReadMeter::begin() {
  std::lock_guard lock(mu_);
  if (reads_++ == 0) since_ = Clock::now();
}

void ReadMeter::end(std::uint64_t bytes, bool direct) {
  std::lock_guard lock(mu_);
  bytes_ += bytes;
  if (direct) direct_bytes_ += bytes;
  if (--reads_ == 0) busy_ += Clock::now() - since_;
}

void ReadMeter::add(std::uint64_t direct_bytes) {
  std::lock_guard lock(mu_);
  bytes_ += direct_bytes;
  direct_bytes_ += direct_bytes;
}

FileReadTotals ReadMeter::totals() const {
  std::lock_guard lock(mu_);
  const Clock::duration busy = reads_ == 0 ? busy_ : busy_ + (Clock::now() - since_);
  return {bytes_, direct_bytes_, std::chrono::duration<double>(busy).count()};
}

namespace {

class CachedReader : public ExtentReader {
 public:
  explicit CachedReader(ReadMeter& meter) : meter_(meter) {}

  void begin(std::vector<FileExtent> extents) override {
    extents_ = std::move(extents);
    next_ = 0;
    at_ = end_ = 0;
    file_ = nullptr;
  }

  void read(std::span<std::byte> out) override {
    while (!out.empty()) {
      if (at_ == end_) open_next();
      const std::span<std::byte> part = out.first(std::min<std::uint64_t>(out.size(), end_ - at_));
      meter_.begin();
      std::uint64_t read = 0;
      try {
        file_->read_at(at_, part);
        read = part.size();
      } catch (...) {
        meter_.end(read, false);
        throw;
      }
      meter_.end(read, false);
      at_ += part.size();
      out = out.subspan(part.size());
    }
  }

 private:
  void open_next() {
    const FileExtent& extent = extents_[next_++];
    if (!file_ || file_->path() != extent.file) file_ = open_data_file(extent.file);
    at_ = extent.begin;
    end_ = extent.end;
  }

  ReadMeter& meter_;
  std::vector<FileExtent> extents_;
  std::size_t next_ = 0;
  std::shared_ptr<DataFile> file_;
  std::uint64_t at_ = 0, end_ = 0;
};

/// Direct where it can be.
class PreferDirect : public ExtentReader {
 public:
  PreferDirect(std::unique_ptr<DirectReader> direct, ReadMeter& meter)
      : direct_(std::move(direct)), cached_(make_cached_reader(meter)) {}

  void begin(std::vector<FileExtent> extents) override {
    is_direct_ = direct_->begin(extents);
    if (!is_direct_) cached_->begin(std::move(extents));
  }
  void read(std::span<std::byte> out) override { is_direct_ ? direct_->read(out) : cached_->read(out); }

 private:
  const std::unique_ptr<DirectReader> direct_;
  const std::unique_ptr<ExtentReader> cached_;
  bool is_direct_ = false;
};

}  // namespace

std::unique_ptr<ExtentReader> make_cached_reader(ReadMeter& meter) {
  return std::make_unique<CachedReader>(meter);
}

std::unique_ptr<ExtentReader> FileReads::reader() {
  std::unique_ptr<DirectReader> direct = options_.direct ? make_direct_reader(options_, meter_) : nullptr;
  if (!direct) return make_cached_reader(meter_);
  return std::make_unique<PreferDirect>(std::move(direct), meter_);
}

void FileReads::read(const std::filesystem::path& file, std::uint64_t begin, std::span<std::byte> out) {
  std::unique_ptr<ExtentReader> its;
  {
    std::lock_guard lock(mu_);
    if (!idle_.empty()) {
      its = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!its) its = reader();
  its->begin({{file, begin, begin + out.size()}});
  its->read(out);
  std::lock_guard lock(mu_);
  idle_.push_back(std::move(its));
}

}  // namespace braid
