// Puts the ids of a batch into the order in which requests send them: each key of a table once, by server,
// table and bucket. A worker does this ahead of the step, so that the step's pull and push copy and look up
// nothing. Thread rule: pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace braid::ps {

/// The ids of one use of a table in a batch.
struct IdList {
  int table = 0;  // its number among the `tables` tables
  std::span<const std::int64_t> ids;
  bool padded = false;  // a negative id is none
};

/// n: the ids of all lists together. Positions count through the lists.
struct KeyOrder {
  std::int64_t* keys = nullptr;    // [n]: the distinct keys of server 0's table 0, its table 1, ...; then 0
  std::int64_t* counts = nullptr;  // [servers, tables]: how many of them
  std::int32_t* places = nullptr;  // [n]: where an id's key lies in `keys`; 0 of no id
  /// [n]: place << 32 | position, rising; then -1, for as many as are no ids. Null: nobody wants to know.
  std::int64_t* entries = nullptr;
};

std::size_t order_scratch_bytes(std::int64_t n, int tables, int servers);

/// Of equal keys the first counts: within a bucket keys are in the order of their first positions.
/// REQUIRES: lists of a table follow each other, tables rise; n < 2^31; `scratch` has order_scratch_bytes and
/// is aligned to 8.
void order_keys(std::span<const IdList> lists, int tables, int servers, const KeyOrder& out, void* scratch);

}  // namespace braid::ps
