#include "comm/transport/stream.h"
#include "comm/transport/token_handshake.h"

namespace braid::comm {
namespace {

class TokenStream final : public Stream {
 public:
  TokenStream(std::unique_ptr<Stream> inner, TokenHandshake handshake)
      : inner_(std::move(inner)), handshake_(std::move(handshake)) {}

  IoStatus handshake() override {
    using State = TokenHandshake::State;
    for (;;) {
      IoStatus status;
      switch (handshake_.state()) {
        case State::Send:
          status = send();
          break;
        case State::Receive:
          status = receive();
          break;
        case State::Drain:
          status = receive();
          // Others of this thread have their turn, however much a stranger says.
          if (!status.ended) return {0, Readiness::Read, false, {}};
          break;
        case State::Done:
          return {};
        case State::Failed:
          status.ended = true;
          status.error = "it " + handshake_.error();
          return status;
      }
      if (status.ended && !status.error.empty()) return status;
      if (status.ended) handshake_.closed();
      // What came may be all that is needed, although more would have to be waited for.
      if (status.wait && status.bytes == 0) return status;
    }
  }

  IoStatus read(std::span<const iovec> pieces) override { return inner_->read(pieces); }
  IoStatus write(std::span<const iovec> pieces) override { return inner_->write(pieces); }
  IoStatus flush() override { return inner_->flush(); }

 private:
  IoStatus send() {
    const auto bytes = handshake_.to_send();
    const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    auto status = inner_->write({&piece, 1});
    if (status.bytes > 0) handshake_.sent(status.bytes);
    return status;
  }

  IoStatus receive() {
    const auto bytes = handshake_.to_receive();
    const iovec piece{bytes.data(), bytes.size()};
    auto status = inner_->read({&piece, 1});
    if (status.bytes > 0) handshake_.received(status.bytes);
    return status;
  }

  const std::unique_ptr<Stream> inner_;  // plain: nothing is to be flushed
  TokenHandshake handshake_;
};

}  // namespace

std::unique_ptr<Stream> make_token_stream(std::unique_ptr<Stream> inner, bool server, const JobToken& token,
                                          std::string_view purpose, std::vector<std::byte> answer) {
  using Side = TokenHandshake::Side;
  return std::make_unique<TokenStream>(std::move(inner), TokenHandshake(server ? Side::Server : Side::Client,
                                                                        token, purpose, std::move(answer)));
}

}  // namespace braid::comm
