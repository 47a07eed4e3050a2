// Which core the calling thread works on, among the threads of the process's streams. A kernel that wakes
// several threads at once may put two of them on one core although another is free, and leaves them there,
// step after step, when steps are shorter than the time after which it looks again: streams then run in turn.
// So a thread that wakes where another already works moves to a core where none does, unless it has done so
// just before; its affinity stays as it was. Thread rule: each function acts on the calling thread.
#pragma once

namespace braid {

class CorePlace {
 public:
  /// The thread has woken and is to work; nothing when it works already.
  static void take() noexcept;
  /// It is about to sleep, or has ended its work.
  static void leave() noexcept;
};

}  // namespace braid
