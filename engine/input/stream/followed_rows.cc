#include "engine/input/stream/followed_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/init.h"

namespace braid {
namespace {

constexpr std::size_t kOpenFiles = 64;
constexpr int kFileShift = 32;
constexpr std::size_t kBlockMask = (std::size_t{1} << kFileShift) - 1;

/// Of the entries (number, value), the one of a number; null where there is none.
template <class Entries>
auto find_entry(const Entries& entries, std::size_t number) {
  const auto found = std::ranges::find(entries, number, [](const auto& entry) { return entry.first; });
  return found == entries.end() ? nullptr : found->second;
}

template <class Entries, class Value>
void keep_entry(Entries& entries, std::size_t number, Value value) {
  if (entries.size() >= kOpenFiles) entries.erase(entries.begin());
  entries.emplace_back(number, std::move(value));
}

}  // namespace

FollowedFiles::FollowedFiles(std::shared_ptr<FileFeed> feed, OpenBlocks open, int lanes)
    : feed_(std::move(feed)), open_(std::move(open)), lanes_(static_cast<std::size_t>(lanes)) {
  const std::size_t known = feed_->known();
  {
    std::lock_guard growing(growing_);
    const auto no_rows = [](const Lane& lane) { return lane.rows == 0; };
    while (files_.size() < known || std::ranges::all_of(lanes_, no_rows))
      if (!take_next({})) throw InvalidArgument("input: no file with rows has come, and none will");
  }
  std::size_t n = files_.size() - 1;
  while (files_[n].taken.rows == 0) --n;
  one_ = source_of(n);
}

FollowedFiles::~FollowedFiles() = default;

std::shared_ptr<BlockSource> FollowedFiles::open(const TakenFile& file) const {
  std::shared_ptr<BlockSource> source = open_(file.name);
  if (file.rows >= 0 && (rows_of(*source) != file.rows || source->fingerprint() != file.fingerprint))
    throw DataLoss(fmt::format("'{}': it was changed since it was taken: it had {} rows, and has {}",
                               file.name, file.rows, rows_of(*source)));
  return source;
}

bool FollowedFiles::has(std::int64_t batches, std::int64_t batch_rows) const {
  std::lock_guard lock(mu_);
  for (int lane = 0; lane < lanes(); ++lane)
    if (lanes_[static_cast<std::size_t>(lane)].rows < batches * row_part(batch_rows, lane, lanes()).rows)
      return false;
  return true;
}

bool FollowedFiles::reach(std::int64_t batches, std::int64_t batch_rows, const std::stop_token& stop) {
  if (has(batches, batch_rows)) return true;
  std::lock_guard growing(growing_);
  if (failed_) throw_error(*failed_);
  try {
    while (!has(batches, batch_rows))
      if (!take_next(stop)) return false;
  } catch (const Cancelled&) {
    throw;
  } catch (const Error&) {
    failed_ = capture_current_exception();
    throw;
  }
  return true;
}

bool FollowedFiles::take_next(const std::stop_token& stop) {
  const std::size_t n = files_.size();  // only who holds growing_ changes it
  std::optional<TakenFile> taken = feed_->get(n, stop);
  if (!taken) return false;
  std::shared_ptr<BlockSource> source;
  if (taken->rows < 0) {
    source = open(*taken);
    taken->rows = rows_of(*source);
    taken->fingerprint = source->fingerprint();
  }
  feed_->opened(n, *taken);
  std::lock_guard lock(mu_);
  const auto lane = std::ranges::min_element(lanes_, {}, &Lane::rows);
  files_.push_back({*taken, static_cast<int>(lane - lanes_.begin()), lane->rows});
  lane->files.push_back(n);
  lane->rows += taken->rows;
  if (source) keep_entry(open_files_, n, std::move(source));
  return true;
}

std::pair<std::size_t, FollowedFiles::File> FollowedFiles::file_at(int lane, std::int64_t row) const {
  std::lock_guard lock(mu_);
  const std::vector<std::size_t>& of_lane = lanes_[static_cast<std::size_t>(lane)].files;
  const auto behind =
      std::ranges::upper_bound(of_lane, row, {}, [this](std::size_t n) { return files_[n].begin; });
  const std::size_t n = behind[-1];
  return {n, files_[n]};
}

FollowedFiles::File FollowedFiles::file(std::size_t n) const {
  std::lock_guard lock(mu_);
  return files_.at(n);
}

std::shared_ptr<BlockSource> FollowedFiles::source_of(std::size_t n) const {
  TakenFile taken;
  {
    std::lock_guard lock(mu_);
    if (auto found = find_entry(open_files_, n)) return found;
    taken = files_.at(n).taken;
  }
  std::shared_ptr<BlockSource> source = open(taken);
  std::lock_guard lock(mu_);
  if (!find_entry(open_files_, n)) keep_entry(open_files_, n, source);
  return source;
}

/// All of one file: windows have no rows of two.
std::shared_ptr<const Table> FollowedFiles::read(std::span<const BlockPart> parts) {
  std::vector<BlockPart> own(parts.begin(), parts.end());
  for (BlockPart& part : own) part.block &= kBlockMask;
  return source_of_block(parts.front().block)->read(own);
}

std::shared_ptr<BlockSource> FollowedFiles::source_of_block(std::size_t block) const {
  const std::size_t file = block >> kFileShift;
  return file == 0 ? one_ : source_of(file - 1);
}

std::string FollowedFiles::describe(std::size_t block) const {
  return source_of_block(block)->describe(block & kBlockMask);
}

FollowPlan::FollowPlan(std::shared_ptr<FollowedFiles> files, const FollowedOptions& options)
    : files_(std::move(files)), options_(options) {}

bool FollowPlan::knows(std::uint64_t ticket) const {
  return files_->has(static_cast<std::int64_t>(ticket) + 1, options_.global_batch);
}

std::shared_ptr<const FollowPlan::Windows> FollowPlan::windows_of(std::size_t file) const {
  {
    std::lock_guard lock(mu_);
    if (auto found = find_entry(windows_, file)) return found;
  }
  auto made = std::make_shared<Windows>();
  const std::shared_ptr<BlockSource> source = files_->source_of(file);
  const std::vector<DataBlock>& blocks = source->blocks();
  std::int64_t at = 0, begin = 0;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    if (made->rows.empty() || (at > begin && at + blocks[b].rows - begin > options_.window_rows)) {
      made->rows.push_back(begin = at);
      made->blocks.push_back(b);
    }
    at += blocks[b].rows;
  }
  made->rows.push_back(at);
  made->blocks.push_back(blocks.size());
  std::lock_guard lock(mu_);
  if (!find_entry(windows_, file)) keep_entry(windows_, file, std::shared_ptr<const Windows>(made));
  return made;
}

void FollowPlan::add_runs(std::uint64_t ticket, RowPart part, std::vector<WindowRun>& runs,
                          const std::stop_token& stop) const {
  if (!files_->reach(static_cast<std::int64_t>(ticket) + 1, options_.global_batch, stop))
    throw OutOfRange(fmt::format("input: the files have no rows for batch {}", ticket));
  for (int lane = 0; lane < files_->lanes(); ++lane) {
    const RowPart share = row_part(options_.global_batch, lane, files_->lanes());
    const std::int64_t from = std::max(share.first, part.first),
                       to = std::min(share.first + share.rows, part.first + part.rows);
    const std::int64_t begin = static_cast<std::int64_t>(ticket) * share.rows - share.first;
    for (std::int64_t at = begin + from; at < begin + to;) at += add_run(lane, at, begin + to, runs);
  }
}

/// What one window has of rows [at, end) of a lane; how many these are.
std::int64_t FollowPlan::add_run(int lane, std::int64_t at, std::int64_t end,
                                 std::vector<WindowRun>& runs) const {
  const auto [number, file] = files_->file_at(lane, at);
  const auto windows = windows_of(number);
  const std::int64_t row = at - file.begin;
  const auto behind = std::ranges::upper_bound(windows->rows, row);
  const std::int64_t index = behind - windows->rows.begin() - 1;
  const std::int64_t rows = std::min(*behind - row, end - at);
  runs.push_back({{number, 0, index}, row - windows->rows[static_cast<std::size_t>(index)], rows});
  return rows;
}

std::vector<BlockPart> FollowPlan::parts_of(const StreamWindow& window) const {
  const auto windows = windows_of(window.epoch);
  const std::shared_ptr<BlockSource> source = files_->source_of(window.epoch);
  const auto index = static_cast<std::size_t>(window.index);
  std::vector<BlockPart> parts;
  for (std::size_t b = windows->blocks[index]; b < windows->blocks[index + 1]; ++b)
    if (source->blocks()[b].rows > 0)
      parts.push_back(
          {(static_cast<std::size_t>(window.epoch) + 1) << kFileShift | b, 0, source->blocks()[b].rows});
  return parts;
}

std::int64_t FollowPlan::rows_of(const StreamWindow& window) const {
  const auto windows = windows_of(window.epoch);
  const auto index = static_cast<std::size_t>(window.index);
  return windows->rows[index + 1] - windows->rows[index];
}

std::vector<std::uint32_t> FollowPlan::order_of(const StreamWindow& window) const {
  return window_order(rows_of(window), options_.shuffle,
                      make_rng_key(options_.seed, "followed/" + std::to_string(window.index), window.epoch));
}

std::pair<std::uint64_t, std::uint64_t> FollowPlan::tickets_of(const StreamWindow& window) const {
  const auto windows = windows_of(window.epoch);
  const auto index = static_cast<std::size_t>(window.index);
  const FollowedFiles::File file = files_->file(window.epoch);
  const std::int64_t first = file.begin + windows->rows[index],
                     last = file.begin + windows->rows[index + 1] - 1,
                     share = row_part(options_.global_batch, file.lane, files_->lanes()).rows;
  return {static_cast<std::uint64_t>(first / share), static_cast<std::uint64_t>(last / share)};
}

std::string FollowPlan::describe() const {
  const int lanes = files_->lanes();
  return fmt::format("files as they come, windows of {} rows{}", options_.window_rows,
                     lanes == 1 ? "" : fmt::format(", dealt to {} virtual shards", lanes));
}

std::string FollowPlan::order_text() const {
  const int lanes = files_->lanes();
  return fmt::format("followed {} {}{}", options_.window_rows, options_.shuffle,
                     lanes == 1 ? "" : fmt::format(" {}", lanes));
}

std::string FollowPlan::place_of(std::uint64_t ticket) const {
  return fmt::format("row={}", static_cast<std::int64_t>(ticket) * options_.global_batch);
}

}  // namespace braid
