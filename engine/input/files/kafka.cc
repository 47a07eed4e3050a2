#include "engine/input/files/kafka.h"

#include <fmt/format.h>
#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/input/files/store.h"

namespace braid {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPollSlice{100};
constexpr std::size_t kRecordsOfCall = 1024;
constexpr const char* kNobodyWaits = "input: nobody waits for records any more";

/// What librdkafka said last of its brokers, from a thread of its own.
class LastWord {
 public:
  void set(std::string text) {
    std::lock_guard lock(mu_);
    text_ = std::move(text);
  }
  std::string get() const {
    std::lock_guard lock(mu_);
    return text_.empty() ? std::string("no answer") : text_;
  }

 private:
  mutable std::mutex mu_;
  std::string text_;  // guarded by mu_
};

/// What waiting does not mend.
bool is_final(rd_kafka_resp_err_t error) {
  switch (error) {
    case RD_KAFKA_RESP_ERR__AUTHENTICATION:
    case RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED:
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
    case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
    case RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION:
    case RD_KAFKA_RESP_ERR__BAD_MSG:
    case RD_KAFKA_RESP_ERR_INVALID_MSG:
    case RD_KAFKA_RESP_ERR__BAD_COMPRESSION:
    case RD_KAFKA_RESP_ERR_UNSUPPORTED_COMPRESSION_TYPE:
    case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
    case RD_KAFKA_RESP_ERR__FATAL:
      return true;
    default:
      return false;
  }
}

using Conf = std::unique_ptr<rd_kafka_conf_t, decltype(&rd_kafka_conf_destroy)>;
using Client = std::unique_ptr<rd_kafka_t, decltype(&rd_kafka_destroy)>;
using Topic = std::unique_ptr<rd_kafka_topic_t, decltype(&rd_kafka_topic_destroy)>;
using Message = std::unique_ptr<rd_kafka_message_t, decltype(&rd_kafka_message_destroy)>;
using Partitions =
    std::unique_ptr<rd_kafka_topic_partition_list_t, decltype(&rd_kafka_topic_partition_list_destroy)>;
using Metadata = std::unique_ptr<const rd_kafka_metadata_t, decltype(&rd_kafka_metadata_destroy)>;

/// librdkafka's own text has the value in it, which may be a secret.
void set(rd_kafka_conf_t* conf, const std::string& name, const std::string& value, const std::string& where) {
  std::array<char, 512> ignored{};
  if (rd_kafka_conf_set(conf, name.c_str(), value.c_str(), ignored.data(), ignored.size()) !=
      RD_KAFKA_CONF_OK)
    throw InvalidArgument(where + ": librdkafka takes no setting '" + name + "', or not this value");
}

std::string trimmed(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

void add_file(rd_kafka_conf_t* conf, const std::string& file) {
  std::ifstream lines(file);
  if (!lines) throw InvalidArgument("BRAID_KAFKA_CONFIG: '" + file + "' cannot be read");
  std::int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    const std::string where = fmt::format("BRAID_KAFKA_CONFIG: '{}' line {}", file, ++number);
    line = trimmed(line);
    if (line.empty() || line[0] == '#') continue;
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos) throw InvalidArgument(where + " is no name=value");
    const std::string name = trimmed(line.substr(0, equals));
    if (name == "bootstrap.servers" || name == "metadata.broker.list")
      throw InvalidArgument(where + ": brokers stand in the name of the input, kafka://HOST:9092/TOPIC");
    set(conf, name, trimmed(line.substr(equals + 1)), where);
  }
}

Conf settings(const KafkaName& name, LastWord* word) {
  Conf conf(rd_kafka_conf_new(), &rd_kafka_conf_destroy);
  const auto own = [&](const char* key, const std::string& value) {
    set(conf.get(), key, value, "kafka://");
  };
  own("client.id", "braid");
  own("reconnect.backoff.max.ms", "2000");
  own("socket.timeout.ms", "10000");
  own("queued.max.messages.kbytes", "4096");  // of a partition that is read
  own("allow.auto.create.topics", "false");
  if (const auto file = env_string("BRAID_KAFKA_CONFIG")) add_file(conf.get(), *file);
  // What reading relies on, whatever the file says.
  own("bootstrap.servers", name.brokers);
  own("enable.partition.eof", "true");
  own("enable.auto.commit", "false");
  own("auto.offset.reset", "error");
  own("check.crcs", "true");
  own("log_level", "3");
  rd_kafka_conf_set_opaque(conf.get(), word);
  rd_kafka_conf_set_error_cb(conf.get(), [](rd_kafka_t*, int error, const char* reason, void* opaque) {
    // "1/1 brokers are down" comes behind why they are.
    if (error != RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) static_cast<LastWord*>(opaque)->set(reason);
  });
  rd_kafka_conf_set_log_cb(conf.get(), [](const rd_kafka_t* client, int, const char*, const char* text) {
    if (auto* const last = static_cast<LastWord*>(rd_kafka_opaque(client))) last->set(text);
  });
  return conf;
}

class RdKafkaLog : public KafkaLog {
 public:
  RdKafkaLog(KafkaName name, std::chrono::milliseconds deadline)
      : name_(std::move(name)), deadline_(deadline), client_(nullptr, &rd_kafka_destroy) {
    Conf conf = settings(name_, &word_);
    std::array<char, 512> ignored{};
    client_.reset(rd_kafka_new(RD_KAFKA_CONSUMER, conf.get(), ignored.data(), ignored.size()));
    if (!client_)  // a file of certificates that is not there, mechanisms that do not go together
      throw InvalidArgument(
          "kafka://" + name_.brokers +
          ": librdkafka refuses the settings of BRAID_KAFKA_CONFIG together, or cannot read a file that they "
          "name");
    static_cast<void>(conf.release());  // the client's
    for (const std::string& topic : name_.topics) {
      Topic made(rd_kafka_topic_new(client_.get(), topic.c_str(), nullptr), &rd_kafka_topic_destroy);
      if (!made) throw InvalidArgument(say("topic '" + topic + "'", rd_kafka_last_error()));
      topics_.emplace(topic, std::move(made));
    }
  }

  std::vector<KafkaPartition> partitions(const std::stop_token& stop) override {
    std::vector<KafkaPartition> found;
    for (const std::string& topic : name_.topics) {
      const std::string what = "topic '" + topic + "'";
      with_retries(what, stop, [&](int timeout_ms) {
        const rd_kafka_metadata_t* answer = nullptr;
        rd_kafka_resp_err_t error =
            rd_kafka_metadata(client_.get(), 0, topics_.at(topic).get(), &answer, timeout_ms);
        const Metadata owned(answer, &rd_kafka_metadata_destroy);
        if (error == RD_KAFKA_RESP_ERR_NO_ERROR)
          error = owned->topic_cnt == 1 ? owned->topics[0].err : RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC;
        if (error != RD_KAFKA_RESP_ERR_NO_ERROR) return error;
        for (int p = 0; p < owned->topics[0].partition_cnt; ++p)
          found.push_back({topic, owned->topics[0].partitions[p].id});
        return error;
      });
    }
    std::ranges::sort(found);
    return found;
  }

  std::vector<OffsetRange> offsets(const std::vector<KafkaPartition>& partitions,
                                   const std::stop_token& stop) override {
    const std::vector<std::int64_t> begins = offsets_at(partitions, RD_KAFKA_OFFSET_BEGINNING, stop),
                                    ends = offsets_at(partitions, RD_KAFKA_OFFSET_END, stop);
    std::vector<OffsetRange> ranges;
    for (std::size_t p = 0; p < partitions.size(); ++p) ranges.push_back({begins[p], ends[p]});
    return ranges;
  }

  void fetch(const KafkaPartition& partition, OffsetRange range, const EachRecord& each,
             const std::stop_token& stop) override {
    if (range.begin >= range.end) return;
    const auto lock = lock_of(partition);  // librdkafka reads a partition once at a time
    rd_kafka_topic_t* const topic = topics_.at(partition.topic).get();
    if (rd_kafka_consume_start(topic, partition.number, range.begin) != 0)
      throw Unavailable(say(text_of(partition), rd_kafka_last_error()));
    struct Stop {
      rd_kafka_topic_t* topic;
      std::int32_t partition;
      ~Stop() { rd_kafka_consume_stop(topic, partition); }
    } const at_end{topic, partition.number};
    std::int64_t next = range.begin;
    Clock::time_point until = Clock::now() + deadline_;
    std::vector<rd_kafka_message_t*> got(kRecordsOfCall);
    while (next < range.end) {
      if (stop.stop_requested()) throw Cancelled(kNobodyWaits);
      rd_kafka_poll(client_.get(), 0);  // its errors
      const ssize_t count =
          rd_kafka_consume_batch(topic, partition.number, kPollSlice.count(), got.data(), got.size());
      const std::int64_t before = next;
      std::vector<Message> owned;
      for (ssize_t i = 0; i < count; ++i)
        owned.emplace_back(got[static_cast<std::size_t>(i)], &rd_kafka_message_destroy);
      for (const Message& message : owned) take(*message, partition, range, next, each);
      if (next > before) until = Clock::now() + deadline_;
      if (next < range.end && Clock::now() >= until)
        throw DeadlineExceeded(fmt::format(
            "kafka://{}: {} gave no record from offset {} to {} within {} s (BRAID_IO_DEADLINE), the last "
            "word was: {}",
            name_.brokers, text_of(partition), next, range.end,
            std::chrono::duration<double>(deadline_).count(), word_.get()));
    }
  }

 private:
  void take(const rd_kafka_message_t& message, const KafkaPartition& partition, OffsetRange range,
            std::int64_t& next, const EachRecord& each) {
    switch (message.err) {
      case RD_KAFKA_RESP_ERR_NO_ERROR:
        if (next >= range.end || message.offset < next) return;
        next = std::min(message.offset + 1, range.end);
        if (message.offset >= range.end) return;
        each(message.offset, message.payload ? std::optional(std::string_view(
                                                   static_cast<const char*>(message.payload), message.len))
                                             : std::nullopt);
        return;
      case RD_KAFKA_RESP_ERR__PARTITION_EOF:  // offsets at the end may have no records
        if (message.offset >= range.end) next = range.end;
        return;
      case RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET:
      case RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE:
        throw DataLoss(fmt::format(
            "kafka://{}: the brokers do not keep offset {} of {} any more, which the job has to read again; "
            "let the topic keep records for longer than the time between checkpoints",
            name_.brokers, next, text_of(partition)));
      default:
        word_.set(rd_kafka_message_errstr(&message));
        if (is_final(message.err)) throw InvalidArgument(say(text_of(partition), message.err));
    }
  }

  /// `place`: of librdkafka's own, which are those of the protocol. All partitions are asked for at once.
  std::vector<std::int64_t> offsets_at(const std::vector<KafkaPartition>& partitions, std::int64_t place,
                                       const std::stop_token& stop) {
    std::vector<std::int64_t> offsets;
    if (partitions.empty()) return offsets;
    with_retries("offsets of " + text_of(partitions.front()), stop, [&](int timeout_ms) {
      const Partitions list(rd_kafka_topic_partition_list_new(static_cast<int>(partitions.size())),
                            &rd_kafka_topic_partition_list_destroy);
      for (const KafkaPartition& each : partitions)
        rd_kafka_topic_partition_list_add(list.get(), each.topic.c_str(), each.number)->offset = place;
      rd_kafka_resp_err_t error = rd_kafka_offsets_for_times(client_.get(), list.get(), timeout_ms);
      offsets.clear();
      for (int p = 0; p < list->cnt && error == RD_KAFKA_RESP_ERR_NO_ERROR; ++p) {
        error = list->elems[p].err;
        offsets.push_back(list->elems[p].offset);
        if (error == RD_KAFKA_RESP_ERR_NO_ERROR && offsets.back() < 0)
          error = RD_KAFKA_RESP_ERR_OFFSET_NOT_AVAILABLE;
      }
      return error;
    });
    return offsets;
  }

  /// Throws: InvalidArgument (what waiting does not mend), DeadlineExceeded.
  template <class Attempt>
  void with_retries(const std::string& what, const std::stop_token& stop, Attempt attempt) {
    constexpr std::chrono::milliseconds kLongest{5000};
    const Clock::time_point until = Clock::now() + deadline_;
    for (;;) {
      rd_kafka_poll(client_.get(), 0);
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
      const rd_kafka_resp_err_t error = attempt(static_cast<int>(std::max<std::int64_t>(
          1, std::min(left, std::min(kLongest, std::chrono::ceil<std::chrono::milliseconds>(deadline_)))
                 .count())));
      if (error == RD_KAFKA_RESP_ERR_NO_ERROR) return;
      rd_kafka_poll(client_.get(), 0);
      if (stop.stop_requested()) throw Cancelled(kNobodyWaits);
      if (is_final(error)) throw InvalidArgument(say(what, error));
      if (Clock::now() + kPollSlice >= until)
        throw DeadlineExceeded(fmt::format("{} within {} s (BRAID_IO_DEADLINE), the last word was: {}",
                                           say(what, error), std::chrono::duration<double>(deadline_).count(),
                                           word_.get()));
      std::this_thread::sleep_for(kPollSlice);
    }
  }

  std::string say(const std::string& what, rd_kafka_resp_err_t error) const {
    return fmt::format("kafka://{}: {}: {}", name_.brokers, what, rd_kafka_err2str(error));
  }

  std::unique_lock<std::mutex> lock_of(const KafkaPartition& partition) {
    std::mutex* one = nullptr;
    {
      std::lock_guard lock(mu_);
      one = &locks_[partition];
    }
    return std::unique_lock(*one);
  }

  // Set once.
  const KafkaName name_;
  const std::chrono::milliseconds deadline_;
  LastWord word_;  // outlives the client
  Client client_;
  std::map<std::string, Topic> topics_;

  std::mutex mu_;
  std::map<KafkaPartition, std::mutex> locks_;  // guarded by mu_
};

}  // namespace

std::unique_ptr<KafkaLog> open_kafka(const KafkaName& name,
                                     std::optional<std::chrono::milliseconds> deadline) {
  return std::make_unique<RdKafkaLog>(name, deadline.value_or(io_deadline()));
}

}  // namespace braid
