// The job's token as a certificate, for connections that know TLS and no other proof (gRPC). From the token
// follows an Ed25519 key, from the key a self-signed certificate; all processes of a job make the same. Each
// trusts this one alone, so who shows it and can sign with its key knows the token. The connection is
// encrypted, too. Thread rule: a pure function.
#pragma once

#include <string>

#include "comm/transport/security.h"

namespace braid::comm {

struct PemPair {
  std::string certificate;
  std::string key;
};

/// REQUIRES: the token is not empty. Throws: Internal with OpenSSL's reason.
PemPair token_certificate(const JobToken& token);

}  // namespace braid::comm
