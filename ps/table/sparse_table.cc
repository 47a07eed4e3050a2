#include "ps/table/sparse_table.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"

namespace braid::ps {
namespace {

// Look-ups are this far ahead of their use: about the misses that a core keeps in flight.
constexpr std::size_t kAhead = 12;

}  // namespace

SparseTable::SparseTable(const SparseTableSpec& spec, const OptimizerSpec& optimizer)
    : spec_(spec),
      dim_(spec.dim),
      store_(static_cast<std::size_t>(spec.dim) * (1 + optimizer_slots(optimizer).size())) {
  for (const SlotSpec& slot : optimizer_slots(optimizer)) slot_initial_.push_back(slot.initial_value);
}

void SparseTable::initial_values(std::int64_t key, float* out) const {
  fill_initial(spec_.init, spec_.key, static_cast<std::uint64_t>(key) * static_cast<std::uint64_t>(dim_),
               {out, static_cast<std::size_t>(dim_)});
}

std::uint32_t SparseTable::find_or_make(std::int64_t key, std::uint64_t hash, bool* made) {
  if (store_.size() == KeyIndex::kNone - 1)
    throw OutOfMemory("[ps] table '" + spec_.name + "': more than 2^32 - 2 rows on one engine thread");
  const std::uint32_t at = index_.find_or_insert(key, hash, static_cast<std::uint32_t>(store_.size()), made);
  if (*made) {
    store_.add(key);
    float* values = store_.row(at);
    initial_values(key, values);
    for (std::size_t k = 0; k < slot_initial_.size(); ++k)
      std::fill_n(values + static_cast<std::ptrdiff_t>(k + 1) * dim_, dim_, slot_initial_[k]);
  }
  return at;
}

std::int64_t SparseTable::find_rows(std::span<const std::int64_t> keys,
                                    std::span<const std::uint32_t> positions, bool insert) {
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
  return inserted;
}

std::int64_t SparseTable::pull(std::span<const std::int64_t> keys, std::span<const std::uint32_t> positions,
                               bool insert, std::uint64_t step, float* out) {
  const auto dim = static_cast<std::size_t>(dim_);
  const std::size_t count = positions.size();
  const std::int64_t inserted = find_rows(keys, positions, insert);
  for (std::size_t i = 0; i < count; ++i) {
    if (i + kAhead < count && found_[i + kAhead] != KeyIndex::kNone) {
      store_.prefetch_row(found_[i + kAhead]);
      if (insert) store_.prefetch_last_use(found_[i + kAhead]);
    }
    float* to = out + positions[i] * dim;
    if (found_[i] == KeyIndex::kNone) {
      initial_values(keys[positions[i]], to);
      continue;
    }
    if (insert) store_.last_use(found_[i]) = step;
    std::memcpy(to, store_.row(found_[i]), dim * sizeof(float));
  }
  return inserted;
}

void SparseTable::collect(const SparseGradient& gradient, std::size_t most_sums) {
  const auto dim = static_cast<std::size_t>(dim_);
  const std::size_t count = gradient.positions.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (i + kAhead < count) store_.prefetch_mark(found_[i + kAhead]);
    const float* from = gradient.rows + gradient.positions[i] * dim;
    RowMark& mark = store_.mark(found_[i]);
    if (mark.update != update_) {
      mark = {update_, static_cast<std::uint32_t>(touched_.size())};
      touched_.push_back({found_[i], from, false});
      continue;
    }
    Touched& touched = touched_[mark.index];
    if (sums_used_ == 0 && sums_.size() < most_sums * dim) sums_ = AlignedFloats(most_sums * dim);
    if (!touched.summed) {
      float* sum = sums_.data() + sums_used_++ * dim;
      std::memcpy(sum, touched.gradient, dim * sizeof(float));
      touched.gradient = sum;
      touched.summed = true;
    }
    float* sum = const_cast<float*>(touched.gradient);
    for (std::size_t c = 0; c < dim; ++c) sum[c] += from[c];
  }
}

std::int64_t SparseTable::apply(const PreparedUpdate& update, std::uint64_t step,
                                std::span<const SparseGradient> gradients) {
  const auto dim = static_cast<std::size_t>(dim_);
  if (++update_ == 0) {
    store_.clear_marks();
    update_ = 1;
  }
  touched_.clear();
  sums_used_ = 0;
  std::size_t keys = 0;
  for (const SparseGradient& gradient : gradients) keys += gradient.positions.size();
  std::int64_t inserted = 0;
  for (const SparseGradient& gradient : gradients) {
    inserted += find_rows(gradient.keys, gradient.positions, true);
    collect(gradient, keys / 2);
  }
  for (std::size_t i = 0; i < touched_.size(); ++i) {
    if (i + kAhead < touched_.size()) {
      store_.prefetch_row(touched_[i + kAhead].row);
      store_.prefetch_last_use(touched_[i + kAhead].row);
    }
    float* values = store_.row(touched_[i].row);
    std::array<float*, 4> slots{};
    for (std::size_t k = 0; k < slot_initial_.size(); ++k) slots[k] = values + (k + 1) * dim;
    apply_update(update, {values, dim}, {touched_[i].gradient, dim}, {slots.data(), slot_initial_.size()});
    store_.last_use(touched_[i].row) = step;
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
    out.keys.push_back(store_.key(at));
    out.last_use.push_back(store_.last_use(at));
    const float* values = store_.row(at);
    out.values.insert(out.values.end(), values, values + dim);
    for (std::size_t k = 0; k < out.slots.size(); ++k)
      out.slots[k].insert(out.slots[k].end(), values + (k + 1) * dim, values + (k + 2) * dim);
  }
}

void SparseTable::restore_row(const SparseRows& source, std::size_t i) {
  const auto dim = static_cast<std::size_t>(dim_);
  bool made = false;
  const std::uint32_t at = find_or_make(source.keys[i], key_hash(source.keys[i]), &made);
  float* values = store_.row(at);
  std::copy_n(source.values.data() + i * dim, dim, values);
  for (std::size_t k = 0; k < slot_initial_.size(); ++k) {
    if (k < source.slots.size() && !source.slots[k].empty())
      std::copy_n(source.slots[k].data() + i * dim, dim, values + (k + 1) * dim);
    else
      std::fill_n(values + (k + 1) * dim, dim, slot_initial_[k]);
  }
  store_.last_use(at) = source.last_use.empty() ? 0 : source.last_use[i];
}

}  // namespace braid::ps
