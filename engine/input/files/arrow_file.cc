#include "engine/input/files/arrow_file.h"

#include <arrow/buffer.h>
#include <arrow/result.h>
#include <arrow/status.h>

#include <algorithm>

#include "base/error.h"

namespace braid {
namespace {

class ArrowFile : public arrow::io::RandomAccessFile {
 public:
  explicit ArrowFile(std::shared_ptr<DataFile> file) : file_(std::move(file)) {}

  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return closed_; }
  arrow::Result<std::int64_t> Tell() const override { return at_; }
  arrow::Status Seek(std::int64_t position) override {
    at_ = position;
    return arrow::Status::OK();
  }
  arrow::Result<std::int64_t> GetSize() override { return static_cast<std::int64_t>(file_->size()); }
  arrow::Result<std::int64_t> Read(std::int64_t count, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const std::int64_t got, ReadAt(at_, count, out));
    at_ += got;
    return got;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(std::int64_t count) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, ReadAt(at_, count));
    at_ += buffer->size();
    return buffer;
  }
  arrow::Result<std::int64_t> ReadAt(std::int64_t position, std::int64_t count, void* out) override {
    const auto size = static_cast<std::int64_t>(file_->size());
    const std::int64_t there = std::clamp<std::int64_t>(size - position, 0, count);
    try {
      file_->read_at(static_cast<std::uint64_t>(position),
                     {static_cast<std::byte*>(out), static_cast<std::size_t>(there)});
    } catch (const Error& error) {
      return arrow::Status::IOError(error.message());
    }
    return there;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(std::int64_t position, std::int64_t count) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, arrow::AllocateResizableBuffer(count));
    ARROW_ASSIGN_OR_RAISE(const std::int64_t got, ReadAt(position, count, buffer->mutable_data()));
    if (got < count) ARROW_RETURN_NOT_OK(buffer->Resize(got));
    return std::shared_ptr<arrow::Buffer>(std::move(buffer));
  }

 private:
  const std::shared_ptr<DataFile> file_;
  std::int64_t at_ = 0;
  bool closed_ = false;
};

}  // namespace

std::shared_ptr<arrow::io::RandomAccessFile> as_arrow_file(std::shared_ptr<DataFile> file) {
  return std::make_shared<ArrowFile>(std::move(file));
}

}  // namespace braid
