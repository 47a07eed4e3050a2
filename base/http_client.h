// HTTP/1.1 GETs to many processes at once, as `braid top` and a job's leader ask them: on the calling thread,
// with one deadline for all, so that a peer that is dead or stands still costs that time and nothing else.
// Boost.Beast stays behind http_client.cc. Thread rule: safe from any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

namespace braid {

struct HttpGet {
  std::string address;             // "host:port", "[v6]:port"
  std::string target;              // "/status.json"
  std::string authorization = {};  // the header of that name; empty: none
};

struct HttpAnswer {
  int status = 0;  // 0: there was no answer, and `error` says why
  std::string body;
  std::string error;
  std::chrono::steady_clock::time_point asked, answered;  // around the exchange of the request itself

  bool ok() const { return status == 200; }
};

/// In the order of `requests`. What has not answered within `timeout`, or answers with more than
/// `most_bytes`, has an error.
std::vector<HttpAnswer> http_get_all(const std::vector<HttpGet>& requests, std::chrono::milliseconds timeout,
                                     std::size_t most_bytes = std::size_t{64} << 20);
HttpAnswer http_get(const HttpGet& request, std::chrono::milliseconds timeout);

}  // namespace braid
