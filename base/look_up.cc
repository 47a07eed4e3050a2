#include "base/look_up.h"

#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace braid {
namespace {

constexpr std::chrono::milliseconds kStopLook{20};  // a stop request is noticed within this time
constexpr std::chrono::seconds kOwnName{30};

using Name = std::pair<std::string, std::string>;  // host, port

struct Answer {
  bool there = false;
  int code = 0;
  AddressList list;
};

struct Questions {
  std::mutex mutex;
  std::condition_variable answered;
  // Guarded by mutex, as are answers: one question a name at a time.
  std::map<Name, std::shared_ptr<Answer>> open;
};

/// Lives as long as the process: a thread that was left alone answers at any time.
Questions& questions() {
  static Questions& questions = *new Questions;
  return questions;
}

int ask(const Name& name, int flags, AddressList& list) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(name.first.c_str(), name.second.c_str(), &hints, &found);
  if (code == 0)
    list = AddressList(found, [](const addrinfo* first) { freeaddrinfo(const_cast<addrinfo*>(first)); });
  return code;
}

/// On a thread that nobody waits for, since nothing ends getaddrinfo().
void ask_apart(const Name& name, const std::shared_ptr<Answer>& answer) {
  std::thread([name, answer] {
    AddressList list;
    const int code = ask(name, 0, list);
    Questions& all = questions();
    const std::lock_guard lock(all.mutex);
    *answer = {true, code, std::move(list)};
    all.open.erase(name);
    all.answered.notify_all();
  }).detach();
}

}  // namespace

AddressList look_up(const std::string& host, const std::string& port, const WaitContext& wait,
                    std::string& reason) {
  const Name name(host, port);
  AddressList list;
  if (ask(name, AI_NUMERICHOST, list) == 0) return list;
  Questions& all = questions();
  std::unique_lock lock(all.mutex);
  std::shared_ptr<Answer>& open = all.open[name];
  if (!open) {
    open = std::make_shared<Answer>();
    try {
      ask_apart(name, open);
    } catch (const std::system_error& error) {
      all.open.erase(name);
      reason = error.what();
      return nullptr;
    }
  }
  const std::shared_ptr<Answer> answer = open;
  while (!answer->there) {
    if (wait.expired() || wait.stopped()) {
      reason = "the name server does not answer";
      return nullptr;
    }
    const auto left = std::min<std::chrono::nanoseconds>(wait.remaining(), kStopLook);
    all.answered.wait_for(lock, left);
  }
  if (answer->code != 0) reason = gai_strerror(answer->code);
  return answer->list;
}

AddressList own_addresses(const std::string& host, const std::string& port, std::string& reason) {
  return look_up(host, port, WaitContext::with_timeout(kOwnName), reason);
}

}  // namespace braid
