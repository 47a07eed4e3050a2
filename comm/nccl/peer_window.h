// Memory of this rank's GPU that the GPUs of the other ranks of the host write (CUDA IPC over NVLink or
// PCIe), for exchanges that need no message. Two halves, which exchanges take in turn: a rank writes into a
// half again only after all ranks have begun the exchange in between, and so have taken what lay there.
// Thread rule: const after construction.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/wait_context.h"
#include "comm/rendezvous/rendezvous.h"

namespace braid::comm {

class PeerWindow {
 public:
  /// Collective. `bytes`: of a half, by rank. `why` goes in with this rank's reason to do without, if it has
  /// one. Null, on all ranks, where one of them has, or cannot map the memory of another: other hosts, GPUs
  /// that cannot reach each other, processes that may not share memory; `why` then says which.
  static std::unique_ptr<PeerWindow> open(Rendezvous& rendezvous, const std::string& key, int rank,
                                          std::span<const std::int64_t> bytes, const WaitContext& wait,
                                          std::string& why);
  ~PeerWindow();
  PeerWindow(const PeerWindow&) = delete;
  PeerWindow& operator=(const PeerWindow&) = delete;

  /// Of each rank, as this GPU reaches it.
  std::byte* data(int rank) const { return at(rank) + kHeaderBytes; }
  /// From one half to the other.
  std::int64_t half_bytes(int rank) const { return halves_[static_cast<std::size_t>(rank)]; }
  /// Where `source` says in the window of `rank` which exchange its pieces are of: kMostBlocks numbers, of
  /// blocks that speak for themselves. The first is that of all of them.
  std::uint64_t* flag(int rank, int source) const {
    return reinterpret_cast<std::uint64_t*>(at(rank) + kCountersBytes +
                                            kFlagsBytes * static_cast<std::size_t>(source));
  }
  /// The number of exchanges that this rank has finished, and two counters of blocks.
  std::uint64_t* finished() const { return reinterpret_cast<std::uint64_t*>(at(rank_)); }
  unsigned* blocks(int kernel) const {
    return reinterpret_cast<unsigned*>(at(rank_) + sizeof(std::uint64_t)) + kernel;
  }
  int ranks() const { return static_cast<int>(bases_.size()); }
  int rank() const { return rank_; }

  /// Ranks that a window can have, and blocks of a kernel that say how far they are.
  static constexpr int kMostRanks = 15;
  static constexpr int kMostBlocks = 256;

 private:
  static constexpr std::size_t kCountersBytes = 256;  // lines of their own
  static constexpr std::size_t kFlagsBytes = sizeof(std::uint64_t) * kMostBlocks;
  static constexpr std::size_t kHeaderBytes = kCountersBytes + kFlagsBytes * kMostRanks;

  PeerWindow(int rank, std::span<const std::int64_t> bytes);
  std::byte* at(int rank) const { return bases_[static_cast<std::size_t>(rank)]; }
  std::byte* map(const cudaIpcMemHandle_t& handle, std::size_t rank);
  void map_peers(Rendezvous& rendezvous, const std::string& key, const WaitContext& wait, std::string& why);

  const int rank_;
  std::vector<std::int64_t> halves_;
  std::vector<std::byte*> bases_;  // by rank; null: not mapped
  std::vector<bool> mapped_;       // from another process
};

}  // namespace braid::comm
