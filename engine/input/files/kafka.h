// Records of Kafka: which partitions there are, which offsets they have, and the records between two offsets.
// Nothing is committed at the brokers and no group is joined: who reads keeps the offsets.
//
// What the brokers are told beside their addresses (TLS, SASL) stands in the file that BRAID_KAFKA_CONFIG
// names, "name=value" a line as librdkafka calls them; values of it are in no message.
//
// A broker that does not answer is tried again until a deadline (BRAID_IO_DEADLINE, default 2m); the error
// then has its address and what it said last. Thread rule: any number of threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

/// "kafka://host:9092,other:9092/clicks,views".
struct KafkaName {
  std::string brokers;  // "host:9092,other:9092"
  std::vector<std::string> topics;
};
bool is_kafka(std::string_view name);
/// Throws: InvalidArgument (what is missing; a name with credentials, which is not said).
KafkaName kafka_name(std::string_view name);

struct KafkaPartition {
  std::string topic;
  std::int32_t number = 0;
  friend auto operator<=>(const KafkaPartition&, const KafkaPartition&) = default;
};
/// "clicks[3]".
std::string text_of(const KafkaPartition& partition);

/// Offsets [begin, end) of a partition.
struct OffsetRange {
  std::int64_t begin = 0, end = 0;
};

class KafkaLog {
 public:
  virtual ~KafkaLog() = default;
  /// All of the topics, sorted. Throws: InvalidArgument (no such topic, no permission), DeadlineExceeded,
  /// Cancelled once `stop` is requested.
  virtual std::vector<KafkaPartition> partitions(const std::stop_token& stop) = 0;
  /// Of each, from the first record that is kept to behind the last one. Throws: as partitions().
  virtual std::vector<OffsetRange> offsets(const std::vector<KafkaPartition>& partitions,
                                           const std::stop_token& stop) = 0;
  /// Calls `each` with every record of these offsets in their order; no value is a tombstone. Offsets without
  /// a record (of compaction, of transactions) are passed over. Throws: DataLoss (the first of them is not
  /// kept any more), as partitions().
  using EachRecord = std::function<void(std::int64_t offset, std::optional<std::string_view> value)>;
  virtual void fetch(const KafkaPartition& partition, OffsetRange range, const EachRecord& each,
                     const std::stop_token& stop) = 0;
};

/// `deadline` is BRAID_IO_DEADLINE where there is none. Throws: InvalidArgument (this build has no
/// librdkafka; a wrong setting: the file and its line).
std::unique_ptr<KafkaLog> open_kafka(const KafkaName& name,
                                     std::optional<std::chrono::milliseconds> deadline = {});

}  // namespace braid
