#include "engine/input/stream/kafka_feed.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/input/stream/kafka_records.h"

namespace braid {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kLookSlice{100};

class KafkaFeed : public FileFeed {
 public:
  KafkaFeed(GrowingTopics topics, std::vector<TakenFile> taken)
      : topics_(std::move(topics)), taken_(std::move(taken)), from_now_(topics_.from_now && taken_.empty()) {
    for (const TakenFile& file : taken_) {
      const KafkaSpan span = kafka_span(file.name);
      next_[span.partition] = span.offsets.end;
    }
    while (known_ < taken_.size() && taken_[known_].rows >= 0) ++known_;
  }

  std::size_t known() override { return known_; }
  std::vector<TakenFile> taken() const override {
    std::lock_guard lock(mu_);
    return taken_;
  }
  void opened(std::size_t n, const TakenFile& file) override {
    std::lock_guard lock(mu_);
    taken_.at(n) = file;
  }

  std::optional<TakenFile> get(std::size_t n, const std::stop_token& stop) override {
    std::unique_lock looking(looking_);
    const Clock::time_point deadline = Clock::now() + topics_.idle;
    for (;;) {
      if (auto file = nth(n)) return file;
      if (ended_ || (topics_.asked_to_stop && topics_.asked_to_stop())) return std::nullopt;
      if (stop.stop_requested()) throw Cancelled("input: nobody waits for new records any more");
      if (Clock::now() >= next_look_) {
        const bool found = look(stop, false);
        next_look_ = Clock::now() + (found ? std::chrono::nanoseconds(0) : topics_.poll);
        if (found) continue;
      }
      if (Clock::now() >= deadline) {
        if (look(stop, true)) continue;
        log_info("input: no new record for {:g} s (input.follow.idle_seconds), so the input ends",
                 std::chrono::duration<double>(topics_.idle).count());
        ended_ = true;
        return std::nullopt;
      }
      changed_.wait_until(looking, stop, std::min({deadline, next_look_, Clock::now() + kLookSlice}),
                          [] { return false; });
    }
  }

 private:
  std::optional<TakenFile> nth(std::size_t n) const {
    std::lock_guard lock(mu_);
    return n < taken_.size() ? std::optional(taken_[n]) : std::nullopt;
  }
  /// Whether there was anything; `all`: however little. What one look finds is taken at once, so that a
  /// checkpoint has all of it. REQUIRES: looking_ is held, as of all below.
  bool look(const std::stop_token& stop, bool all) {
    find_partitions(stop);
    const std::vector<OffsetRange> offsets = topics_.log->offsets(partitions_, stop);
    std::vector<TakenFile> found;
    const auto add = [&](const KafkaPartition& partition, OffsetRange range) {
      next_[partition] = range.end;
      found.push_back({text_of(KafkaSpan{partition, range})});
    };
    for (std::size_t p = 0; p < partitions_.size(); ++p) {
      const KafkaPartition& partition = partitions_[p];
      if (!next_.contains(partition)) {
        const std::int64_t begin = from_now_ ? offsets[p].end : offsets[p].begin;
        log_info("input: {} from offset {}", text_of(partition), begin);
        add(partition, {begin, begin});
      }
      const std::int64_t next = first_of(partition, offsets[p]), waiting = offsets[p].end - next;
      if (waiting > 0 && (all || is_worth_a_span(partition, waiting)))
        add(partition, {next, next + std::min(waiting, topics_.records)});
    }
    from_now_ = false;  // a partition that is made later has nothing that came before
    std::lock_guard lock(mu_);
    taken_.insert(taken_.end(), found.begin(), found.end());
    return !found.empty();
  }

  bool is_worth_a_span(const KafkaPartition& partition, std::int64_t records) {
    constexpr std::int64_t kFew = 8;
    const auto since = gathers_since_.try_emplace(partition, Clock::now()).first;
    if (records * kFew < topics_.records && Clock::now() - since->second < topics_.gather) return false;
    gathers_since_.erase(since);
    return true;
  }

  void find_partitions(const std::stop_token& stop) {
    if (Clock::now() < next_partitions_) return;
    partitions_ = topics_.log->partitions(stop);
    next_partitions_ = Clock::now() + topics_.look_for_partitions;
    for (const auto& [partition, next] : next_)
      if (!std::ranges::binary_search(partitions_, partition))
        throw DataLoss(text_of(partition) + " was read to offset " + std::to_string(next) +
                       ", but the job's topics do not have it: topics are another than they were");
  }

  std::int64_t first_of(const KafkaPartition& partition, OffsetRange there) {
    std::int64_t& next = next_.at(partition);
    if (there.end < next)
      throw DataLoss(fmt::format(
          "{} ends at offset {}, but it was read to offset {}: the topic was made again, or lost records",
          text_of(partition), there.end, next));
    if (there.begin > next) {
      log_warning(
          "input: {}: the brokers removed offsets {} to {} before the job read them; it goes on behind them",
          text_of(partition), next, there.begin);
      next = there.begin;
    }
    return next;
  }

  // Set once.
  const GrowingTopics topics_;
  std::size_t known_ = 0;

  std::mutex looking_;  // held by who waits for the next span
  std::condition_variable_any changed_;
  // Guarded by looking_.
  std::vector<KafkaPartition> partitions_;
  std::map<KafkaPartition, std::int64_t> next_;  // offset of each
  std::map<KafkaPartition, Clock::time_point> gathers_since_;
  Clock::time_point next_look_{}, next_partitions_{};
  bool ended_ = false;

  mutable std::mutex mu_;
  std::vector<TakenFile> taken_;  // guarded by mu_
  bool from_now_;                 // by looking_
};

}  // namespace

std::unique_ptr<FileFeed> follow_kafka(GrowingTopics topics, std::vector<TakenFile> taken) {
  return std::make_unique<KafkaFeed>(std::move(topics), std::move(taken));
}

}  // namespace braid
