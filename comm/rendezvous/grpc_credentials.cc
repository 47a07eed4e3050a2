#include "comm/rendezvous/grpc_credentials.h"

#include <fmt/core.h>
#include <grpc/support/log.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <fstream>
#include <mutex>
#include <optional>
#include <sstream>

#include "base/log.h"
#include "comm/transport/stream.h"
#include "comm/transport/token_certificate.h"

namespace braid::comm {
namespace {

std::string read_text(const std::string& file) {
  std::ifstream in(file);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf()))
    throw InvalidArgument(fmt::format("[rendezvous] TLS file '{}' cannot be read", file));
  return text.str();
}

/// gRPC tells only its log why a handshake failed.
void take_grpc_log(gpr_log_func_args* line) {
  const std::string text = line->message;
  if (line->severity < GPR_LOG_SEVERITY_ERROR) return log_debug("gRPC: {}", text);
  constexpr std::string_view kFailed = "Handshake failed with fatal error ";
  if (text.starts_with(kFailed))
    return warn_of_refusal("a connection was refused: TLS: " + text.substr(kFailed.size()));
  if (text.starts_with("No match found for server name"))
    return log_debug("gRPC: {}", text);  // as it shall be
  // Strangers who connect make one line each; what they are refused for, gRPC also tells us by itself.
  if (text.find("SecurityConnector::cancel_check_peer") != std::string::npos ||
      text.starts_with("Failed accept"))
    return warn_of_refusal("gRPC: " + text);
  log_warning("gRPC: {}", text);
}

void route_grpc_log() {
  static std::once_flag once;
  std::call_once(once, [] { gpr_set_log_function(take_grpc_log); });
}

struct Proof {
  std::string ca;
  PemPair own;
};

/// Nothing for plain text.
std::optional<Proof> proof_of(const Security& security) {
  route_grpc_log();
  const TlsOptions& tls = security.tls;
  if (make_tls_context(tls))  // also checks the files
    return Proof{read_text(tls.ca_file), {read_text(tls.certificate_file), read_text(tls.key_file)}};
  if (security.token.empty()) return std::nullopt;
  const PemPair own = token_certificate(security.token);
  return Proof{own.certificate, own};
}

std::shared_ptr<grpc::experimental::CertificateProviderInterface> make_provider(const Proof& proof) {
  return std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
      proof.ca, std::vector<grpc::experimental::IdentityKeyCertPair>{{proof.own.key, proof.own.certificate}});
}

}  // namespace

std::shared_ptr<grpc::ChannelCredentials> make_channel_credentials(const Security& security) {
  const auto proof = proof_of(security);
  if (!proof) return grpc::InsecureChannelCredentials();
  grpc::experimental::TlsChannelCredentialsOptions tls;
  tls.set_certificate_provider(make_provider(*proof));
  tls.watch_root_certs();
  tls.watch_identity_key_cert_pairs();
  tls.set_verify_server_certs(true);
  tls.set_check_call_host(false);
  // The chain is verified by the handshake; this verifier only does without the comparison of names.
  tls.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  return grpc::experimental::TlsCredentials(tls);
}

std::shared_ptr<grpc::ServerCredentials> make_server_credentials(const Security& security) {
  const auto proof = proof_of(security);
  if (!proof) return grpc::InsecureServerCredentials();
  grpc::experimental::TlsServerCredentialsOptions tls(make_provider(*proof));
  tls.watch_root_certs();
  tls.watch_identity_key_cert_pairs();
  tls.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return grpc::experimental::TlsServerCredentials(tls);
}

}  // namespace braid::comm
