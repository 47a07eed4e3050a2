#include "worker/input/step_feeds.h"

#include <algorithm>

#include "worker/step/next_batch.h"

namespace braid::worker {

StepFeeds::StepFeeds(const Graph& graph, const std::vector<std::string>& feeds) {
  std::vector<std::string> columns;
  for (const std::string& feed : feeds) {
    std::string column = next_column(graph, feed);
    if (column.empty())
      batch_.push_back(feed);
    else
      columns.push_back(std::move(column));
  }
  own_ = batch_.size();
  for (const std::string& column : columns) {
    auto at = std::ranges::find(batch_, column);
    if (at == batch_.end()) at = batch_.insert(at, column);
    next_.push_back(static_cast<std::size_t>(at - batch_.begin()));
  }
}

std::vector<Tensor> StepFeeds::of(const Batch& own, const Batch& next) const {
  std::vector<Tensor> feeds(own.tensors.begin(), own.tensors.begin() + static_cast<std::ptrdiff_t>(own_));
  for (const std::size_t place : next_) feeds.push_back(next.tensors[place]);
  return feeds;
}

std::vector<Tensor> StepFeeds::of_next(const Batch& next) const {
  std::vector<Tensor> feeds;
  for (const std::size_t place : next_) feeds.push_back(next.tensors[place]);
  return feeds;
}

}  // namespace braid::worker
