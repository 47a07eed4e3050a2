// Moves what a child writes to where a person reads it, a line at a time, so that the lines of several
// processes do not run into each other. Thread rule: one thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/files.h"
#include "launch/file_descriptor.h"
#include "launch/line_sink.h"

namespace braid::launch {

class OutputForwarder {
 public:
  struct Options {
    std::string prefix;
    /// Keeps a line that starts with "result:" back until finish(), so that it is the last one. A line after
    /// it frees it.
    bool hold_result = false;
    /// Is told each line that starts with "result:"; may be null.
    std::function<void(std::string_view)> on_result = nullptr;
    /// Gets every byte as it came, until it cannot be written; may be null.
    File* log = nullptr;
  };
  OutputForwarder(FileDescriptor source, LineSink& sink, Options options);

  int descriptor() const { return source_.get(); }
  bool is_open() const { return source_.is_open(); }
  const LineSink& sink() const { return sink_; }
  /// Forwards what there is (at most 256 KiB), without waiting; closes at the end of the source.
  void forward();
  /// The writer has ended: forwards what is left, closes, and ends a last line that has no newline.
  void finish();
  /// The line that was kept back, which is not written then.
  std::optional<std::string> take_held() { return std::exchange(held_, std::nullopt); }

 private:
  void write_log(std::string_view text);
  void take_lines();
  void emit(std::string_view line);
  void release();  // writes the line that was kept back

  FileDescriptor source_;
  LineSink& sink_;
  Options options_;
  std::string partial_;
  std::optional<std::string> held_;
};

}  // namespace braid::launch
