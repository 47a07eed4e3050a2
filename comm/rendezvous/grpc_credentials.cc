#include "comm/rendezvous/grpc_credentials.h"

#include <fmt/core.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>

#include <fstream>
#include <sstream>

#include "comm/transport/stream.h"

namespace braid::comm {
namespace {

std::string read_text(const std::string& file) {
  std::ifstream in(file);
  std::ostringstream text;
  if (!in || !(text << in.rdbuf()))
    throw InvalidArgument(fmt::format("[rendezvous] TLS file '{}' cannot be read", file));
  return text.str();
}

std::shared_ptr<grpc::experimental::CertificateProviderInterface> make_provider(const TlsOptions& options) {
  return std::make_shared<grpc::experimental::StaticDataCertificateProvider>(
      read_text(options.ca_file), std::vector<grpc::experimental::IdentityKeyCertPair>{
                                      {read_text(options.key_file), read_text(options.certificate_file)}});
}

}  // namespace

std::shared_ptr<grpc::ChannelCredentials> make_channel_credentials(const TlsOptions& options) {
  if (!make_tls_context(options)) return grpc::InsecureChannelCredentials();  // also checks the files
  grpc::experimental::TlsChannelCredentialsOptions tls;
  tls.set_certificate_provider(make_provider(options));
  tls.watch_root_certs();
  tls.watch_identity_key_cert_pairs();
  tls.set_verify_server_certs(true);
  tls.set_check_call_host(false);
  // The chain is verified by the handshake; this verifier only does without the comparison of names.
  tls.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  return grpc::experimental::TlsCredentials(tls);
}

std::shared_ptr<grpc::ServerCredentials> make_server_credentials(const TlsOptions& options) {
  if (!make_tls_context(options)) return grpc::InsecureServerCredentials();
  grpc::experimental::TlsServerCredentialsOptions tls(make_provider(options));
  tls.watch_root_certs();
  tls.watch_identity_key_cert_pairs();
  tls.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return grpc::experimental::TlsServerCredentials(tls);
}

}  // namespace braid::comm
