// Which orders of shuffled epochs (shuffled_rows.h) a batcher keeps, and makes ahead. Thread rule: pure
// functions of what they are given.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace braid {

/// Epochs whose orders are made ahead: an order takes as long as some hundred batches, and more than an epoch
/// of large batches. So many that all batches of a stage and its threads lie in them.
inline std::uint64_t epochs_ahead(std::int64_t rows, std::int64_t global_batch) {
  constexpr std::int64_t kBatches = 16, kLeast = 2, kMost = 8;
  return static_cast<std::uint64_t>(std::clamp(kBatches * global_batch / rows + 1, kLeast, kMost));
}

/// The order of fewer rows takes less than a thread of its own.
inline constexpr std::int64_t kFewRows = 2048;

/// Of pairs of an epoch and its order; null where it has none.
template <class Orders>
auto* find_order(Orders& orders, std::uint64_t epoch) {
  const auto at = std::ranges::find_if(orders, [&](const auto& known) { return known.first == epoch; });
  return at == orders.end() ? nullptr : &at->second;
}

/// Beside those of as many epochs as are made ahead, and of the one before, whose last batches threads may
/// still make; of more where epochs are short.
template <class Orders, class Future>
void keep_order(Orders& orders, std::uint64_t epoch, Future order, std::uint64_t ahead) {
  if (orders.size() >= (ahead > 2 ? 2 * ahead : ahead) + 2)
    orders.erase(std::ranges::min_element(orders, {}, [](const auto& known) { return known.first; }));
  orders.emplace_back(epoch, std::move(order));
}

}  // namespace braid
