#include "tests/support/kafka_broker.h"

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>

#include <array>
#include <stdexcept>

namespace braid {
namespace {

void check(bool good, const std::string& what) {
  if (!good) throw std::runtime_error("mock broker: " + what);
}

rd_kafka_t* client(const std::string& brokers) {
  rd_kafka_conf_t* const conf = rd_kafka_conf_new();
  std::array<char, 256> text{};
  for (const auto& [name, value] : {std::pair<const char*, std::string>{"bootstrap.servers", brokers},
                                    {"linger.ms", "1"},
                                    {"reconnect.backoff.max.ms", "500"},
                                    {"log_level", "0"}})
    check(rd_kafka_conf_set(conf, name, value.c_str(), text.data(), text.size()) == RD_KAFKA_CONF_OK,
          text.data());
  rd_kafka_t* const made = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text.data(), text.size());
  check(made != nullptr, text.data());
  return made;
}

}  // namespace

struct KafkaBroker::Impl {
  rd_kafka_t* host = nullptr;
  rd_kafka_mock_cluster_t* cluster = nullptr;
  ~Impl() {
    if (cluster) rd_kafka_mock_cluster_destroy(cluster);
    if (host) rd_kafka_destroy(host);
  }
};

KafkaBroker::KafkaBroker() : impl_(new Impl) {
  impl_->host = client("127.0.0.1:1");
  impl_->cluster = rd_kafka_mock_cluster_new(impl_->host, 1);
  check(impl_->cluster != nullptr, "no cluster");
  address_ = rd_kafka_mock_cluster_bootstraps(impl_->cluster);
}
KafkaBroker::~KafkaBroker() = default;

void KafkaBroker::make_topic(const std::string& topic, int partitions) {
  check(
      rd_kafka_mock_topic_create(impl_->cluster, topic.c_str(), partitions, 1) == RD_KAFKA_RESP_ERR_NO_ERROR,
      "topic");
}

void KafkaBroker::refuse_topic(const std::string& topic) {
  rd_kafka_mock_topic_set_error(impl_->cluster, topic.c_str(), RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
}

void KafkaBroker::send(const std::string& topic, int partition,
                       const std::vector<std::optional<std::string>>& values) {
  // A producer that has seen the broker go waits for long.
  const std::unique_ptr<rd_kafka_t, decltype(&rd_kafka_destroy)> producer(client(address_),
                                                                          &rd_kafka_destroy);
  for (const auto& value : values) {
    void* const bytes = value ? const_cast<char*>(value->data()) : nullptr;
    const std::size_t size = value ? value->size() : 0;
    const rd_kafka_resp_err_t sent = rd_kafka_producev(
        producer.get(), RD_KAFKA_V_TOPIC(topic.c_str()), RD_KAFKA_V_PARTITION(partition),
        RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY), RD_KAFKA_V_VALUE(bytes, size), RD_KAFKA_V_END);
    check(sent == RD_KAFKA_RESP_ERR_NO_ERROR, rd_kafka_err2str(sent));
  }
  check(rd_kafka_flush(producer.get(), 30000) == RD_KAFKA_RESP_ERR_NO_ERROR, "it took no records");
}

void KafkaBroker::set_down(bool down) {
  if (down)
    rd_kafka_mock_broker_set_down(impl_->cluster, -1);
  else
    rd_kafka_mock_broker_set_up(impl_->cluster, -1);
}

void KafkaBroker::set_delay_ms(int delay) { rd_kafka_mock_broker_set_rtt(impl_->cluster, -1, delay); }

void KafkaBroker::fail_fetches(int count) {
  constexpr std::int16_t kFetch = 1;
  const std::vector<rd_kafka_resp_err_t> errors(static_cast<std::size_t>(count),
                                                RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION);
  rd_kafka_mock_push_request_errors_array(impl_->cluster, kFetch, errors.size(), errors.data());
}

}  // namespace braid
