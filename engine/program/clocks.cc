#include "engine/program/clocks.h"

#include <algorithm>

namespace braid {

Clocks::Clocks(const Program& program) : streams_(static_cast<int>(program.streams.size())) {
  std::vector<Word> length(program.streams.size(), 0);
  std::int32_t async = 0;
  for (const ProgramOp& op : program.ops) {
    Place place{static_cast<Word>(op.stream), length[static_cast<std::size_t>(op.stream)]++};
    if (op.async) {
      place.async_bit = async++;
      place.bit_word = static_cast<Word>(streams_ + place.async_bit / 32);
    }
    places_.push_back(place);
  }
  width_ = static_cast<std::size_t>(streams_ + (async + 31) / 32);
  table_.assign(places_.size() * width_, 0);
}

void Clocks::set(int op, const Row& row) {
  std::copy(row.begin(), row.end(),
            table_.begin() + static_cast<std::ptrdiff_t>(op * static_cast<std::ptrdiff_t>(width_)));
}

void Clocks::join(Row& row, const Word* other) const {
  const auto streams = static_cast<std::size_t>(streams_);
  for (std::size_t i = 0; i < streams; ++i) row[i] = std::max(row[i], other[i]);
  for (std::size_t i = streams; i < width_; ++i) row[i] |= other[i];
}

void Clocks::complete(Row& row, int op) const {
  join(row, of(op));
  const Place& p = places_[static_cast<std::size_t>(op)];
  if (p.async_bit < 0)
    row[p.stream] = std::max(row[p.stream], p.position + 1);
  else
    row[p.bit_word] |= Word{1} << (p.async_bit & 31);
}

void Clocks::pass(Row& row, int op) const {
  const Place& p = places_[static_cast<std::size_t>(op)];
  row[p.stream] = std::max(row[p.stream], p.position + 1);
}

}  // namespace braid
