// Rows of one group of tables that left their home in a step, by table and key. Thread rule: const once
// filled.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "ps/table_set.h"

namespace braid::ps {

class LeftRows {
 public:
  bool empty() const { return used_ == 0; }
  /// REQUIRES: it is not there yet.
  void add(int table, std::int64_t key, std::size_t swap) {
    if (2 * ++used_ > places_.size()) grow();
    put({key, table, static_cast<std::uint32_t>(swap)});
  }
  /// With which swap it left.
  std::optional<std::size_t> find(int table, std::int64_t key) const {
    if (places_.empty()) return std::nullopt;
    for (std::size_t at = home(table, key); places_[at].table >= 0; at = (at + 1) & (places_.size() - 1))
      if (places_[at].key == key && places_[at].table == table) return places_[at].swap;
    return std::nullopt;
  }

 private:
  struct Place {
    std::int64_t key = 0;
    std::int32_t table = -1;
    std::uint32_t swap = 0;
  };
  std::size_t home(int table, std::int64_t key) const {
    return key_hash(key ^ (static_cast<std::int64_t>(table) << 40)) & (places_.size() - 1);
  }
  void put(const Place& place) {
    std::size_t at = home(place.table, place.key);
    while (places_[at].table >= 0) at = (at + 1) & (places_.size() - 1);
    places_[at] = place;
  }
  void grow() {
    constexpr std::size_t kLeast = 64;
    const std::vector<Place> old =
        std::exchange(places_, std::vector<Place>(std::bit_ceil(std::max(kLeast, 4 * used_))));
    for (const Place& place : old)
      if (place.table >= 0) put(place);
  }

  std::vector<Place> places_;  // linear probing; at most half are taken
  std::size_t used_ = 0;
};

}  // namespace braid::ps
