// How the two ends of a connection prove to each other that they know the job's token, before either reads
// anything else from it. A state machine over bytes: whoever owns the socket moves them. One thread.
//
//   hello     := magic version:u8 zero:u8{3} nonce:u8{32}     client to server, 40 bytes
//   challenge := the same, with the server's nonce            server to client
//   proof     := HMAC(key, "client" server_nonce nonce)       client to server, 32 bytes
//   verdict   := magic status:u8 zero:u8{3} mac:u8{32}        server to client, 40 bytes
//     status 1: mac is HMAC(key, "server" server_nonce nonce); 2: the proof was wrong, mac is 0
//
// magic is "BTOK", HMAC is HMAC-SHA256, key is HMAC(token, "braid " purpose). The client proves first, so a
// stranger who connects to a server learns nothing that depends on the token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/transport/security.h"

namespace braid::comm {

class TokenHandshake {
 public:
  enum class Side { Client, Server };
  enum class State {
    Send,     // to_send() has bytes for the peer
    Receive,  // to_receive() wants bytes of the peer
    Drain,    // the rest of what a stranger says is to be read and thrown away, until it closes
    Done,
    Failed,
  };

  /// `purpose` differs for each kind of connection, so that a proof is of use for one kind alone. `answer`:
  /// what a server says to a client that begins with something else than a hello, e.g. one without a token.
  /// REQUIRES: the token is not empty.
  TokenHandshake(Side side, const JobToken& token, std::string_view purpose,
                 std::vector<std::byte> answer = {});

  State state() const { return state_; }
  std::span<const std::byte> to_send() const { return std::span(out_).subspan(moved_); }
  void sent(std::size_t bytes);
  std::span<std::byte> to_receive() { return std::span(in_).subspan(moved_); }
  void received(std::size_t bytes);
  /// The peer closed its side.
  void closed();
  /// Of Failed: what is wrong with the peer, after "it ": "did not prove ..."
  const std::string& error() const { return error_; }

 private:
  enum class Step { Hello, Challenge, Proof, Verdict };

  void send(std::vector<std::byte> bytes, Step step);
  void receive(std::size_t bytes, Step step);
  void take();
  bool is_strange();
  void fail(std::string error);
  Key mac(std::string_view who) const;

  const Side side_;
  const Key key_;
  const std::vector<std::byte> answer_;
  Key own_nonce_;
  Key peer_nonce_{};
  State state_ = State::Send;
  Step step_ = Step::Hello;
  std::vector<std::byte> out_;
  std::vector<std::byte> in_;
  std::size_t moved_ = 0;               // of out_ or in_
  std::optional<std::string> refused_;  // what the error will be once out_ is sent
  std::string error_;
};

}  // namespace braid::comm
