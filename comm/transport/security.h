// What the processes of a job prove themselves with to each other: a token that all of them know, or
// certificates that the job's authority signed. docs/user/security.md says what each protects against.
//
// The token never travels and appears in no message: connections of the data plane prove that they know it by
// a challenge (token_handshake.h), those of gRPC by a certificate that is made from it (token_certificate.h).
// Thread rule: values, safe from any thread.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace braid::comm {

struct TlsOptions {  // empty paths: plain text
  std::string certificate_file;
  std::string key_file;
  std::string ca_file;
};

using Key = std::array<std::byte, 32>;

class JobToken {
 public:
  static constexpr std::size_t kLeastCharacters = 16;
  static constexpr std::size_t kMostCharacters = 4096;

  JobToken() = default;  // none
  /// White space around the text does not count. `source` ("BRAID_TOKEN") stands in front of errors.
  /// Throws: InvalidArgument for a text that is too short or too long; it says nothing of the text.
  JobToken(std::string_view text, std::string_view source);
  static JobToken random();

  bool empty() const { return secret_ == nullptr; }
  /// A key for one purpose: HMAC-SHA256 of the purpose. REQUIRES: not empty.
  Key key_for(std::string_view purpose) const;
  /// To be handed over to another process of the job by a way that nobody else sees. REQUIRES: not empty.
  const std::string& text() const;

 private:
  struct Secret;  // wiped at its end
  std::shared_ptr<const Secret> secret_;
};

/// Certificates come first where both are given; the token then proves the connections inside of a host.
struct Security {
  TlsOptions tls{};
  JobToken token{};

  bool has_tls() const {
    return !tls.certificate_file.empty() || !tls.key_file.empty() || !tls.ca_file.empty();
  }
  /// Neither: whoever reaches a port is believed.
  bool open() const { return !has_tls() && token.empty(); }
};

/// HMAC-SHA256. Throws: Internal.
Key hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> data);
/// In a time that does not depend on the contents.
bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b);
/// Warns of a connection that was refused. Of several within a second only the first is in the log, the rest
/// with BRAID_LOG=debug: strangers shall not fill it.
void warn_of_refusal(const std::string& text);
/// Unpredictable bytes. Throws: Internal.
void fill_random(std::span<std::byte> bytes);

}  // namespace braid::comm
