// In place of kafka.cc where the build has no librdkafka.
#include "base/error.h"
#include "engine/input/files/kafka.h"

namespace braid {

std::unique_ptr<KafkaLog> open_kafka(const KafkaName&, std::optional<std::chrono::milliseconds>) {
  throw InvalidArgument(
      "kafka:// needs a build with librdkafka: install librdkafka-dev, configure and build again");
}

}  // namespace braid
