#include "comm/transport/security.h"

#include <fmt/core.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <chrono>
#include <mutex>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/secret.h"

namespace braid::comm {
namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const auto begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

}  // namespace

struct JobToken::Secret {
  explicit Secret(std::string_view given) : text(given) {}
  ~Secret() { OPENSSL_cleanse(text.data(), text.size()); }
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;
  std::string text;
};

JobToken::JobToken(std::string_view text, std::string_view source) {
  text = trimmed(text);
  if (text.size() < kLeastCharacters || text.size() > kMostCharacters)
    throw InvalidArgument(fmt::format(
        "{}: a job token has {} to {} characters, this one has {}; a good one: openssl rand -hex 32", source,
        kLeastCharacters, kMostCharacters, text.size()));
  secret_ = std::make_shared<const Secret>(text);
}

JobToken JobToken::random() { return {random_secret(), "a random token"}; }

Key JobToken::key_for(std::string_view purpose) const {
  return hmac_sha256(std::as_bytes(std::span(text())), std::as_bytes(std::span(purpose)));
}

const std::string& JobToken::text() const {
  if (empty()) throw Internal("[security] there is no token");
  return secret_->text;
}

Key hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> data) {
  Key out;
  unsigned bytes = 0;
  const auto* made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                          reinterpret_cast<const unsigned char*>(data.data()), data.size(),
                          reinterpret_cast<unsigned char*>(out.data()), &bytes);
  if (made == nullptr || bytes != out.size()) throw Internal("[security] HMAC-SHA256 failed");
  return out;
}

bool equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

void warn_of_refusal(const std::string& text) {
  using Clock = std::chrono::steady_clock;
  static std::mutex mutex;
  static std::optional<Clock::time_point> last;
  static std::uint64_t silent = 0;
  std::lock_guard lock(mutex);
  const auto now = Clock::now();
  if (last && now < *last + std::chrono::seconds(1)) {
    ++silent;
    return log_debug("{}", text);
  }
  last = now;
  log_warning("{}{}", text, silent == 0 ? "" : fmt::format(" (and {} more before)", silent));
  silent = 0;
}

void fill_random(std::span<std::byte> bytes) {
  if (RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(bytes.size())) != 1)
    throw Internal("[security] no random numbers from the system");
}

}  // namespace braid::comm
