// The records of Kafka between two offsets of a partition, a span, as a file of one of the formats: a value
// is a record. A tombstone is none. What is no record of the format, such as a value of two lines, is a bad
// record: it is left out with a warning, or ends the job where no more may be skipped.
//
// Spans are held while they fit; others are fetched again, to the same bytes as long as the brokers keep
// them. Thread rule: any number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "engine/input/files/kafka.h"
#include "engine/input/formats/block_index.h"

namespace braid {

struct KafkaSpan {
  KafkaPartition partition;
  OffsetRange offsets;
};
/// "kafka:clicks[3]:1000-2000", the name of the file.
std::string text_of(const KafkaSpan& span);
/// Throws: DataLoss (no such name).
KafkaSpan kafka_span(const std::string& name);

struct KafkaRecordsOptions {
  RecordLayout layout = RecordLayout::Lines;
  bool empty_is_bad = true;  // Lines: an empty value is no record
  char separator = ',';      // Fields
  std::string comment = {};  // Fields
  std::int64_t max_bad_records = 0;
  std::uint64_t block_bytes = std::uint64_t{1} << 20;
  std::uint64_t held_bytes = std::uint64_t{64} << 20;
};

class KafkaRecords : public std::enable_shared_from_this<KafkaRecords> {
 public:
  KafkaRecords(std::shared_ptr<KafkaLog> log, KafkaRecordsOptions options)
      : log_(std::move(log)), options_(std::move(options)) {}

  /// Throws: DataLoss (a bad record too many: partition and offset; offsets that are not kept any more),
  /// InvalidArgument, DeadlineExceeded (the brokers).
  IndexedFile file(const std::string& name);

 private:
  struct Held {
    std::string name;
    std::shared_ptr<const std::string> bytes;
    std::vector<IndexedBlock> blocks;
  };
  Held get(const std::string& name);
  Held fetch(const std::string& name);
  std::string problem_of(std::string_view value) const;
  void bad(const KafkaSpan& span, std::int64_t offset, const std::string& problem);

  // Set once.
  const std::shared_ptr<KafkaLog> log_;
  const KafkaRecordsOptions options_;

  std::mutex mu_;
  // Guarded by mu_.
  std::list<Held> held_;  // the latest used first
  std::uint64_t bytes_ = 0;
  std::set<std::pair<KafkaPartition, std::int64_t>> bad_;
};

}  // namespace braid
