#include "ps/table/sparse_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/error.h"

namespace braid::ps {
namespace {

constexpr std::size_t kSlabFloats = std::size_t{1} << 16;
// Look-ups of a batch are this far ahead of their use, about the misses that a core keeps in flight.
constexpr std::size_t kAhead = 8;

}  // namespace

SparseTable::SparseTable(const SparseTableSpec& spec, const OptimizerSpec& optimizer)
    : spec_(spec), dim_(spec.dim) {
  for (const SlotSpec& slot : optimizer_slots(optimizer)) slot_initial_.push_back(slot.initial_value);
  stride_ = (static_cast<std::size_t>(dim_) * (1 + slot_initial_.size()) + 3) / 4 * 4;
  slab_bits_ = static_cast<unsigned>(std::bit_width(std::max<std::size_t>(kSlabFloats / stride_, 1)) - 1);
  slab_mask_ = (1U << slab_bits_) - 1;
}

void SparseTable::initial_values(std::int64_t key, float* out) const {
  fill_initial(spec_.init, spec_.key, static_cast<std::uint64_t>(key) * static_cast<std::uint64_t>(dim_),
               {out, static_cast<std::size_t>(dim_)});
}

std::uint32_t SparseTable::find_or_make(std::int64_t key, std::uint64_t hash, bool* made) {
  const auto next = static_cast<std::uint32_t>(index_.size());
  if (next == KeyIndex::kNone - 1) throw OutOfMemory("[ps] table '" + spec_.name + "': more than 2^32 rows");
  if ((next & slab_mask_) == 0 && next >> slab_bits_ == slabs_.size()) {
    const std::size_t rows = std::size_t{1} << slab_bits_;
    slabs_.push_back({AlignedFloats(rows * stride_), std::make_unique_for_overwrite<Meta[]>(rows)});
  }
  const std::uint32_t at = index_.find_or_insert(key, hash, next, made);
  if (*made) {
    float* values = row(at);
    initial_values(key, values);
    for (std::size_t k = 0; k < slot_initial_.size(); ++k)
      std::fill_n(values + static_cast<std::ptrdiff_t>(k + 1) * dim_, dim_, slot_initial_[k]);
    meta(at) = {key, 0, 0, 0};
  }
  return at;
}

std::int64_t SparseTable::pull(std::span<const std::int64_t> keys, std::span<const std::uint32_t> positions,
                               bool insert, std::uint64_t step, float* out) {
  const auto dim = static_cast<std::size_t>(dim_);
  const std::size_t count = positions.size();
  std::int64_t inserted = 0;
  found_.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) index_.prefetch(key_hash(keys[positions[i + kAhead]]));
    const std::int64_t key = keys[positions[i]];
    bool made = false;
    found_[i] = insert ? find_or_make(key, key_hash(key), &made) : index_.find(key, key_hash(key));
    inserted += made ? 1 : 0;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (i + kAhead < count && found_[i + kAhead] != KeyIndex::kNone) {
      __builtin_prefetch(row(found_[i + kAhead]));
      __builtin_prefetch(&meta(found_[i + kAhead]), 1);
    }
    float* to = out + positions[i] * dim;
    if (found_[i] == KeyIndex::kNone) {
      initial_values(keys[positions[i]], to);
      continue;
    }
    if (insert) meta(found_[i]).last_use = step;
    std::memcpy(to, row(found_[i]), dim * sizeof(float));
  }
  return inserted;
}

std::int64_t SparseTable::apply(const PreparedUpdate& update, std::uint64_t step,
                                std::span<const SparseGradient> gradients) {
  const auto dim = static_cast<std::size_t>(dim_);
  std::int64_t inserted = 0;
  ++mark_;
  found_.clear();
  sums_.clear();
  for (const SparseGradient& gradient : gradients) {
    const std::size_t count = gradient.positions.size();
    for (std::size_t i = 0; i < count; ++i) {
      if (i + kAhead < count) index_.prefetch(key_hash(gradient.keys[gradient.positions[i + kAhead]]));
      const std::uint32_t position = gradient.positions[i];
      const float* from = gradient.rows + position * dim;
      const std::int64_t key = gradient.keys[position];
      bool made = false;
      const std::uint32_t at = find_or_make(key, key_hash(key), &made);
      inserted += made ? 1 : 0;
      Meta& m = meta(at);
      if (m.mark != mark_) {
        m.mark = mark_;
        m.sum_row = static_cast<std::uint32_t>(found_.size());
        found_.push_back(at);
        sums_.insert(sums_.end(), from, from + dim);
      } else {
        float* sum = sums_.data() + m.sum_row * dim;
        for (std::size_t c = 0; c < dim; ++c) sum[c] += from[c];
      }
    }
  }
  for (std::size_t i = 0; i < found_.size(); ++i) {
    if (i + kAhead < found_.size()) __builtin_prefetch(row(found_[i + kAhead]), 1);
    float* values = row(found_[i]);
    std::array<float*, 4> slots{};
    for (std::size_t k = 0; k < slot_initial_.size(); ++k) slots[k] = values + (k + 1) * dim;
    apply_update(update, {values, dim}, {sums_.data() + i * dim, dim}, {slots.data(), slot_initial_.size()});
    meta(found_[i]).last_use = step;
  }
  return inserted;
}

void SparseTable::append_to(SparseRows& out) const {
  const auto dim = static_cast<std::size_t>(dim_);
  const std::size_t total = out.keys.size() + index_.size();
  out.slots.resize(slot_initial_.size());
  out.keys.reserve(total);
  out.last_use.reserve(total);
  out.values.reserve(total * dim);
  for (auto& slot : out.slots) slot.reserve(total * dim);
  for (std::uint32_t at = 0; at < index_.size(); ++at) {
    out.keys.push_back(meta(at).key);
    out.last_use.push_back(meta(at).last_use);
    const float* values = row(at);
    out.values.insert(out.values.end(), values, values + dim);
    for (std::size_t k = 0; k < out.slots.size(); ++k)
      out.slots[k].insert(out.slots[k].end(), values + (k + 1) * dim, values + (k + 2) * dim);
  }
}

void SparseTable::restore_row(const SparseRows& source, std::size_t i) {
  const auto dim = static_cast<std::size_t>(dim_);
  bool made = false;
  const std::uint32_t at = find_or_make(source.keys[i], key_hash(source.keys[i]), &made);
  float* values = row(at);
  std::copy_n(source.values.data() + i * dim, dim, values);
  for (std::size_t k = 0; k < slot_initial_.size(); ++k) {
    if (k < source.slots.size() && !source.slots[k].empty())
      std::copy_n(source.slots[k].data() + i * dim, dim, values + (k + 1) * dim);
    else
      std::fill_n(values + (k + 1) * dim, dim, slot_initial_[k]);
  }
  meta(at).last_use = source.last_use.empty() ? 0 : source.last_use[i];
}

}  // namespace braid::ps
