// The spans of offsets that a job takes of Kafka's partitions, in their order, as the files of an input that
// grows. One look takes of each partition what is new, up to `records`; the next one follows when these are
// used. Fewer than an eighth of that are left to gather for a while: a checkpoint has a line for each span. A
// partition is first named by an empty span, which says where it begins: so a checkpoint knows it
// before it has records.
//
// Thread rule: any number of threads.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/input/files/kafka.h"
#include "engine/input/stream/file_feed.h"

namespace braid {

struct GrowingTopics {
  std::shared_ptr<KafkaLog> log;
  std::function<bool()> asked_to_stop;
  std::chrono::nanoseconds poll = std::chrono::seconds(1);
  std::chrono::nanoseconds idle = std::chrono::hours(1);  // of one wait; then the input ends
  std::chrono::nanoseconds look_for_partitions = std::chrono::seconds(30);
  bool from_now = false;  // partitions that are there when a first run begins: only what comes
  std::int64_t records = 8192;
  std::chrono::nanoseconds gather = std::chrono::seconds(10);
};

/// `taken`: of an earlier run that this one continues. Throws: DataLoss (`taken` are no spans).
std::unique_ptr<FileFeed> follow_kafka(GrowingTopics topics, std::vector<TakenFile> taken);

}  // namespace braid
