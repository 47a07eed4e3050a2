// The intra-op pool: threads that run the blocks of one kernel. Its width is a setting that is independent of
// the number of streams; many streams share one pool. Blocks are cut by the caller from shapes only, never
// from the number of threads, so results have the same bits for any width. Thread rule: parallel_for may be
// called from any thread and from several at once; not from inside a block.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace braid {

/// A reference to a callable, without allocation. The callable outlives the call it is passed to.
template <class Signature>
class FunctionRef;
template <class R, class... Args>
class FunctionRef<R(Args...)> {
 public:
  template <class F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
      FunctionRef(F&& f)  // NOLINT: implicit by design
      : object_(const_cast<void*>(static_cast<const void*>(&f))), call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(static_cast<Args>(args)...);
        }) {}
  R operator()(Args... args) const { return call_(object_, static_cast<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

class ThreadPool {
 public:
  /// `width` threads take part in a parallel_for, the caller among them: width 1 starts no thread and runs
  /// inline. REQUIRES: width >= 1.
  explicit ThreadPool(int width);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  int width() const;

  /// Runs block(b) for every b in [0, blocks), returns when all are done; the first exception is thrown
  /// again. The caller works too, so it finishes even when all threads are busy with other callers' blocks.
  void parallel_for(std::int64_t blocks, FunctionRef<void(std::int64_t)> block);

  /// Cuts [0, count) into blocks of at most `grain` and runs body(begin, end) for each. Borders depend on
  /// count and grain only.
  void parallel_range(std::int64_t count, std::int64_t grain,
                      FunctionRef<void(std::int64_t, std::int64_t)> body);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid
