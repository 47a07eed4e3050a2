#include "ps/table/dense_table.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace braid::ps {
namespace {

// Elements of a gradient sum that are made, used and still in the L1 cache.
constexpr std::int64_t kSumElements = 4096;

}  // namespace

DenseTable::DenseTable(std::int64_t elements, const OptimizerSpec& optimizer) : elements_(elements) {
  const auto slots = optimizer_slots(optimizer);
  slots_ = static_cast<int>(slots.size());
  for (std::int64_t begin = 0; begin < elements; begin += kDenseBlockElements) {
    auto& runs = blocks_.emplace_back();
    const auto count = static_cast<std::size_t>(block_size(blocks() - 1));
    for (std::size_t run = 0; run < slots.size() + 1; ++run) {
      auto values = runs.emplace_back(count).writable();
      std::fill(values.begin(), values.end(), run == 0 ? 0.0F : slots[run - 1].initial_value);
    }
  }
}

std::int64_t DenseTable::block_size(std::int64_t block) const {
  return std::min(kDenseBlockElements, elements_ - block_begin(block));
}

void DenseTable::assign(std::int64_t block, const float* values) {
  auto out = blocks_[static_cast<std::size_t>(block)][0].writable();
  std::memcpy(out.data(), values + block_begin(block), out.size_bytes());
}

void DenseTable::assign_slot(std::int64_t block, int slot, const float* values) {
  auto out = blocks_[static_cast<std::size_t>(block)][static_cast<std::size_t>(slot) + 1].writable();
  std::memcpy(out.data(), values + block_begin(block), out.size_bytes());
}

void DenseTable::apply(std::int64_t block, const PreparedUpdate& update,
                       std::span<const float* const> gradients) {
  auto& runs = blocks_[static_cast<std::size_t>(block)];
  auto values = runs[0].writable();
  std::array<float*, 4> slot_data{};
  for (int k = 0; k < slots_; ++k)
    slot_data[static_cast<std::size_t>(k)] = runs[static_cast<std::size_t>(k) + 1].writable().data();

  alignas(64) std::array<float, kSumElements> sum;
  const auto size = static_cast<std::int64_t>(values.size());
  for (std::int64_t begin = 0; begin < size; begin += kSumElements) {
    const std::int64_t count = std::min(kSumElements, size - begin);
    const std::int64_t offset = block_begin(block) + begin;
    const float* gradient = gradients[0] + offset;
    if (gradients.size() > 1) {
      const float* second = gradients[1] + offset;
      for (std::int64_t i = 0; i < count; ++i) sum[static_cast<std::size_t>(i)] = gradient[i] + second[i];
      for (std::size_t g = 2; g < gradients.size(); ++g) {
        const float* next = gradients[g] + offset;
        for (std::int64_t i = 0; i < count; ++i) sum[static_cast<std::size_t>(i)] += next[i];
      }
      gradient = sum.data();
    }
    std::array<float*, 4> slots{};
    for (int k = 0; k < slots_; ++k)
      slots[static_cast<std::size_t>(k)] = slot_data[static_cast<std::size_t>(k)] + begin;
    apply_update(update, values.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(count)),
                 {gradient, static_cast<std::size_t>(count)},
                 {slots.data(), static_cast<std::size_t>(slots_)});
  }
}

FloatRun::ReadHold DenseTable::read(std::int64_t block) const {
  return blocks_[static_cast<std::size_t>(block)][0].read();
}

FloatRun::ReadHold DenseTable::read_slot(std::int64_t block, int slot) const {
  return blocks_[static_cast<std::size_t>(block)][static_cast<std::size_t>(slot) + 1].read();
}

}  // namespace braid::ps
