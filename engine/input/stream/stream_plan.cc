#include "engine/input/stream/stream_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "base/error.h"
#include "base/init.h"

namespace braid {
namespace {

constexpr std::size_t kKeptEpochs = 4;

/// Fisher-Yates with counter-based bits.
template <class T>
void shuffle_by_counter(std::vector<T>& order, RngKey key) {
  std::vector<std::uint32_t> bits(order.size() * 2);
  fill_bits(key, 0, bits);
  for (std::size_t i = order.size(); i > 1; --i) {
    const std::uint64_t r = (std::uint64_t{bits[2 * i - 2]} << 32) | bits[2 * i - 1];
    std::swap(order[i - 1], order[r % i]);
  }
}

}  // namespace

/// The blocks of an epoch in their order.
struct BatchPlan::Epoch {
  std::uint64_t number = 0;
  std::vector<std::uint32_t> order;  // places in blocks_
  std::vector<std::int64_t> begins;  // of each in the sequence, and the end of the last
  std::int64_t head = 0;             // rows before the first whole batch
  std::int64_t steps = 0;            // whole batches
};

BatchPlan::BatchPlan(const std::vector<DataBlock>& blocks, const BatchPlanOptions& options)
    : options_(options) {
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    if (blocks[b].rows == 0) continue;
    blocks_.push_back(b);
    block_rows_.push_back(blocks[b].rows);
    rows_ += blocks[b].rows;
  }
  if (rows_ == 0) throw InvalidArgument("input: the data set is empty");
  if (blocks_.size() > std::numeric_limits<std::uint32_t>::max())
    throw InvalidArgument("input: " + std::to_string(blocks_.size()) + " blocks are more than 2^32");
  if (rows_ < options_.global_batch && !options_.carry_remainder)
    throw InvalidArgument("input: " + std::to_string(rows_) + " rows are fewer than one global batch of " +
                          std::to_string(options_.global_batch));
  if (!options_.shuffle) options_.shards = 1;
  options_.shards = static_cast<int>(std::min<std::int64_t>(options_.shards, options_.global_batch));
}

std::shared_ptr<const BatchPlan::Epoch> BatchPlan::make_epoch(std::uint64_t number) const {
  auto epoch = std::make_shared<Epoch>();
  epoch->number = number;
  epoch->order.resize(blocks_.size());
  std::iota(epoch->order.begin(), epoch->order.end(), 0U);
  if (options_.shuffle) shuffle_by_counter(epoch->order, make_rng_key(options_.seed, "blocks", number));
  std::int64_t at = 0;
  for (const std::uint32_t place : epoch->order) {
    epoch->begins.push_back(at);
    at += block_rows_[place];
  }
  epoch->begins.push_back(at);
  if (options_.carry_remainder) {
    const auto batch = static_cast<std::uint64_t>(options_.global_batch);
    const std::uint64_t over = number * static_cast<std::uint64_t>(rows_) % batch;
    epoch->head = std::min(rows_, static_cast<std::int64_t>((batch - over) % batch));
  }
  epoch->steps = (rows_ - epoch->head) / options_.global_batch;
  return epoch;
}

std::shared_ptr<const BatchPlan::Epoch> BatchPlan::epoch_of(std::uint64_t number) const {
  {
    std::lock_guard lock(mu_);
    for (const auto& epoch : epochs_)
      if (epoch->number == number) return epoch;
  }
  auto made = make_epoch(number);
  std::lock_guard lock(mu_);
  if (epochs_.size() >= kKeptEpochs) epochs_.erase(epochs_.begin());
  epochs_.push_back(made);
  return made;
}

BatchPlan::Span BatchPlan::lane_of(const Epoch& epoch, std::int64_t lane) const {
  if (lane == head_lane()) return {0, epoch.head};
  const std::int64_t whole = epoch.steps * options_.global_batch;
  if (lane == tail_lane()) return {epoch.head + whole, rows_};
  const RowPart part = row_part(options_.global_batch, static_cast<int>(lane), options_.shards);
  const std::int64_t begin = epoch.head + epoch.steps * part.first;
  return {begin, begin + epoch.steps * part.rows};
}

namespace {

/// The place in `begins` of the block that has the row at `position`.
std::int64_t block_at(const std::vector<std::int64_t>& begins, std::int64_t position) {
  return std::upper_bound(begins.begin(), begins.end(), position) - begins.begin() - 1;
}

}  // namespace

BatchPlan::Span BatchPlan::span_of(const Epoch& epoch, const StreamWindow& window) const {
  const Span lane = lane_of(epoch, window.lane);
  const std::int64_t blocks = std::ssize(epoch.order);
  const std::int64_t first = block_at(epoch.begins, lane.begin) + window.index * options_.window_blocks;
  const std::int64_t last = std::min(blocks, first + options_.window_blocks);
  return {std::max(lane.begin, epoch.begins[static_cast<std::size_t>(std::min(first, blocks))]),
          std::min(lane.end, epoch.begins[static_cast<std::size_t>(last)])};
}

void BatchPlan::add_span(const Epoch& epoch, std::int64_t lane, Span span,
                         std::vector<WindowRun>& runs) const {
  const std::int64_t first_block = block_at(epoch.begins, lane_of(epoch, lane).begin);
  for (std::int64_t at = span.begin; at < span.end;) {
    const StreamWindow window{epoch.number, lane,
                              (block_at(epoch.begins, at) - first_block) / options_.window_blocks};
    const Span its = span_of(epoch, window);
    const std::int64_t end = std::min(its.end, span.end);
    runs.push_back({window, at - its.begin, end - at});
    at = end;
  }
}

void BatchPlan::add_step(const Epoch& epoch, std::int64_t step, RowPart part,
                         std::vector<WindowRun>& runs) const {
  for (int lane = 0; lane < options_.shards; ++lane) {
    const RowPart share = row_part(options_.global_batch, lane, options_.shards);
    const std::int64_t from = std::max(share.first, part.first),
                       to = std::min(share.first + share.rows, part.first + part.rows);
    if (from >= to) continue;
    const std::int64_t begin = lane_of(epoch, lane).begin + step * share.rows - share.first;
    add_span(epoch, lane, {begin + from, begin + to}, runs);
  }
}

void BatchPlan::add_runs(std::uint64_t ticket, RowPart part, std::vector<WindowRun>& runs,
                         const std::stop_token&) const {
  const std::int64_t batch = options_.global_batch, end = part.first + part.rows;
  if (!options_.carry_remainder) {
    const auto per_epoch = static_cast<std::uint64_t>(batches_per_epoch());
    const auto epoch = epoch_of(ticket / per_epoch);
    const auto step = static_cast<std::int64_t>(ticket % per_epoch);
    add_step(*epoch, step, part, runs);
    return;
  }
  const auto rows = static_cast<std::uint64_t>(rows_);
  const std::uint64_t first = ticket * static_cast<std::uint64_t>(batch);
  for (std::int64_t at = 0; at < batch;) {  // of the batch's rows
    const std::uint64_t position = first + static_cast<std::uint64_t>(at);
    const auto epoch = epoch_of(position / rows);
    const auto in_epoch = static_cast<std::int64_t>(position % rows);
    const std::int64_t whole = epoch->head + epoch->steps * batch;
    if (in_epoch >= epoch->head && in_epoch < whole) {
      const std::int64_t step = (in_epoch - epoch->head) / batch;
      add_step(*epoch, step, part, runs);
      return;
    }
    const bool head = in_epoch < epoch->head;
    const std::int64_t here = std::min(batch - at, (head ? epoch->head : rows_) - in_epoch);
    const std::int64_t from = std::max(at, part.first), to = std::min(at + here, end);
    if (from < to)
      add_span(*epoch, head ? head_lane() : tail_lane(), {in_epoch + from - at, in_epoch + to - at}, runs);
    at += here;
  }
}

std::vector<BlockPart> BatchPlan::parts_of(const StreamWindow& window) const {
  const auto epoch = epoch_of(window.epoch);
  const Span span = span_of(*epoch, window);
  std::vector<BlockPart> parts;
  auto block = static_cast<std::size_t>(block_at(epoch->begins, span.begin));
  for (std::int64_t at = span.begin; at < span.end; ++block) {
    const std::int64_t end = std::min(span.end, epoch->begins[block + 1]);
    parts.push_back({blocks_[epoch->order[block]], at - epoch->begins[block], end - at});
    at = end;
  }
  return parts;
}

std::int64_t BatchPlan::rows_of(const StreamWindow& window) const {
  const Span span = span_of(*epoch_of(window.epoch), window);
  return span.end - span.begin;
}

std::vector<std::uint32_t> BatchPlan::order_of(const StreamWindow& window) const {
  return window_order(
      rows_of(window), options_.shuffle,
      make_rng_key(options_.seed,
                   "window/" + std::to_string(window.lane) + "/" + std::to_string(window.index),
                   window.epoch));
}

std::vector<std::uint32_t> window_order(std::int64_t rows, bool shuffle, RngKey key) {
  if (rows > std::numeric_limits<std::uint32_t>::max())
    throw InvalidArgument("input: a window of " + std::to_string(rows) + " rows is more than 2^32");
  std::vector<std::uint32_t> order(static_cast<std::size_t>(rows));
  std::iota(order.begin(), order.end(), 0U);
  if (shuffle) shuffle_by_counter(order, key);
  return order;
}

std::string BatchPlan::describe() const {
  return fmt::format("{} virtual shard{}, windows of {} block{}", options_.shards,
                     options_.shards == 1 ? "" : "s", options_.window_blocks,
                     options_.window_blocks == 1 ? "" : "s");
}

std::string BatchPlan::order_text() const {
  return fmt::format("{} {} {}", options_.shards, options_.window_blocks, options_.shuffle);
}

std::pair<std::uint64_t, std::uint64_t> BatchPlan::tickets_of(const StreamWindow& window) const {
  const auto epoch = epoch_of(window.epoch);
  const Span span = span_of(*epoch, window), lane = lane_of(*epoch, window.lane);
  const auto batch = static_cast<std::uint64_t>(options_.global_batch);
  if (window.lane >= head_lane()) {
    const std::uint64_t base = window.epoch * static_cast<std::uint64_t>(rows_);
    return {(base + static_cast<std::uint64_t>(span.begin)) / batch,
            (base + static_cast<std::uint64_t>(std::max(span.begin, span.end - 1))) / batch};
  }
  const std::uint64_t first =
      options_.carry_remainder
          ? (window.epoch * static_cast<std::uint64_t>(rows_) + static_cast<std::uint64_t>(epoch->head)) /
                batch
          : window.epoch * static_cast<std::uint64_t>(batches_per_epoch());
  const std::int64_t share =
      row_part(options_.global_batch, static_cast<int>(window.lane), options_.shards).rows;
  return {first + static_cast<std::uint64_t>((span.begin - lane.begin) / share),
          first + static_cast<std::uint64_t>((std::max(span.begin, span.end - 1) - lane.begin) / share)};
}

}  // namespace braid
