// How the second part of an exchange (engine/ops/common/two_parts.h) finds what its first part has begun: by
// the memory of the message, which is theirs alone from one to the other. Both are issued in a program's
// order, each in every launch and every capture. Thread rule: any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "comm/split_exchange.h"

namespace braid::worker {

class SentExchanges {
 public:
  void put(const void* message, std::shared_ptr<comm::SplitExchange> exchange) {
    std::lock_guard lock(mu_);
    sent_.insert_or_assign(message, std::move(exchange));
  }
  /// Null: nothing was sent so; what came, if anything, lies in the message.
  std::shared_ptr<comm::SplitExchange> take(const void* message) {
    std::lock_guard lock(mu_);
    auto found = sent_.extract(message);
    return found ? std::move(found.mapped()) : nullptr;
  }

 private:
  std::mutex mu_;
  std::map<const void*, std::shared_ptr<comm::SplitExchange>> sent_;  // guarded by mu_
};

}  // namespace braid::worker
