// oneDNN on the CPU: the process's one engine, and calls of primitives that are made once in `prepare` and
// executed in `run`. Debian's oneDNN is an OpenMP build; it runs on one OpenMP thread here (set for each
// calling thread), with a scratchpad that the program gives. Parallelism is ours: cut the work into blocks
// whose borders depend on shapes only, make a DnnlCall for each block, and run them over the pool. Thread
// rule: one DnnlCall is executed by one thread at a time; different calls are independent. Only .cc files
// that include dnnl.hpp use this header.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <utility>

namespace dnnl {
struct engine;
struct memory;
struct primitive;
}  // namespace dnnl

namespace braid {

/// The engine, with OpenMP limited to one thread on the calling thread. REQUIRES: called on the thread that
/// makes or executes a primitive.
dnnl::engine& dnnl_cpu_engine();

/// Bytes of a user scratchpad, rounded up to the alignment of scratch memory.
constexpr std::size_t dnnl_scratch_bytes(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

/// A primitive with its memory arguments. The arguments' data pointers are given at each execution.
class DnnlCall {
 public:
  /// `arguments`: (DNNL_ARG_x, memory made with DNNL_MEMORY_NONE).
  DnnlCall(const dnnl::primitive& primitive, std::initializer_list<std::pair<int, dnnl::memory>> arguments);
  ~DnnlCall();
  DnnlCall(DnnlCall&&) noexcept;
  DnnlCall& operator=(DnnlCall&&) noexcept;

  /// `pointers[k]` is the data of the k-th argument, in the order of the constructor.
  void execute(std::initializer_list<const void*> pointers) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid
