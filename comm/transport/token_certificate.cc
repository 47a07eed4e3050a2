#include "comm/transport/token_certificate.h"

#include <fmt/core.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>

#include "base/error.h"

namespace braid::comm {
namespace {

template <auto Free>
struct Freer {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
template <class T, auto Free>
using Owned = std::unique_ptr<T, Freer<Free>>;

void require(bool good, const char* what) {
  if (good) return;
  const auto code = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = ERR_reason_error_string(code);
  throw Internal(fmt::format("[security] the token's certificate: {}: {}", what, reason ? reason : "failed"));
}

template <class Write>
std::string pem(const char* what, Write write) {
  const Owned<BIO, BIO_free> memory(BIO_new(BIO_s_mem()));
  require(memory && write(memory.get()) == 1, what);
  char* text = nullptr;
  const long bytes = BIO_get_mem_data(memory.get(), &text);
  return {text, static_cast<std::size_t>(bytes)};
}

void add_extension(X509* certificate, int kind, const char* value) {
  const Owned<X509_EXTENSION, X509_EXTENSION_free> extension(
      X509V3_EXT_conf_nid(nullptr, nullptr, kind, value));
  require(extension && X509_add_ext(certificate, extension.get(), -1) == 1, value);
}

}  // namespace

PemPair token_certificate(const JobToken& token) {
  const Key seed = token.key_for("braid certificate 1");
  const Owned<EVP_PKEY, EVP_PKEY_free> key(EVP_PKEY_new_raw_private_key(
      EVP_PKEY_ED25519, nullptr, reinterpret_cast<const unsigned char*>(seed.data()), seed.size()));
  require(key != nullptr, "key");
  const Owned<X509, X509_free> certificate(X509_new());
  X509* x = certificate.get();
  require(x != nullptr && X509_set_version(x, 2) == 1, "version");
  ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
  // Fixed, so that clocks that differ, or were never set, do not matter: the token is what ends.
  require(ASN1_TIME_set_string(X509_getm_notBefore(x), "19700101000000Z") == 1 &&
              ASN1_TIME_set_string(X509_getm_notAfter(x), "29991231235959Z") == 1,
          "times");
  X509_NAME* name = X509_get_subject_name(x);
  require(
      X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                                 reinterpret_cast<const unsigned char*>("braid job token"), -1, -1, 0) == 1 &&
          X509_set_issuer_name(x, name) == 1 && X509_set_pubkey(x, key.get()) == 1,
      "names");
  add_extension(x, NID_basic_constraints, "critical,CA:TRUE");
  require(X509_sign(x, key.get(), nullptr) > 0, "signature");
  return {pem("certificate", [&](BIO* out) { return PEM_write_bio_X509(out, x); }), pem("key", [&](BIO* out) {
            return PEM_write_bio_PrivateKey(out, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
          })};
}

}  // namespace braid::comm
