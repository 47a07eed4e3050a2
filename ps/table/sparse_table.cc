#include "ps/table/sparse_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/error.h"

namespace braid::ps {
namespace {

// Look-ups are this far ahead of their use; from here on it makes no difference.
constexpr std::size_t kAhead = 32;

}  // namespace

SparseTable::SparseTable(const SparseTableSpec& spec, const OptimizerSpec& optimizer, bool writers)
    : spec_(spec),
      dim_(spec.dim),
      slot_width_(static_cast<std::size_t>(slot_width(optimizer, spec.dim))),
      store_(static_cast<std::size_t>(table_row_width(optimizer, spec.dim))),
      knows_writers_(writers) {
  for (const SlotSpec& slot : optimizer_slots(optimizer)) slot_initial_.push_back(slot.initial_value);
}

void SparseTable::initial_values(std::int64_t key, float* out) const {
  fill_initial(spec_.init, spec_.key, static_cast<std::uint64_t>(key) * static_cast<std::uint64_t>(dim_),
               {out, static_cast<std::size_t>(dim_)});
}

void SparseTable::initial_slots(float* row) const {
  for (std::size_t k = 0; k < slot_initial_.size(); ++k)
    std::fill_n(row + static_cast<std::size_t>(dim_) + k * slot_width_, slot_width_, slot_initial_[k]);
}

/// The worker changes the row in the step under way, whose other writers come in the same call.
void SparseTable::write(std::uint32_t row, std::int32_t worker) {
  if (!knows_writers_) return;
  Writer& writer = writers_[row];
  const bool is_second = writer.round == stamp_ && writer.worker != kNobody && writer.worker != worker;
  writer = {stamp_, is_second ? kSeveral : worker};
}

/// A call begins that uses keys in `step`.
void SparseTable::begin(std::uint64_t step) {
  newest_step_ = std::max(newest_step_, step);
  stamp_ = static_cast<std::uint32_t>(step);
}

std::uint32_t SparseTable::make(std::int64_t key, std::uint64_t hash) {
  if (store_.size() == KeyIndex::kNone - 1)
    throw OutOfMemory("[ps] table '" + spec_.name + "': more than 2^32 - 2 rows on one table thread");
  const std::uint32_t row = store_.add(key);
  index_.insert(key, hash, row, stamp_);
  float* values = store_.row(row);
  initial_values(key, values);
  initial_slots(values);
  if (knows_writers_) writers_.resize(store_.size());
  return row;
}

/// The row of a key that is used by the call under way.
std::uint32_t SparseTable::used_row(std::int64_t key) {
  const std::uint64_t hash = key_hash(key);
  const std::uint32_t row = index_.find_and_stamp(key, hash, stamp_);
  return row != KeyIndex::kNone ? row : make(key, hash);
}

/// use(p, find(keys[p])) for each p of `positions`, in order. What is used now was found kAhead positions
/// before, by `find`, which asks for the row's memory; its slot of the index was asked for kAhead before
/// that.
template <class Find, class Use>
void SparseTable::walk(std::span<const std::int64_t> keys, std::span<const std::uint32_t> positions,
                       Find find, Use use) {
  const std::size_t count = positions.size();
  std::array<std::uint32_t, kAhead> found;
  for (std::size_t i = 0; i < std::min(count, kAhead); ++i) index_.prefetch(key_hash(keys[positions[i]]));
  for (std::size_t i = 0; i < count + kAhead; ++i) {
    if (i + kAhead < count) index_.prefetch(key_hash(keys[positions[i + kAhead]]));
    if (i >= kAhead) use(positions[i - kAhead], found[i % kAhead]);
    if (i < count) found[i % kAhead] = find(keys[positions[i]]);
  }
}

std::int64_t SparseTable::pull(std::span<const std::int64_t> keys, std::span<const std::uint32_t> positions,
                               bool insert, std::uint64_t step, float* out, bool slots) {
  const std::size_t width = floats(slots);
  const std::int64_t rows_before = rows();
  if (insert) {
    begin(step);
    walk(
        keys, positions,
        [&](std::int64_t key) {
          const std::uint32_t row = used_row(key);
          store_.prefetch_row(row, width);
          return row;
        },
        [&](std::uint32_t position, std::uint32_t row) {
          std::memcpy(out + position * width, store_.row(row), width * sizeof(float));
        });
  } else {
    walk(
        keys, positions,
        [&](std::int64_t key) {
          const std::uint32_t row = index_.find(key, key_hash(key));
          if (row != KeyIndex::kNone) store_.prefetch_row(row, width);
          return row;
        },
        [&](std::uint32_t position, std::uint32_t row) {
          float* to = out + position * width;
          if (row != KeyIndex::kNone) {
            std::memcpy(to, store_.row(row), width * sizeof(float));
            return;
          }
          initial_values(keys[position], to);
          if (slots) initial_slots(to);
        });
  }
  return rows() - rows_before;
}

std::int64_t SparseTable::repair(std::span<const std::int64_t> keys, std::span<const std::uint32_t> positions,
                                 std::uint64_t since, std::uint64_t step, std::uint32_t first,
                                 std::vector<std::uint32_t>& where, std::vector<float>& values, bool slots) {
  const std::size_t width = floats(slots);
  const std::int64_t rows_before = rows();
  begin(step);
  walk(
      keys, positions,
      [&](std::int64_t key) {
        const std::uint64_t hash = key_hash(key);
        std::uint32_t before = 0;
        const std::uint32_t row = index_.find_and_stamp(key, hash, stamp_, &before);
        if (row == KeyIndex::kNone) {
          make(key, hash);
          return KeyIndex::kNone;
        }
        if (static_cast<std::int32_t>(before - static_cast<std::uint32_t>(since)) < 0) return KeyIndex::kNone;
        store_.prefetch_row(row, width);
        return row;
      },
      [&](std::uint32_t position, std::uint32_t row) {
        if (row == KeyIndex::kNone) return;
        where.push_back(first + position);
        values.insert(values.end(), store_.row(row), store_.row(row) + width);
      });
  return rows() - rows_before;
}

std::int64_t SparseTable::changed(std::span<const std::int64_t> keys,
                                  std::span<const std::uint32_t> positions,
                                  std::span<const std::uint32_t> known, std::int32_t worker,
                                  std::uint64_t step, std::uint32_t first, std::vector<std::uint32_t>& where,
                                  std::vector<float>& values) {
  const std::size_t width = row_floats();
  const std::int64_t rows_before = rows();
  begin(step);
  walk(
      keys, positions,
      [&](std::int64_t key) {
        const std::uint32_t row = used_row(key);
        __builtin_prefetch(&writers_[row]);
        return row;
      },
      [&](std::uint32_t position, std::uint32_t row) {
        const Writer& writer = writers_[row];
        if (known[position] != 0 && writer.worker == worker && writer.round == known[position] - 1) return;
        where.push_back(first + position);
        values.insert(values.end(), store_.row(row), store_.row(row) + width);
      });
  return rows() - rows_before;
}

void SparseTable::collect(std::uint32_t row, const float* gradient, std::size_t most_sums) {
  const auto dim = static_cast<std::size_t>(dim_);
  std::uint32_t& mark = store_.mark(row);
  if (mark >= touched_.size() || touched_[mark].row != row) {
    mark = static_cast<std::uint32_t>(touched_.size());
    touched_.push_back({row, gradient, false});
    return;
  }
  Touched& touched = touched_[mark];
  if (sums_used_ == 0 && sums_.size() < most_sums * dim) sums_ = AlignedFloats(most_sums * dim);
  if (!touched.summed) {
    float* sum = sums_.data() + sums_used_++ * dim;
    std::memcpy(sum, touched.gradient, dim * sizeof(float));
    touched.gradient = sum;
    touched.summed = true;
  }
  float* sum = const_cast<float*>(touched.gradient);
  for (std::size_t c = 0; c < dim; ++c) sum[c] += gradient[c];
}

void SparseTable::update_row(const PreparedUpdate& update, std::uint32_t row, const float* gradient) {
  update_table_row(update, store_.row(row), {gradient, static_cast<std::size_t>(dim_)});
}

void SparseTable::apply_sums(const PreparedUpdate& update, std::span<const SparseGradient> gradients) {
  const auto dim = static_cast<std::size_t>(dim_);
  touched_.clear();
  sums_used_ = 0;
  std::size_t keys = 0;
  for (const SparseGradient& gradient : gradients) keys += gradient.positions.size();
  for (const SparseGradient& gradient : gradients)
    walk(
        gradient.keys, gradient.positions,
        [&](std::int64_t key) {
          const std::uint32_t row = used_row(key);
          store_.prefetch_mark(row);
          return row;
        },
        [&](std::uint32_t position, std::uint32_t row) {
          write(row, gradient.worker);
          collect(row, gradient.rows + position * dim, keys / 2);
        });
  for (std::size_t i = 0; i < touched_.size(); ++i) {
    if (i + kAhead < touched_.size()) store_.prefetch_row(touched_[i + kAhead].row, row_floats());
    update_row(update, touched_[i].row, touched_[i].gradient);
  }
}

std::int64_t SparseTable::apply(const PreparedUpdate& update, std::uint64_t step,
                                std::span<const SparseGradient> gradients) {
  const std::int64_t rows_before = rows();
  begin(step);
  if (gradients.size() > 1) {
    apply_sums(update, gradients);
  } else {
    const SparseGradient& only = gradients[0];
    walk(
        only.keys, only.positions,
        [&](std::int64_t key) {
          const std::uint32_t row = used_row(key);
          store_.prefetch_row(row, row_floats());
          return row;
        },
        [&](std::uint32_t position, std::uint32_t row) {
          write(row, only.worker);
          update_row(update, row, only.rows + position * static_cast<std::size_t>(dim_));
        });
  }
  return rows() - rows_before;
}

std::int64_t SparseTable::write(std::span<const std::int64_t> keys, std::span<const std::uint32_t> positions,
                                const float* rows) {
  const std::size_t width = row_floats();
  const std::int64_t rows_before = this->rows();
  for (const std::uint32_t position : positions) {
    const float* const from = rows + position * (width + 1);
    begin(std::bit_cast<std::uint32_t>(from[width]));
    std::memcpy(store_.row(used_row(keys[position])), from, width * sizeof(float));
  }
  return this->rows() - rows_before;
}

void SparseTable::append_to(SparseRows& out) const {
  const auto dim = static_cast<std::size_t>(dim_);
  const std::size_t total = out.keys.size() + index_.size();
  out.slots.resize(slot_initial_.size());
  out.keys.reserve(total);
  out.last_use.reserve(total);
  out.values.reserve(total * dim);
  for (auto& slot : out.slots) slot.reserve(total * slot_width_);
  for (std::uint32_t at = 0; at < index_.size(); ++at) {
    if (at + kAhead < index_.size()) index_.prefetch(key_hash(store_.key(at + kAhead)));
    const std::int64_t key = store_.key(at);
    out.keys.push_back(key);
    const auto behind = static_cast<std::uint32_t>(newest_step_) - index_.stamp(key, key_hash(key));
    out.last_use.push_back(newest_step_ - behind);
    const float* values = store_.row(at);
    out.values.insert(out.values.end(), values, values + dim);
    for (std::size_t k = 0; k < out.slots.size(); ++k) {
      const float* const slot = values + dim + k * slot_width_;
      out.slots[k].insert(out.slots[k].end(), slot, slot + slot_width_);
    }
  }
}

void SparseTable::restore_row(const SparseRows& source, std::size_t i) {
  const auto dim = static_cast<std::size_t>(dim_);
  begin(source.last_use.empty() ? 0 : source.last_use[i]);
  const std::uint32_t at = used_row(source.keys[i]);
  float* values = store_.row(at);
  std::copy_n(source.values.data() + i * dim, dim, values);
  for (std::size_t k = 0; k < slot_initial_.size(); ++k) {
    float* const slot = values + dim + k * slot_width_;
    if (k < source.slots.size() && !source.slots[k].empty())
      std::copy_n(source.slots[k].data() + i * slot_width_, slot_width_, slot);
    else
      std::fill_n(slot, slot_width_, slot_initial_[k]);
  }
}

}  // namespace braid::ps
