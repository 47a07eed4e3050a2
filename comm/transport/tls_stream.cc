// TLS through OpenSSL, over the socket itself and not over Asio's stream: reads decrypt into the destination,
// and writes pass through one record's buffer, so that a write that must be repeated never refers to the
// caller's memory.
#include <fmt/core.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>
#include <vector>

#include "comm/transport/stream.h"
#include "comm/transport/token_certificate.h"

namespace braid::comm {
namespace {

constexpr std::size_t kRecordBytes = 16 << 10;  // the most that one TLS record carries

std::string openssl_error() {
  auto code = ERR_peek_last_error();
  ERR_clear_error();
  if (code == 0) return "unknown TLS error";
  const char* reason = ERR_reason_error_string(code);
  return reason ? reason : fmt::format("TLS error {:#x}", code);
}

// OpenSSL's socket BIO writes without MSG_NOSIGNAL, so a peer that went away would end the process with
// SIGPIPE.
int bio_write(BIO* bio, const char* data, int bytes) {
  auto socket = static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio)));
  BIO_clear_retry_flags(bio);
  auto sent = send(socket, data, static_cast<std::size_t>(bytes), MSG_NOSIGNAL);
  if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int bio_read(BIO* bio, char* data, int bytes) {
  auto socket = static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio)));
  BIO_clear_retry_flags(bio);
  auto got = recv(socket, data, static_cast<std::size_t>(bytes), 0);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

long bio_ctrl(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

int bio_create(BIO* bio) {
  BIO_set_init(bio, 1);
  return 1;
}

struct BioMethod {
  BioMethod() : method(BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "braid socket")) {
    BIO_meth_set_write(method, bio_write);
    BIO_meth_set_read(method, bio_read);
    BIO_meth_set_ctrl(method, bio_ctrl);
    BIO_meth_set_create(method, bio_create);
  }
  ~BioMethod() { BIO_meth_free(method); }
  BIO_METHOD* method;
};

class TlsStream final : public Stream {
 public:
  TlsStream(SSL* ssl, int socket, std::shared_ptr<const BioMethod> method)
      : method_(std::move(method)), ssl_(ssl), record_(kRecordBytes) {
    BIO* bio = BIO_new(method_->method);
    BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(socket)));
    SSL_set_bio(ssl_, bio, bio);
  }
  ~TlsStream() override { SSL_free(ssl_); }

  IoStatus handshake() override {
    IoStatus result;
    errno = 0;
    auto code = SSL_do_handshake(ssl_);
    if (code != 1) explain(code, result);
    return result;
  }

  IoStatus read(std::span<const iovec> pieces) override {
    IoStatus result;
    for (auto& piece : pieces) {
      auto* to = static_cast<char*>(piece.iov_base);
      auto left = piece.iov_len;
      while (left > 0) {
        std::size_t got = 0;
        errno = 0;
        auto code = SSL_read_ex(ssl_, to, left, &got);
        if (code != 1) {
          explain(code, result);
          // What came before the end is handed over first; the end is met again by the next read.
          if (result.ended && result.bytes > 0) result.ended = false;
          return result;
        }
        result.bytes += got;
        to += got;
        left -= got;
      }
    }
    return result;
  }

  IoStatus write(std::span<const iovec> pieces) override {
    IoStatus result = flush();
    if (result.wait || result.ended) return result;
    for (auto& piece : pieces) {
      auto bytes = std::min(piece.iov_len, kRecordBytes - end_);
      std::memcpy(record_.data() + end_, piece.iov_base, bytes);
      end_ += bytes;
      result.bytes += bytes;
      if (end_ == kRecordBytes) break;
    }
    auto taken = result.bytes;
    result = flush();
    result.bytes = taken;
    return result;
  }

  IoStatus flush() override {
    IoStatus result;
    if (end_ == 0) return result;
    errno = 0;
    std::size_t sent = 0;  // without SSL_MODE_ENABLE_PARTIAL_WRITE: all of it or nothing
    auto code = SSL_write_ex(ssl_, record_.data(), end_, &sent);
    if (code == 1)
      end_ = 0;
    else
      explain(code, result);
    return result;
  }

 private:
  void explain(int code, IoStatus& result) {
    switch (SSL_get_error(ssl_, code)) {
      case SSL_ERROR_WANT_READ:
        result.wait = Readiness::Read;
        return;
      case SSL_ERROR_WANT_WRITE:
        result.wait = Readiness::Write;
        return;
      case SSL_ERROR_ZERO_RETURN:
        result.ended = true;
        return;
      case SSL_ERROR_SYSCALL:
        result.ended = true;
        if (errno != 0) result.error = std::system_category().message(errno);
        ERR_clear_error();
        return;
      default:
        result.ended = true;
        result.error = "TLS: " + openssl_error();
        // "certificate verify failed" alone does not say that it has expired, or that a clock is wrong.
        if (const long why = SSL_get_verify_result(ssl_); why != X509_V_OK)
          result.error += fmt::format(" ({})", X509_verify_cert_error_string(why));
    }
  }

  const std::shared_ptr<const BioMethod> method_;  // used until SSL_free
  SSL* ssl_;
  std::vector<std::byte> record_;
  std::size_t end_ = 0;  // bytes of record_ that are taken and not yet written
};

}  // namespace

struct TlsContext::Impl {
  Impl() {
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  }
  SSL_CTX* context = SSL_CTX_new(TLS_method());
  std::shared_ptr<const BioMethod> bio = std::make_shared<BioMethod>();
  ~Impl() { SSL_CTX_free(context); }
};

TlsContext::TlsContext(const TlsOptions& options) : impl_(std::make_unique<Impl>()) {
  auto* context = impl_->context;
  auto require = [](int code, const char* what, const std::string& file) {
    if (code != 1)
      throw InvalidArgument(
          fmt::format("[transport] TLS {} '{}' cannot be used: {}", what, file, openssl_error()));
  };
  require(SSL_CTX_use_certificate_chain_file(context, options.certificate_file.c_str()), "certificate",
          options.certificate_file);
  require(SSL_CTX_use_PrivateKey_file(context, options.key_file.c_str(), SSL_FILETYPE_PEM), "key",
          options.key_file);
  require(SSL_CTX_check_private_key(context), "key", options.key_file);
  require(SSL_CTX_load_verify_locations(context, options.ca_file.c_str(), nullptr), "CA", options.ca_file);
}

TlsContext::TlsContext(const JobToken& token) : impl_(std::make_unique<Impl>()) {
  const PemPair own = token_certificate(token);
  const auto in_memory = [](const std::string& text) {
    return std::unique_ptr<BIO, decltype(&BIO_free)>(
        BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), &BIO_free);
  };
  const auto text = in_memory(own.certificate), key_text = in_memory(own.key);
  X509* certificate = PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr);
  EVP_PKEY* key = PEM_read_bio_PrivateKey(key_text.get(), nullptr, nullptr, nullptr);
  const bool good = certificate != nullptr && key != nullptr &&
                    SSL_CTX_use_certificate(impl_->context, certificate) == 1 &&
                    SSL_CTX_use_PrivateKey(impl_->context, key) == 1 &&
                    X509_STORE_add_cert(SSL_CTX_get_cert_store(impl_->context), certificate) == 1;
  X509_free(certificate);
  EVP_PKEY_free(key);
  if (!good) throw Internal("[transport] the token's certificate: " + openssl_error());
}

TlsContext::~TlsContext() = default;

void TlsContext::offer_http2() {
  constexpr unsigned char kHttp2[] = {2, 'h', '2'};
  SSL_CTX_set_alpn_protos(impl_->context, kHttp2, sizeof(kHttp2));
}

std::unique_ptr<Stream> TlsContext::make_stream(int socket, bool server) const {
  SSL* ssl = SSL_new(impl_->context);
  if (!ssl) throw Internal("[transport] " + openssl_error());
  server ? SSL_set_accept_state(ssl) : SSL_set_connect_state(ssl);
  return std::make_unique<TlsStream>(ssl, socket, impl_->bio);
}

std::shared_ptr<const TlsContext> make_tls_context(const TlsOptions& options) {
  const std::pair<const std::string*, const char*> files[] = {{&options.certificate_file, "certificate_file"},
                                                              {&options.key_file, "key_file"},
                                                              {&options.ca_file, "ca_file"}};
  auto named =
      std::count_if(std::begin(files), std::end(files), [](auto& file) { return !file.first->empty(); });
  if (named == 0) return nullptr;
  for (auto& [file, name] : files) {
    if (file->empty())
      throw InvalidArgument(fmt::format("[transport] TLS needs all three files, and {} is empty", name));
    if (!std::ifstream(*file))  // of which OpenSSL says no more than "system lib"
      throw InvalidArgument(
          fmt::format("[transport] TLS {} '{}': {}", name, *file, std::generic_category().message(errno)));
  }
  return std::make_shared<const TlsContext>(options);
}

}  // namespace braid::comm
