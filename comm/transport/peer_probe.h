// Asks the server at a gRPC address whether it takes this process. gRPC itself tries again and again where a
// certificate is refused, and tells its caller of a deadline; this says who refused whom and why, at once.
// Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <string>

#include "base/wait_context.h"
#include "comm/transport/security.h"

namespace braid::comm {

class TlsContext;

class PeerProbe {
 public:
  /// Throws: InvalidArgument for TLS files that cannot be used.
  PeerProbe(std::string address, const Security& security);
  ~PeerProbe();

  /// One attempt. False: nothing is known, as when nobody listens yet; see reason().
  /// Throws: InvalidArgument when the server refuses this process, or is refused by it, with the reason.
  bool accepts(const WaitContext& wait);
  /// Of the last attempt: "Connection refused".
  const std::string& reason() const { return reason_; }

 private:
  enum class Outcome { Accepted, Unknown, Closed };
  Outcome attempt(const WaitContext& wait);
  Outcome converse(int socket, const WaitContext& wait);
  [[noreturn]] void refuse(const std::string& why) const;

  const std::string address_;
  const Security security_;
  std::unique_ptr<TlsContext> tls_;  // null: plain text
  std::string reason_;
  int closed_ = 0;  // attempts in a row that ended without a word
};

}  // namespace braid::comm
