#include "worker/input/followed_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "comm/rendezvous/rendezvous.h"
#include "engine/input/files/kafka.h"
#include "engine/input/files/remote_files.h"
#include "engine/input/stream/kafka_feed.h"
#include "proto/job.pb.h"
#include "worker/input/data.h"
#include "worker/input/data_stream.h"
#include "worker/process/stop_signal.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {
namespace {

using Path = std::filesystem::path;

std::chrono::nanoseconds ns(double seconds) {
  return std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
}
double idle_seconds(const proto::Job& job) {
  const double set = job.input().follow().idle_seconds();
  return set > 0 ? set : 3600;
}

constexpr const char* kEnd = "end";
constexpr const char* kKnownKey = "input/known";
std::string file_key(std::size_t n) { return fmt::format("input/file/{}", n); }
constexpr std::chrono::seconds kPublishTime{30};

/// Of the leader: what it takes, the others hear.
class ToldFeed : public FileFeed {
 public:
  ToldFeed(std::unique_ptr<FileFeed> feed, std::shared_ptr<comm::Rendezvous> rendezvous)
      : feed_(std::move(feed)), rendezvous_(std::move(rendezvous)) {
    tell(kKnownKey, std::to_string(feed_->known()));
  }
  std::optional<TakenFile> get(std::size_t n, const std::stop_token& stop) override {
    std::optional<TakenFile> file = feed_->get(n, stop);
    if (!file) tell(file_key(n), kEnd);
    return file;
  }
  void opened(std::size_t n, const TakenFile& file) override {
    feed_->opened(n, file);
    tell(file_key(n), text_of({file}));
  }
  std::size_t known() override { return feed_->known(); }
  std::vector<TakenFile> taken() const override { return feed_->taken(); }

 private:
  void tell(const std::string& key, const std::string& text) {
    rendezvous_->set_text(key, text, WaitContext::with_timeout(kPublishTime));
  }
  const std::unique_ptr<FileFeed> feed_;
  const std::shared_ptr<comm::Rendezvous> rendezvous_;
};

/// Of the others.
class HeardFeed : public FileFeed {
 public:
  HeardFeed(std::shared_ptr<comm::Rendezvous> rendezvous, std::chrono::nanoseconds time)
      : rendezvous_(std::move(rendezvous)), time_(time) {}
  std::optional<TakenFile> get(std::size_t n, const std::stop_token& stop) override {
    const std::string text = rendezvous_->get_text(file_key(n), WaitContext::with_timeout(time_, stop));
    if (text == kEnd) return std::nullopt;
    return taken_files(text).at(0);
  }
  std::size_t known() override {
    return std::stoul(rendezvous_->get_text(kKnownKey, WaitContext::with_timeout(time_)));
  }

 private:
  const std::shared_ptr<comm::Rendezvous> rendezvous_;
  const std::chrono::nanoseconds time_;
};

bool is_pattern(const std::string& name) { return name.find_first_of("*?[") != std::string::npos; }

/// Files that count by their names, and where the stop file is looked for.
GrowingDirectory directory_of(const proto::Job& job, const Path& data_dir, const StopFlag& stop) {
  const proto::Follow& from = job.input().follow();
  const std::string named = job.input().train_files(0);
  if (!scheme_of(named).empty() || named == "-")
    throw InvalidArgument(
        "input.follow is for a directory of this machine or of a shared file system, not '" + named + "'");
  const bool pattern = is_pattern(named);
  const Path place = data_dir / named;
  const Path directory = pattern ? place.parent_path() : place;
  std::error_code unknown;
  if (!std::filesystem::is_directory(directory, unknown))
    throw InvalidArgument("input.follow: '" + directory.string() +
                          "' is no directory; train_files names one, or a pattern in one");
  const std::string stop_file = from.stop_file().empty() ? "_END" : from.stop_file();
  GrowingDirectory growing;
  growing.list = [directory, place, pattern, stop_file] {
    std::vector<Path> files;
    if (pattern) {
      files = glob(place.string());
    } else {
      for (const Path& each : list_directory(directory)) files.push_back(directory / each);
    }
    std::erase_if(files, [&](const Path& file) {
      const std::string name = file.filename().string();
      std::error_code gone;
      return name.starts_with('.') || name.starts_with('_') || name.ends_with(".braid_index") ||
             name == stop_file || !std::filesystem::is_regular_file(file, gone);
    });
    return files;
  };
  growing.has_ended = [file = directory / stop_file] {
    std::error_code unreadable;
    return std::filesystem::exists(file, unreadable);
  };
  growing.asked_to_stop = [&stop] { return stop.requested(); };
  growing.poll = ns(from.poll_seconds() > 0 ? from.poll_seconds() : 1);
  growing.idle = ns(idle_seconds(job));
  return growing;
}

GrowingTopics topics_of(const proto::Job& job, std::shared_ptr<KafkaLog> log, const StopFlag& stop) {
  const proto::Follow& from = job.input().follow();
  GrowingTopics topics;
  topics.log = std::move(log);
  topics.asked_to_stop = [&stop] { return stop.requested(); };
  topics.poll = ns(from.poll_seconds() > 0 ? from.poll_seconds() : 1);
  topics.idle = ns(idle_seconds(job));
  topics.from_now = from.begin() == proto::Follow::LATEST;
  if (from.records() > 0) topics.records = from.records();
  return topics;
}

std::shared_ptr<FileFeed> feed_of(const proto::Job& job, const Path& data_dir, const FollowRun& run,
                                  const std::shared_ptr<KafkaLog>& log) {
  const bool several = run.peers.world > 1;
  if (several && !run.peers.rendezvous)
    throw InvalidArgument(
        "input.follow: several workers hear from the leader which files have come, at the rendezvous of "
        "strategy.backend RING or NCCL; set one of these");
  if (several && !run.peers.leader())
    return std::make_shared<HeardFeed>(run.peers.rendezvous, follow_time(job));
  auto feed = log ? follow_kafka(topics_of(job, log, run.stop), run.taken)
                  : follow_directory(directory_of(job, data_dir, run.stop), run.taken);
  if (!several) return feed;
  return std::make_shared<ToldFeed>(std::move(feed), run.peers.rendezvous);
}

/// Each gives rows to every batch.
int lanes_of(const proto::Job& job) {
  const std::int64_t shards = job.input().shuffle() ? streamed_rows_options(job).shards : 1;
  return static_cast<int>(std::min<std::int64_t>(shards, job.input().global_batch_size()));
}

}  // namespace

std::chrono::nanoseconds follow_time(const proto::Job& job) {
  return ns(idle_seconds(job)) + std::chrono::minutes(1);
}

FollowedOptions followed_options(const proto::Job& job, const BatchOptions& batches) {
  FollowedOptions options;
  options.global_batch = batches.global_batch;
  options.shuffle = batches.shuffle;
  options.seed = batches.seed;
  options.window_rows = streamed_rows_options(job).window_rows;
  return options;
}

FollowedInput follow_input(const proto::Job& job, const Path& data_dir, const FollowRun& run) {
  FollowedInput input;
  const std::string& named = job.input().train_files(0);
  std::shared_ptr<KafkaLog> log;
  if (is_kafka(named)) log = open_kafka(kafka_name(named));
  input.feed = feed_of(job, data_dir, run, log);
  if (run.peers.leader())
    log_info("input: follows '{}'{}", named,
             run.taken.empty()
                 ? ""
                 : fmt::format(", of which {} {} were taken", run.taken.size(), log ? "spans" : "files"));
  // What was just written is in the page cache, so AUTO takes it from there.
  const OpenBlocks open = log ? kafka_blocks(job, data_dir, log)
                              : [job, data_dir, reads = file_reads(job, {})](const std::string& file) {
                                  return open_file_blocks(job, data_dir, file, reads);
                                };
  try {
    input.files = std::make_shared<FollowedFiles>(input.feed, open, log ? lanes_of(job) : 1);
  } catch (const InvalidArgument& error) {
    if (run.stop.requested()) throw Cancelled(error.message());  // which ended the wait for a file
    throw;
  }
  return input;
}

}  // namespace braid::worker
