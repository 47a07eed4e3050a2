// A plain HTTP/1.1 GET, as a probe or a scraper sends it. Thread rule: none needed.
#pragma once

#include <optional>
#include <string>

#include "tests/integration/process.h"

namespace braid::integration {

struct HttpReply {
  int status = 0;
  std::string body;
};

/// Asks "host:port" of 127.0.0.1. Nothing when nobody answers, or not to the end.
std::optional<HttpReply> http_get(const std::string& address, const std::string& path);

/// Where `process` says in its log that its metrics are: waits for the line.
std::string metrics_address(Process& process);

/// The sum of the samples of `metric` whose labels contain `label`; nothing when there is none.
std::optional<double> sample(const std::string& metrics, const std::string& metric,
                             const std::string& label = "");

}  // namespace braid::integration
