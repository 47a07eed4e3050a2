#include "comm/transport/token_handshake.h"

#include <algorithm>
#include <cstring>

namespace braid::comm {
namespace {

constexpr std::string_view kMagic = "BTOK";
constexpr std::byte kVersion{1};
constexpr std::size_t kHeadBytes = 8;
constexpr std::size_t kMessageBytes = kHeadBytes + sizeof(Key);
constexpr std::byte kAccepted{1};
constexpr std::byte kRefused{2};

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

std::vector<std::byte> message(std::byte fifth, const Key& body) {
  std::vector<std::byte> out(kMessageBytes);
  std::memcpy(out.data(), kMagic.data(), kMagic.size());
  out[kMagic.size()] = fifth;
  std::copy(body.begin(), body.end(), out.begin() + kHeadBytes);
  return out;
}

Key body_of(const std::vector<std::byte>& message) {
  Key key;
  std::copy_n(message.begin() + kHeadBytes, key.size(), key.begin());
  return key;
}

}  // namespace

TokenHandshake::TokenHandshake(Side side, const JobToken& token, std::string_view purpose,
                               std::vector<std::byte> answer)
    : side_(side), key_(token.key_for("braid " + std::string(purpose))), answer_(std::move(answer)) {
  fill_random(own_nonce_);
  if (side_ == Side::Client)
    send(message(kVersion, own_nonce_), Step::Hello);
  else
    receive(kMessageBytes, Step::Hello);
}

Key TokenHandshake::mac(std::string_view who) const {
  const bool client = side_ == Side::Client;
  const Key& server_nonce = client ? peer_nonce_ : own_nonce_;
  const Key& client_nonce = client ? own_nonce_ : peer_nonce_;
  std::vector<std::byte> data;
  for (const auto part :
       {bytes_of(who), std::span<const std::byte>(server_nonce), std::span<const std::byte>(client_nonce)})
    data.insert(data.end(), part.begin(), part.end());
  return hmac_sha256(key_, data);
}

void TokenHandshake::send(std::vector<std::byte> bytes, Step step) {
  out_ = std::move(bytes);
  moved_ = 0;
  step_ = step;
  state_ = State::Send;
}

void TokenHandshake::receive(std::size_t bytes, Step step) {
  in_.assign(bytes, std::byte{0});
  moved_ = 0;
  step_ = step;
  state_ = State::Receive;
}

void TokenHandshake::sent(std::size_t bytes) {
  moved_ += bytes;
  if (moved_ < out_.size()) return;
  if (refused_) {
    if (step_ == Step::Verdict) return fail(*refused_);
    in_.assign(4096, std::byte{0});
    moved_ = 0;
    state_ = State::Drain;
    return;
  }
  switch (step_) {
    case Step::Hello:
      return receive(kMessageBytes, Step::Challenge);
    case Step::Challenge:
      return receive(sizeof(Key), Step::Proof);
    case Step::Proof:
      return receive(kMessageBytes, Step::Verdict);
    case Step::Verdict:
      state_ = State::Done;
  }
}

/// A peer that speaks something else is known by its first bytes; it may send no more before it hears of us.
bool TokenHandshake::is_strange() {
  if (step_ == Step::Proof) return false;
  if (std::memcmp(in_.data(), kMagic.data(), std::min(moved_, kMagic.size())) != 0) {
    if (side_ == Side::Client) {
      fail("does not ask for the job's token: it was started without one");
    } else {
      refused_ = "did not prove that it knows the job's token: it does not speak of one";
      send(answer_, Step::Hello);
      if (answer_.empty()) fail(*refused_);
    }
    return true;
  }
  if (step_ != Step::Verdict && moved_ > kMagic.size() && in_[kMagic.size()] != kVersion) {
    fail("speaks another version of the token's handshake");
    return true;
  }
  return false;
}

void TokenHandshake::received(std::size_t bytes) {
  if (state_ == State::Drain) return;
  moved_ += bytes;
  if (!is_strange() && moved_ == in_.size()) take();
}

void TokenHandshake::take() {
  switch (step_) {
    case Step::Hello:
      peer_nonce_ = body_of(in_);
      return send(message(kVersion, own_nonce_), Step::Challenge);
    case Step::Challenge: {
      peer_nonce_ = body_of(in_);
      const Key proof = mac("client");
      return send({proof.begin(), proof.end()}, Step::Proof);
    }
    case Step::Proof:
      if (equal_in_constant_time(in_, mac("client")))
        return send(message(kAccepted, mac("server")), Step::Verdict);
      refused_ = "has another job token than this process";
      return send(message(kRefused, Key{}), Step::Verdict);
    case Step::Verdict:
      if (in_[kMagic.size()] == kRefused) return fail("has another job token than this process");
      if (in_[kMagic.size()] != kAccepted || !equal_in_constant_time(body_of(in_), mac("server")))
        return fail("did not prove that it knows the job's token");
      state_ = State::Done;
  }
}

void TokenHandshake::closed() {
  if (state_ == State::Done || state_ == State::Failed) return;
  fail(refused_ ? *refused_ : "closed the connection before it had proved that it knows the job's token");
}

void TokenHandshake::fail(std::string error) {
  error_ = std::move(error);
  state_ = State::Failed;
}

}  // namespace braid::comm
