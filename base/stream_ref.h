// Non-owning names of streams and events, for interfaces below the engine (communicators, memory) that must
// order their work on a stream without knowing the engine. Whoever owns the stream outlives the reference.
#pragma once

namespace braid {

enum class StreamKind { Host, Cuda };

struct StreamRef {
  StreamKind kind = StreamKind::Host;
  /// Cuda: the cudaStream_t. Host: null; the work runs on the calling thread, which is the stream's thread,
  /// and is complete when the call returns.
  void* native = nullptr;

  static StreamRef host() { return {}; }
};

}  // namespace braid
