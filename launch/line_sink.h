// Where the lines of several processes go. A line is written at once or kept until it can be: whoever has to
// look after processes never waits for a reader of their output. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "launch/file_descriptor.h"

namespace braid::launch {

class LineSink {
 public:
  /// Does not own `descriptor`, and leaves its flags alone: they are also those of other processes.
  explicit LineSink(int descriptor);

  /// Adds prefix, line and a newline. On a terminal a line first wipes the progress bar that a child may be
  /// drawing.
  void write_line(std::string_view prefix, std::string_view line);
  /// Writes what can be written without waiting. What a full disk refuses is dropped, as is everything from
  /// when the reader or the terminal is gone: the job is worth more than its output.
  void flush();

  /// Bytes that are not written yet.
  std::size_t pending() const { return text_.size() - written_; }
  /// To be polled for room while there is something pending.
  int descriptor() const { return own_.is_open() ? own_.get() : given_; }
  /// Whether both end in the same file, pipe or terminal.
  static bool same_target(int one, int other);

 private:
  /// Of the next write: 0 when it would wait.
  std::size_t room() const;

  int given_;
  bool terminal_;
  FileDescriptor own_;  // does not block; closed where there is none
  bool gone_ = false;
  std::string text_;
  std::size_t written_ = 0;  // of text_
};

}  // namespace braid::launch
