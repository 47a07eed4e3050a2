// The calling side: a channel is an I/O thread and a few links, over which calls are dealt out in turn.
#include <fmt/core.h>

#include <atomic>
#include <boost/asio/post.hpp>

#include "comm/transport/io_thread.h"
#include "comm/transport/link.h"

namespace braid::comm {
namespace {

class ChannelImpl final : public Channel {
 public:
  ChannelImpl(std::string address, const Options& options) : address_(std::move(address)) {
    if (options.connections < 1)
      throw InvalidArgument(fmt::format("[transport] channel to {}: connections must be at least 1, got {}",
                                        address_, options.connections));
    Link::Settings settings{address_, parse_address(address_), options.connect_timeout,
                            std::make_shared<const StreamFactory>(options.security, kDataPurpose)};
    settings.streams->require_for(settings.parsed.shared);
    thread_ = std::make_unique<IoThread>("braid-channel");
    for (int i = 0; i < options.connections; ++i)
      links_.push_back(std::make_shared<Link>(thread_->context(), settings));
  }

  ~ChannelImpl() override {
    auto shut_down = [links = links_] {
      for (auto& link : links) link->shut_down();
    };
    if (thread_->on_this_thread())
      shut_down();
    else
      boost::asio::post(*thread_->context(), shut_down);
    thread_->finish();
  }

  void call_async(OutgoingMessage request, SinkFn sink, DoneFn done, const WaitContext& wait) override {
    auto call = std::make_unique<Call>();
    call->id = next_id_++;
    call->type = request.type;
    call->request = std::move(request);
    call->sink = std::move(sink);
    call->done = std::move(done);
    call->wait = wait;
    links_[call->id % links_.size()]->submit(std::move(call));
  }

  IncomingMessage call(OutgoingMessage request, SinkFn sink, const WaitContext& wait) override {
    if (thread_->on_this_thread())
      throw Internal(fmt::format("[transport] channel to {}: call() on the channel's I/O thread", address_));
    struct Waiting {
      std::mutex mutex;
      std::condition_variable arrived;
      std::optional<CallResult> result;
    };
    auto waiting = std::make_shared<Waiting>();
    call_async(
        std::move(request), std::move(sink),
        [waiting](CallResult result) {
          std::lock_guard lock(waiting->mutex);
          waiting->result = std::move(result);
          waiting->arrived.notify_one();
        },
        wait);
    // The I/O thread watches deadline and stop request; only when it lets go is the caller's memory free.
    std::unique_lock lock(waiting->mutex);
    waiting->arrived.wait(lock, [&] { return waiting->result.has_value(); });
    if (waiting->result->error) throw_error(*waiting->result->error);
    return std::move(waiting->result->reply);
  }

  const std::string& address() const override { return address_; }

 private:
  const std::string address_;
  std::unique_ptr<IoThread> thread_;
  std::vector<std::shared_ptr<Link>> links_;
  std::atomic<std::uint64_t> next_id_{1};
};

}  // namespace

std::shared_ptr<Channel> Channel::create(std::string address, Options options) {
  return std::make_shared<ChannelImpl>(std::move(address), options);
}

PayloadSink allocate_sink(std::uint64_t bytes) {
  auto block = std::shared_ptr<std::byte[]>(new std::byte[bytes]);
  PayloadSink sink;
  sink.destinations = {MutableBytes(block.get(), bytes)};
  sink.keep_alive = std::shared_ptr<void>(block, block.get());
  return sink;
}

}  // namespace braid::comm
