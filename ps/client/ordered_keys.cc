#include "ps/client/ordered_keys.h"

#include <algorithm>
#include <bit>

#include "ps/table_set.h"

namespace braid::ps {
namespace {

/// Room for at most half full open addressing.
constexpr std::uint32_t kNone = ~std::uint32_t{0};  // the number of no id

std::size_t slots_for(std::int64_t n) { return std::bit_ceil(2 * static_cast<std::size_t>(n) + 1); }

struct Scratch {
  std::int64_t* keys;      // [n] distinct ones, by table, in the order of their first positions
  std::uint32_t* classes;  // [n] of these: server * kKeyBuckets + bucket
  std::uint32_t* number;   // [n] of a position: its key's place in `keys`
  std::uint32_t* place;    // [n] of a key; later the first entry of each place
  std::uint32_t* slots;    // [slots_for(n)] number + 1; 0: empty
  std::uint32_t* buckets;  // [servers * kKeyBuckets + 1]
  std::uint32_t* starts;   // [servers * tables + 1]
};

Scratch divide(void* memory, std::int64_t n, int servers) {
  const auto count = static_cast<std::size_t>(n);
  Scratch s{};
  s.keys = static_cast<std::int64_t*>(memory);
  s.classes = reinterpret_cast<std::uint32_t*>(s.keys + count);
  s.number = s.classes + count;
  s.place = s.number + count;
  s.slots = s.place + count + 1;
  s.buckets = s.slots + slots_for(n);
  s.starts = s.buckets + static_cast<std::size_t>(servers) * kKeyBuckets + 1;
  return s;
}

/// The distinct keys of a table's lists go behind the first `used`; `number` of their positions. Result: how
/// many there are then.
std::uint32_t find_distinct(std::span<const IdList> lists, int servers, std::uint32_t used,
                            std::uint32_t* number, const Scratch& s) {
  std::int64_t n = 0;
  for (const IdList& list : lists) n += std::ssize(list.ids);
  const std::size_t mask = slots_for(n) - 1;
  std::fill_n(s.slots, mask + 1, 0U);
  for (const IdList& list : lists)
    for (const std::int64_t key : list.ids) {
      if (list.padded && key < 0) {
        *number++ = kNone;
        continue;
      }
      const std::uint64_t hash = key_hash(key);
      std::size_t at = hash & mask;
      while (s.slots[at] != 0 && s.keys[s.slots[at] - 1] != key) at = (at + 1) & mask;
      if (s.slots[at] == 0) {
        s.keys[used] = key;
        s.classes[used] =
            static_cast<std::uint32_t>(server_of_hash(hash, servers) * kKeyBuckets + bucket_of_hash(hash));
        s.slots[at] = ++used;
      }
      *number++ = s.slots[at] - 1;
    }
  return used;
}

void write_places(std::int64_t n, const Scratch& s, const KeyOrder& out) {
  for (std::int64_t p = 0; p < n; ++p)
    out.places[p] = s.number[p] == kNone ? 0 : static_cast<std::int32_t>(s.place[s.number[p]]);
}

/// Positions by place, a counting sort.
void sort_entries(std::int64_t n, std::uint32_t used, const Scratch& s, const KeyOrder& out) {
  std::uint32_t* const counted = s.slots;  // no longer used; as long as there are places
  std::fill_n(counted, used + 1, 0U);
  std::int64_t none = n;  // entries from here on
  for (std::int64_t p = 0; p < n; ++p) {
    if (s.number[p] == kNone) {
      out.places[p] = 0;
      out.entries[--none] = -1;
      continue;
    }
    const std::uint32_t place = s.place[s.number[p]];
    out.places[p] = static_cast<std::int32_t>(place);
    ++counted[place + 1];
  }
  for (std::uint32_t k = 0; k < used; ++k) counted[k + 1] += counted[k];
  for (std::int64_t p = 0; p < n; ++p)
    if (s.number[p] != kNone)
      out.entries[counted[out.places[p]]++] = static_cast<std::int64_t>(out.places[p]) << 32 | p;
}

}  // namespace

std::size_t order_scratch_bytes(std::int64_t n, int tables, int servers) {
  const auto count = static_cast<std::size_t>(n), of_servers = static_cast<std::size_t>(servers);
  return count * sizeof(std::int64_t) + (3 * count + 1 + slots_for(n) + of_servers * kKeyBuckets + 1 +
                                         of_servers * static_cast<std::size_t>(tables) + 1) *
                                            sizeof(std::uint32_t);
}

void order_keys(std::span<const IdList> lists, int tables, int servers, const KeyOrder& out, void* scratch) {
  std::int64_t n = 0;
  for (const IdList& list : lists) n += std::ssize(list.ids);
  const Scratch s = divide(scratch, n, servers);
  const auto classes = static_cast<std::size_t>(servers) * kKeyBuckets;
  std::fill_n(out.counts, static_cast<std::int64_t>(servers) * tables, std::int64_t{0});

  // Of each table the distinct keys, and within it their order; `place` is the rank within (server, table).
  std::uint32_t used = 0;
  std::uint32_t* number = s.number;
  for (std::size_t first = 0, last = 0; first < lists.size(); first = last) {
    const int table = lists[first].table;
    std::int64_t ids = 0;
    for (last = first; last < lists.size() && lists[last].table == table; ++last)
      ids += std::ssize(lists[last].ids);
    const std::uint32_t begin = used;
    used = find_distinct(lists.subspan(first, last - first), servers, begin, number, s);
    number += ids;
    std::fill_n(s.buckets, classes + 1, 0U);
    for (std::uint32_t k = begin; k < used; ++k) ++s.buckets[s.classes[k] + 1];
    for (int server = 0; server < servers; ++server) {
      std::uint32_t* const of_server = s.buckets + static_cast<std::size_t>(server) * kKeyBuckets;
      std::uint32_t before = 0;
      for (int bucket = 0; bucket < kKeyBuckets; ++bucket) {
        const std::uint32_t here = of_server[bucket + 1];
        // The count of the next server's first bucket stands behind this one's last.
        of_server[bucket] = before;
        before += here;
      }
      out.counts[static_cast<std::int64_t>(server) * tables + table] = before;
    }
    for (std::uint32_t k = begin; k < used; ++k) s.place[k] = s.buckets[s.classes[k]]++;
  }

  std::uint32_t total = 0;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(servers) * tables; ++i) {
    s.starts[i] = total;
    total += static_cast<std::uint32_t>(out.counts[i]);
  }
  number = s.number;
  std::uint32_t next = 0;
  for (const IdList& list : lists)
    for (std::size_t i = 0; i < list.ids.size(); ++i, ++number) {
      if (*number != next) continue;  // not its key's first position
      const std::uint32_t place =
          s.starts[s.classes[next] / kKeyBuckets * static_cast<std::uint32_t>(tables) +
                   static_cast<std::uint32_t>(list.table)] +
          s.place[next];
      out.keys[place] = s.keys[next];
      s.place[next++] = place;
    }
  std::fill(out.keys + used, out.keys + n, std::int64_t{0});
  if (out.entries != nullptr)
    sort_entries(n, used, s, out);
  else
    write_places(n, s, out);
}

}  // namespace braid::ps
