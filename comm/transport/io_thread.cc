#include "comm/transport/io_thread.h"

#include <pthread.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/log.h"

namespace braid::comm {

using Work = boost::asio::executor_work_guard<boost::asio::io_context::executor_type>;

namespace {
constexpr std::chrono::seconds kJoinTime{5};
}

struct IoThread::State {
  explicit State(std::shared_ptr<boost::asio::io_context> context)
      : context(std::move(context)), work(this->context->get_executor()) {}

  const std::shared_ptr<boost::asio::io_context> context;
  std::optional<Work> work;
  std::mutex mutex;
  std::condition_variable_any changed;
  bool ended = false;  // guarded by mutex
  std::thread thread;

  static void run(std::shared_ptr<State> state, const std::string& name) {
    pthread_setname_np(pthread_self(), name.c_str());
    for (bool again = true; again;) {
      try {
        state->context->run();
        again = false;
      } catch (...) {  // callbacks of users are guarded where they are called; this is a defect of ours
        log_error("{}: {}", name, capture_current_exception()->message);
      }
    }
    std::lock_guard lock(state->mutex);
    state->ended = true;
    state->changed.notify_all();
  }
};

IoThread::IoThread(std::string name, std::shared_ptr<boost::asio::io_context> context)
    : state_(std::make_shared<State>(std::move(context))) {
  state_->thread = std::thread([state = state_, name = std::move(name)] { State::run(state, name); });
}

IoThread::~IoThread() {
  if (!on_this_thread()) {
    if (wait_ended(WaitContext::with_timeout(kJoinTime))) {
      state_->thread.join();
      return;
    }
    log_error("transport: an I/O thread is held up by a callback and is left behind");
  }
  state_->thread.detach();
}

std::shared_ptr<boost::asio::io_context> IoThread::context() const { return state_->context; }

bool IoThread::on_this_thread() const { return state_->thread.get_id() == std::this_thread::get_id(); }

void IoThread::finish() {
  boost::asio::post(*state_->context, [state = state_.get()] { state->work.reset(); });
}

bool IoThread::wait_ended(const WaitContext& wait) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_until(lock, wait.deadline, [&] { return state_->ended; });
}

}  // namespace braid::comm
