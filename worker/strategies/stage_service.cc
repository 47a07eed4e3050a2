#include "worker/strategies/stage_service.h"

#include <algorithm>

#include "base/error.h"
#include "comm/communicator.h"
#include "worker/process/share_text.h"

namespace braid::worker {
namespace {

std::string file_of(int rank) { return "stage-" + std::to_string(rank) + ".shard"; }

}  // namespace

bool StageService::is_elsewhere(const std::string& variable) const {
  return std::any_of(variables_.begin(), variables_.end(), [&](const StageVariable& each) {
    return each.info.name == variable && each.rank != communicator_->rank() % stages_;
  });
}

StageService::Request StageService::ask(Request request, const WaitContext& wait) {
  auto word = static_cast<std::int64_t>(request);
  communicator_->broadcast(&word, 1, DType::Int64, 0, StreamRef::host(), wait);
  return static_cast<Request>(word);
}

void StageService::gather(const WaitContext& wait) {
  if (communicator_->size() == 1) return;
  ask(Request::Gather, wait);
  for (const StageVariable& variable : variables_) {
    if (variable.rank == communicator_->rank()) continue;
    std::int64_t domain = 0;
    communicator_->recv(&domain, 1, DType::Int64, variable.rank, StreamRef::host(), wait);
    Tensor value(variable.info.dtype, variable.info.shape);
    communicator_->recv(value.raw(), value.elements(), value.dtype(), variable.rank, StreamRef::host(), wait);
    // The first time no program here may have made its memory yet.
    if (!store_.contains(variable.info.name))
      store_.get_or_create(variable.info.name, value.dtype(), value.shape(), static_cast<Domain>(domain));
    store_.write(variable.info.name, value);
  }
}

void StageService::hand_over(const WaitContext& wait) {
  for (const StageVariable& variable : variables_) {
    if (variable.rank != communicator_->rank()) continue;
    const auto domain = static_cast<std::int64_t>(store_.domain(variable.info.name));
    communicator_->send(&domain, 1, DType::Int64, 0, StreamRef::host(), wait);
    const Tensor value = *store_.read(variable.info.name);
    communicator_->send(value.raw(), value.elements(), value.dtype(), 0, StreamRef::host(), wait);
  }
}

std::vector<ShardInfo> StageService::save(const std::filesystem::path& directory, const WaitContext& wait) {
  if (communicator_->size() == 1) return {};
  ask(Request::Save, wait);
  std::string path = std::filesystem::absolute(directory).string();
  share_text(path, *communicator_, wait);
  return write(path, wait);
}

std::vector<ShardInfo> StageService::write(const std::filesystem::path& directory, const WaitContext& wait) {
  const int rank = communicator_->rank();
  std::int64_t mine[2] = {0, 0};
  if (rank > 0 && rank < stages_) {
    ShardWriter writer(directory / file_of(rank));
    for (const std::string& name : own_) {
      const Tensor value = *store_.read(name);
      writer.add(
          {name, value.dtype(), {value.shape().dims().begin(), value.shape().dims().end()}, value.bytes()},
          value.as_bytes());
    }
    const ShardInfo info = writer.finish();
    mine[0] = static_cast<std::int64_t>(info.bytes);
    mine[1] = static_cast<std::int64_t>(info.crc);
  }
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(communicator_->size()));
  communicator_->all_gather(mine, all.data(), 2, DType::Int64, StreamRef::host(), wait);
  std::vector<ShardInfo> shards;
  for (int r = 1; r < stages_; ++r) {
    const auto at = static_cast<std::size_t>(2 * r);
    shards.push_back(
        {file_of(r), static_cast<std::uint64_t>(all[at]), static_cast<std::uint32_t>(all[at + 1])});
  }
  return shards;
}

void StageService::release(const WaitContext& wait) {
  if (communicator_->size() > 1) ask(Request::Release, wait);
}

void StageService::serve(std::chrono::nanoseconds patience) {
  for (;;) {
    const WaitContext wait = WaitContext::with_timeout(patience);
    const Request request = ask(Request::Release, wait);
    if (request == Request::Release) return;
    if (request == Request::Gather) {
      hand_over(wait);
      continue;
    }
    std::string path;
    share_text(path, *communicator_, wait);
    write(path, wait);
  }
}

}  // namespace braid::worker
