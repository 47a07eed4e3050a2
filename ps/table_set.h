// What a job keeps on its parameter servers: the tables, the optimizer and the consistency, as every worker
// declares them. Two workers agree when their hashes are equal. Owns no values. Thread rule: values and pure
// functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/init.h"
#include "base/optim.h"

namespace braid::ps {

/// On the wire and in checkpoints: never renumber.
enum class Consistency : int {
  Bsp = 1,    // a round is applied when every worker has pushed it; pulls wait for their round
  Asp = 2,    // a push is applied when it arrives
  Ssp = 3,    // bounded staleness
  Timed = 4,  // BSP that goes on without the late ones after a timeout
};

std::string_view consistency_name(Consistency consistency);

struct DenseTableSpec {
  std::string name;
  std::int64_t elements = 0;
  /// Of older checkpoints; it may have more elements there, of which its own are the first. Empty: the same.
  std::string former_name = {};
  int group = 0;  // 0: the set's optimizer; g: its groups[g - 1]
};

/// Column c of key k starts as element k * dim + c (modulo 2^64) of the stream `key`, so the table equals a
/// variable of shape [rows, dim] that fill_initial filled.
struct SparseTableSpec {
  std::string name;
  std::int64_t dim = 0;
  InitSpec init;
  RngKey key;
  std::string former_name = {};  // of older checkpoints; empty: the same
  int group = 0;                 // as a dense table's
};

/// Of Timed: when a round closes without all workers, and what becomes of what comes later.
struct TimedRule {
  enum class Late : int { Drop = 0, Next = 1 };  // on the wire: never renumber
  std::uint32_t timeout_ms = 0;  // from the first push of the round; kNever: with all workers alone
  int quorum = 1;                // of workers that take part, before which no round closes
  Late late = Late::Drop;        // Next: goes into the round that is open, times late_scale
  float late_scale = 0.5F;
  double max_late_share = 1;  // of a worker's pushes; above it the job ends
  std::uint64_t rounds = 0;   // of the job, behind which workers hear that it is over; 0: no end

  static constexpr std::uint32_t kNever = ~std::uint32_t{0};
};

struct TableSet {
  std::vector<DenseTableSpec> dense;
  std::vector<SparseTableSpec> sparse;
  OptimizerSpec optimizer;
  std::vector<OptimizerSpec> groups;  // of tables with an optimizer of their own
  Consistency consistency = Consistency::Bsp;
  int workers = 1;
  std::uint64_t staleness = 1;  // of Ssp: steps that a pull may be ahead of the slowest worker's pushes
  TimedRule timed = {};
  bool cached = false;  // workers keep rows, so that servers are to know who has changed a row last

  const OptimizerSpec& optimizer_of(int group) const {
    return group == 0 ? optimizer : groups[static_cast<std::size_t>(group) - 1];
  }
};

/// Throws: InvalidArgument with the table and the reason.
void check_table_set(const TableSet& set);

/// Equal for equal sets, on every machine and in every version.
std::uint64_t table_set_hash(const TableSet& set);

/// The 64 mixed bits of a sparse key. Bits 32-47 choose the server, bits 56-63 the bucket within it, the low
/// bits the place in a hash table. Part of the wire contract: client and server must agree. Mix: finaliser of
/// SplitMix64 (Steele et al., OOPSLA'14).
inline std::uint64_t key_hash(std::int64_t key) {
  auto x = static_cast<std::uint64_t>(key) + 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

inline int server_of_hash(std::uint64_t hash, int servers) {
  return static_cast<int>(((hash >> 32) & 0xffff) % static_cast<std::uint64_t>(servers));
}

/// Of a server's keys. A table thread has a range of buckets, so that in a list that rises by bucket its keys
/// lie together.
inline constexpr int kKeyBuckets = 256;
inline int bucket_of_hash(std::uint64_t hash) { return static_cast<int>(hash >> 56); }
/// REQUIRES: threads <= kKeyBuckets.
inline int thread_of_hash(std::uint64_t hash, int threads) {
  return bucket_of_hash(hash) * threads / kKeyBuckets;
}
/// The first bucket of a thread; kKeyBuckets for the one behind the last.
inline int first_bucket_of(int thread, int threads) { return (thread * kKeyBuckets + threads - 1) / threads; }

}  // namespace braid::ps
