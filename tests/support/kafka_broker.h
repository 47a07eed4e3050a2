// Brokers of Kafka in this process, on sockets that other processes reach: the mock of librdkafka, which has
// its protocol, and no groups, retention by time or transactions. A real broker is a Java program that tests
// here do not have.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace braid {

class KafkaBroker {
 public:
  KafkaBroker();
  ~KafkaBroker();
  KafkaBroker(const KafkaBroker&) = delete;
  KafkaBroker& operator=(const KafkaBroker&) = delete;

  /// "127.0.0.1:41234".
  const std::string& address() const { return address_; }
  /// "kafka://127.0.0.1:41234/TOPICS".
  std::string name(const std::string& topics) const { return "kafka://" + address_ + "/" + topics; }
  void make_topic(const std::string& topic, int partitions);
  /// There is no such topic: the mock makes all others that it is asked for.
  void refuse_topic(const std::string& topic);
  /// Waits until the broker has them. No value: a tombstone.
  void send(const std::string& topic, int partition, const std::vector<std::optional<std::string>>& values);
  void set_down(bool down);
  void set_delay_ms(int delay);
  /// The next requests for records are answered with "not leader".
  void fail_fetches(int count);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  std::string address_;
};

}  // namespace braid
