#include "engine/input/stream/streamed_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <future>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/init.h"

namespace braid {
namespace {

/// Tickets that other threads may still begin after a later one was begun.
constexpr std::uint64_t kLateTickets = 4;
/// Batches that windows are read ahead for, at most.
constexpr std::uint64_t kMostAhead = 4096;
/// Windows that share the part of the budget that one would have, where rows keep their order. One large
/// window after another would be read by one thread, and begun when the one before it is used up.
constexpr double kWindowsInOrder = 8;

struct Window {
  std::shared_ptr<const Table> table;
  std::vector<std::uint32_t> order;
  std::int64_t bytes = 0;
};
using WindowRef = std::shared_ptr<const Window>;

std::int64_t bytes_of(const Table& table) {
  std::int64_t bytes = 0;
  for (const TableColumn& column : table.columns) {
    bytes += static_cast<std::int64_t>(column.data.bytes());
    if (!column.ragged()) continue;
    bytes += static_cast<std::int64_t>(column.offsets.bytes());
    if (column.weights.defined()) bytes += static_cast<std::int64_t>(column.weights.bytes());
  }
  return bytes;
}

/// First rows of some blocks, the same for the same data; null where no column is ragged.
std::shared_ptr<const Table> sample_of(BlockSource& source) {
  constexpr std::size_t kBlocks = 8;
  constexpr std::int64_t kRows = 2048;
  const auto columns = source.columns();
  if (std::ranges::none_of(columns->columns, &TableColumn::ragged)) return nullptr;
  const std::vector<DataBlock>& blocks = source.blocks();
  std::vector<BlockPart> parts;
  const std::size_t stride = std::max<std::size_t>(1, blocks.size() / kBlocks);
  for (std::size_t b = 0; b < blocks.size() && parts.size() < kBlocks; b += stride)
    if (blocks[b].rows > 0) parts.push_back({b, 0, std::min(blocks[b].rows, kRows)});
  return parts.empty() ? columns : source.read(parts);
}

/// Of a row: what is known without one, or of a sample's rows in the mean.
std::int64_t row_bytes_of(const Table& columns, const Table* sample) {
  if (sample && sample->rows > 0) return std::max<std::int64_t>(bytes_of(*sample) / sample->rows, 1);
  std::int64_t bytes = 0;
  for (const TableColumn& column : columns.columns) {
    std::int64_t n = 1;
    for (int axis = 1; axis < column.data.shape().rank(); ++axis) n *= column.data.shape()[axis];
    bytes += n * static_cast<std::int64_t>(dtype_size(column.data.dtype()));
  }
  return std::max<std::int64_t>(bytes, 1);
}

BatchPlanOptions plan_options(const BlockSource& source, const StreamedRowsOptions& options,
                              const BatchOptions& batches, std::int64_t row_bytes) {
  BatchPlanOptions plan;
  plan.global_batch = batches.global_batch;
  plan.shuffle = batches.shuffle;
  plan.carry_remainder = batches.carry_remainder;
  plan.seed = batches.seed;
  plan.shards = batches.shuffle ? options.shards : 1;
  std::int64_t rows = 0, blocks = 0;
  for (const DataBlock& block : source.blocks()) {
    rows += block.rows;
    blocks += block.rows > 0 ? 1 : 0;
  }
  if (blocks == 0) return plan;
  const double per_block = static_cast<double>(rows) / static_cast<double>(blocks);
  // A window that is used, one that is read, and room for the rest of the process.
  const double fits =
      static_cast<double>(options.memory_bytes) / 3 / (per_block * static_cast<double>(row_bytes));
  const double wanted = static_cast<double>(options.window_rows) / per_block;
  const double all =
      batches.shuffle ? std::min(wanted, fits) / plan.shards : std::min(wanted, fits / kWindowsInOrder);
  plan.window_blocks = static_cast<std::int64_t>(std::clamp(all, 1.0, static_cast<double>(blocks)));
  return plan;
}

}  // namespace

struct StreamedRows::Impl {
  /// `own_plan`: null for a BatchPlan.
  Impl(std::shared_ptr<BlockSource> from, std::unique_ptr<WindowPlan> own_plan, const StreamedRowsOptions& o,
       const BatchOptions& batches)
      : source(std::move(from)),
        options(o),
        sample(sample_of(*source)),
        row_bytes(row_bytes_of(*source->columns(), sample.get())),
        held_plan(own_plan ? std::move(own_plan)
                           : std::make_unique<BatchPlan>(source->blocks(),
                                                         plan_options(*source, o, batches, row_bytes))),
        plan(*held_plan),
        part(row_part(batches.global_batch, batches.rank, batches.world)) {}

  struct Entry {
    std::shared_future<WindowRef> ready;
    std::uint64_t last = 0;  // ticket that needs it
    std::int64_t bytes = 0;  // about, until it is there
  };

  WindowRef read(const StreamWindow& which) {
    auto window = std::make_shared<Window>();
    const std::vector<BlockPart> parts = plan.parts_of(which);
    window->table = source->read(parts);
    window->order = plan.order_of(which);
    if (window->table->rows != std::ssize(window->order))
      throw Internal(
          fmt::format("input: a window of {} rows has {}", window->order.size(), window->table->rows));
    window->bytes = bytes_of(*window->table) + std::ssize(window->order) * 4;
    return window;
  }

  /// Makes an entry that the caller fills. REQUIRES: the lock, and that there is none.
  std::promise<WindowRef> begin(const StreamWindow& which) {
    std::promise<WindowRef> promise;
    Entry entry{promise.get_future().share(), plan.tickets_of(which).second,
                plan.rows_of(which) * (row_bytes + 4)};
    held += entry.bytes;
    most = std::max(most, held);
    ++windows_read;
    windows.emplace(which, std::move(entry));
    return promise;
  }

  void fill(const StreamWindow& which, std::promise<WindowRef> promise) {
    WindowRef window;
    try {
      window = read(which);
      promise.set_value(window);
    } catch (...) {
      promise.set_exception(std::current_exception());
      return;
    }
    std::lock_guard lock(mu);
    if (const auto found = windows.find(which); found != windows.end()) {
      held += window->bytes - found->second.bytes;
      found->second.bytes = window->bytes;
      most = std::max(most, held);
    }
  }

  /// REQUIRES: the lock.
  void wake() {
    ++wakes;
    room.notify_all();
  }

  /// Windows that no batch in the making needs. REQUIRES: the lock.
  void drop_passed() {
    const std::uint64_t low = making.empty() ? next : std::min(*making.begin(), next);
    bool dropped = false;
    for (auto it = windows.begin(); it != windows.end();) {
      const bool is_ready = it->second.ready.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
      if (is_ready && it->second.last + kLateTickets < low) {
        held -= it->second.bytes;
        it = windows.erase(it);
        dropped = true;
      } else {
        ++it;
      }
    }
    if (dropped) wake();
  }

  /// The next window that is worth reading, with its entry made; false where there is none now. REQUIRES: the
  /// lock.
  bool begin_ahead(StreamWindow& which, std::promise<WindowRef>& promise) {
    ahead = std::max(ahead, next);
    for (; options.next_asked || ahead < next + kMostAhead; ++ahead) {
      scratch.clear();
      if (options.next_asked) {
        const std::optional<std::uint64_t> asked = options.next_asked(ahead);
        if (!asked) return false;
        ahead = *asked;
      }
      if (!plan.knows(ahead)) return false;
      plan.add_runs(ahead, part, scratch, {});
      for (const WindowRun& run : scratch) {
        if (windows.contains(run.window)) continue;
        if (held > 0 && held + plan.rows_of(run.window) * (row_bytes + 4) >
                            std::min(options.memory_bytes, options.ahead_bytes))
          return false;
        which = run.window;
        promise = begin(which);
        return true;
      }
    }
    return false;
  }

  void read_ahead(const std::stop_token& stop) {
    std::unique_lock lock(mu);
    while (!stop.stop_requested()) {
      StreamWindow which;
      std::promise<WindowRef> promise;
      if (started && begin_ahead(which, promise)) {
        lock.unlock();
        fill(which, std::move(promise));
        lock.lock();
      } else {
        // Whoever begins a batch, or drops a window, wakes it; the time is a guard alone.
        room.wait_for(lock, stop, std::chrono::seconds(1), [&, seen = wakes] { return wakes != seen; });
      }
    }
  }

  WindowRef get(const StreamWindow& which) {
    std::unique_lock lock(mu);
    if (const auto found = windows.find(which); found != windows.end()) {
      const std::shared_future<WindowRef> ready = found->second.ready;
      const bool is_ready = ready.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
      if (!is_ready) ++windows_waited;
      lock.unlock();
      if (!is_ready && ready.wait_for(options.timeout) != std::future_status::ready)
        throw DeadlineExceeded(fmt::format("input: {} were not read within {} s",
                                           source->describe(plan.parts_of(which)[0].block),
                                           std::chrono::duration<double>(options.timeout).count()));
      return ready.get();
    }
    ++windows_waited;
    std::promise<WindowRef> promise = begin(which);
    const std::shared_future<WindowRef> ready = windows.at(which).ready;
    lock.unlock();
    fill(which, std::move(promise));
    return ready.get();
  }

  void start(std::uint64_t ticket) {
    std::lock_guard lock(mu);
    making.insert(ticket);
    // One that goes back begins anew: after a restart, or trials.
    if (!started || ticket + kLateTickets < next) {
      next = ahead = ticket;
      started = true;
    }
    next = std::max(next, ticket + 1);
    drop_passed();
    wake();
  }
  void end(std::uint64_t ticket) {
    std::lock_guard lock(mu);
    making.erase(making.find(ticket));
  }

  // Set once.
  const std::shared_ptr<BlockSource> source;
  const StreamedRowsOptions options;
  const std::shared_ptr<const Table> sample;
  const std::int64_t row_bytes;
  const std::unique_ptr<const WindowPlan> held_plan;
  const WindowPlan& plan;
  const RowPart part;  // of a global batch, this worker's

  mutable std::mutex mu;
  std::condition_variable_any room;
  // Guarded by mu.
  std::map<StreamWindow, Entry> windows;
  std::multiset<std::uint64_t> making;  // tickets
  std::uint64_t next = 0;               // behind the highest ticket that was asked for
  std::uint64_t ahead = 0;              // all windows of tickets before it are held, or were
  bool started = false;
  std::uint64_t wakes = 0;  // reasons for readers to look again
  std::int64_t held = 0, most = 0, windows_read = 0, windows_waited = 0;
  std::vector<WindowRun> scratch;

  std::vector<std::jthread> threads;
};

StreamedRows::StreamedRows(std::shared_ptr<BlockSource> source, const StreamedRowsOptions& options,
                           const BatchOptions& batches)
    : StreamedRows(std::move(source), nullptr, options, batches) {}

StreamedRows::StreamedRows(std::shared_ptr<BlockSource> source, std::unique_ptr<WindowPlan> plan,
                           const StreamedRowsOptions& options, const BatchOptions& batches)
    : impl_(std::make_unique<Impl>(std::move(source), std::move(plan), options, batches)) {
  check_global_batch(batches.global_batch, batches.world);
  for (int i = 0; i < options.threads; ++i)
    impl_->threads.emplace_back(
        [impl = impl_.get()](const std::stop_token& stop) { impl->read_ahead(stop); });
}

StreamedRows::~StreamedRows() {
  for (std::jthread& thread : impl_->threads) thread.request_stop();
  impl_->threads.clear();
}

std::shared_ptr<const Table> StreamedRows::columns() const { return impl_->source->columns(); }
std::shared_ptr<const Table> StreamedRows::sample() const { return impl_->sample; }
std::int64_t StreamedRows::rows() const { return impl_->plan.rows(); }
std::int64_t StreamedRows::batches_per_epoch() const { return impl_->plan.batches_per_epoch(); }

std::string StreamedRows::describe() const {
  if (impl_->plan.rows() == kEndlessRows) return impl_->plan.describe();
  return fmt::format("{} blocks, {}", impl_->source->blocks().size(), impl_->plan.describe());
}

std::string StreamedRows::order_id() const {
  return fmt::format("stream={:016x}", stable_hash(fmt::format("{} {}", impl_->source->fingerprint(),
                                                               impl_->plan.order_text())));
}

std::string StreamedRows::place_of(std::uint64_t ticket) const { return impl_->plan.place_of(ticket); }

std::size_t StreamedRows::pick(std::uint64_t ticket, std::vector<Picked>& picked,
                               const std::stop_token& stop) {
  Impl& self = *impl_;
  thread_local std::vector<WindowRun> runs;
  runs.clear();
  self.plan.add_runs(ticket, self.part, runs, stop);
  self.start(ticket);
  std::size_t count = 0;
  try {
    for (const WindowRun& run : runs) {
      const WindowRef window = self.get(run.window);
      if (count == picked.size()) picked.emplace_back();
      Picked& to = picked[count++];
      to.table = window->table;
      to.rows.assign(window->order.begin() + run.first, window->order.begin() + run.first + run.rows);
    }
  } catch (...) {
    self.end(ticket);
    throw;
  }
  self.end(ticket);
  return count;
}

StreamedRowsStatistics StreamedRows::statistics() const {
  std::lock_guard lock(impl_->mu);
  return {impl_->held, impl_->most, impl_->windows_read, impl_->windows_waited};
}

}  // namespace braid
