#include "launch/output_forwarder.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/error.h"

namespace braid::launch {
namespace {

// Without a newline for so long it is no line; it goes on in parts.
constexpr std::size_t kLongestLine = 64 * 1024;
// More than a pipe holds, so that one call takes all that an ended writer left; bounded, so that a busy one
// starves nobody.
constexpr int kReadsAtATime = 16;

}  // namespace

OutputForwarder::OutputForwarder(FileDescriptor source, LineSink& sink, Options options)
    : source_(std::move(source)), sink_(sink), options_(std::move(options)) {}

void OutputForwarder::forward() {
  std::array<char, 16 * 1024> bytes;
  for (int reads = 0; is_open() && reads < kReadsAtATime; ++reads) {
    const ssize_t got = ::read(descriptor(), bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      source_.reset();
      return;
    }
    const std::string_view text(bytes.data(), static_cast<std::size_t>(got));
    write_log(text);
    partial_ += text;
    take_lines();
  }
}

void OutputForwarder::write_log(std::string_view text) {
  if (options_.log == nullptr) return;
  try {
    options_.log->write(std::as_bytes(std::span(text)));
  } catch (const Error& error) {
    sink_.write_line("[launch] ", error.message() + "; the log ends here");
    options_.log = nullptr;
  }
}

void OutputForwarder::take_lines() {
  std::size_t start = 0;
  for (std::size_t end; (end = partial_.find('\n', start)) != std::string::npos; start = end + 1)
    emit(std::string_view(partial_).substr(start, end - start));
  partial_.erase(0, start);
  if (partial_.size() >= kLongestLine) emit(std::exchange(partial_, {}));
}

void OutputForwarder::emit(std::string_view line) {
  release();
  if (options_.on_result && line.starts_with("result:")) options_.on_result(line);
  if (options_.hold_result && line.starts_with("result:")) {
    held_ = line;
  } else {
    sink_.write_line(options_.prefix, line);
  }
}

void OutputForwarder::finish() {
  forward();
  source_.reset();
  if (!partial_.empty()) emit(std::exchange(partial_, {}));
}

void OutputForwarder::release() {
  if (held_) sink_.write_line(options_.prefix, *std::exchange(held_, std::nullopt));
}

}  // namespace braid::launch
