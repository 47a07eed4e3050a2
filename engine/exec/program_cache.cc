#include "engine/exec/program_cache.h"

#include <algorithm>

#include "base/error.h"

namespace braid {
namespace {

bool same_signature(const std::vector<FeedSpec>& a, const std::vector<FeedSpec>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const FeedSpec& x, const FeedSpec& y) {
    return x.dtype == y.dtype && x.shape == y.shape && x.name == y.name;
  });
}

}  // namespace

ProgramCache::ProgramCache(Graph graph, std::vector<std::string> fetches, std::vector<std::string> targets,
                           CompileOptions options, Runtime& runtime, std::size_t capacity)
    : graph_(std::move(graph)),
      fetches_(std::move(fetches)),
      targets_(std::move(targets)),
      options_(options),
      runtime_(runtime),
      capacity_(capacity) {
  if (capacity_ == 0) throw InvalidArgument("a program cache needs room for at least one program");
}

std::shared_ptr<Instance> ProgramCache::instance(const std::vector<FeedSpec>& feeds) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& e) { return same_signature(e.feeds, feeds); });
  if (found != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, found);
    return entries_.front().instance;
  }
  auto program = compile(graph_, {feeds, fetches_, targets_}, options_);
  entries_.push_front({feeds, std::make_shared<Instance>(std::move(program), runtime_)});
  ++compiled_;
  if (entries_.size() > capacity_) entries_.pop_back();
  return entries_.front().instance;
}

}  // namespace braid
