#include "worker/checkpoint/checkpointer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "worker/checkpoint/restored_values.h"
#include "worker/strategies/home_tables.h"
#include "worker/strategies/ids_ahead.h"

namespace braid::worker {
namespace {

constexpr const char* kShard = "worker-0.shard";
constexpr const char* kCursor = "worker-0";

std::vector<std::int64_t> dims_of(const Tensor& tensor) {
  return {tensor.shape().dims().begin(), tensor.shape().dims().end()};
}

/// "3,4"
std::string dims_text(const std::vector<std::int64_t>& dims) {
  std::string text;
  for (const std::int64_t dim : dims) text += (text.empty() ? "" : ",") + std::to_string(dim);
  return text;
}

}  // namespace

Checkpointer::Checkpointer(std::filesystem::path directory, CheckpointRun run, std::size_t keep,
                           std::string job_name, std::uint64_t plan_hash, Runtime& runtime,
                           Strategy& strategy)
    : store_(std::move(directory)),
      run_(std::move(run)),
      keep_(keep),
      job_name_(std::move(job_name)),
      plan_hash_(plan_hash),
      runtime_(runtime),
      strategy_(strategy) {}

void Checkpointer::keep_best(std::size_t count, std::string metric, bool higher_is_better) {
  keep_best_ = count;
  metric_ = std::move(metric);
  higher_is_better_ = higher_is_better;
}

std::filesystem::path Checkpointer::directory_of(std::uint64_t step) const {
  for (const CheckpointInfo& info : store_.list(run_))
    if (info.meta.step == step) return info.directory;
  return {};
}

std::optional<CheckpointInfo> Checkpointer::newest() const {
  std::vector<CheckpointInfo> all = store_.list(run_);
  for (; !all.empty(); all.pop_back()) {
    try {
      for (const ShardInfo& shard : all.back().shards)
        ShardReader(all.back().directory / shard.file).verify();
      return std::move(all.back());
    } catch (const DataLoss& e) {
      log_warning("skipping a damaged checkpoint: {}", e.message());
    }
  }
  return std::nullopt;
}

/// The newest stay, and the best; of equally good ones the newer.
void Checkpointer::prune() {
  if (keep_best_ == 0) return store_.prune(keep_);
  std::vector<CheckpointInfo> all = store_.list(run_);
  const std::size_t newest = std::min(keep_, all.size());
  std::vector<CheckpointInfo> older(all.begin(), all.end() - static_cast<std::ptrdiff_t>(newest));
  const auto value_of = [&](const CheckpointInfo& info) {
    const auto at = info.meta.metrics.find(metric_);
    if (at == info.meta.metrics.end()) return -std::numeric_limits<double>::infinity();
    return higher_is_better_ ? at->second : -at->second;
  };
  std::stable_sort(all.begin(), all.end(), [&](const CheckpointInfo& a, const CheckpointInfo& b) {
    return std::pair(value_of(a), a.meta.step) > std::pair(value_of(b), b.meta.step);
  });
  all.resize(std::min(keep_best_, all.size()));
  for (const CheckpointInfo& info : older) {
    const bool best = std::any_of(all.begin(), all.end(), [&](const CheckpointInfo& other) {
      return other.directory == info.directory;
    });
    if (!best) store_.remove(info.directory);
  }
}

std::vector<std::string> Checkpointer::own_variables() const {
  std::vector<std::string> names = runtime_.variables().names();
  std::erase_if(names, [&](const std::string& name) { return !strategy_.saves_local_variable(name); });
  return names;
}

void Checkpointer::save(std::uint64_t step, const std::string& cursor,
                        const std::map<std::string, double>& metrics,
                        const std::map<std::string, std::string>& attributes, const WaitContext& wait) {
  runtime_.variables().check_not_poisoned();
  const auto temporary = store_.begin(step);
  try {
    const CheckpointInfo info = write(temporary, step, cursor, metrics, attributes, wait);
    prune();
    log_info("checkpoint of step {}: {}", step, info.directory.string());
  } catch (...) {
    // Half a checkpoint would keep a full disk full. A server that still writes into it only fails.
    std::error_code ignored;
    std::filesystem::remove_all(temporary, ignored);
    throw;
  }
}

std::vector<std::int64_t> Checkpointer::whole_dims(const std::string& name) const {
  const Shape shape = strategy_.whole_shape(name, runtime_.variables().read(name)->shape());
  return {shape.dims().begin(), shape.dims().end()};
}

CheckpointInfo Checkpointer::write(const std::filesystem::path& temporary, std::uint64_t step,
                                   const std::string& cursor, const std::map<std::string, double>& metrics,
                                   const std::map<std::string, std::string>& attributes,
                                   const WaitContext& wait) {
  std::vector<ShardInfo> shards = strategy_.save_remote(temporary, step, run_.id, wait);
  if (const std::vector<std::string> names = own_variables(); !names.empty()) {
    ShardWriter writer(temporary / kShard);
    for (const std::string& name : names) {
      const Tensor value = *runtime_.variables().read(name);
      writer.add({name, value.dtype(), dims_of(value), value.bytes()}, value.as_bytes());
    }
    shards.push_back(writer.finish());
  }
  CheckpointMeta meta;
  meta.step = step;
  meta.run = run_;
  meta.plan_hash = plan_hash_;
  meta.job_name = job_name_;
  meta.cursors[kCursor] = cursor;
  meta.metrics = metrics;
  meta.attributes = attributes;
  meta.attributes["strategy"] = std::string(strategy_.name());
  for (const auto& name : runtime_.variables().names())
    if (!strategy_.saves_local_variable(name) && !is_of_ids_ahead(name) &&
        !is_home_variable(name))  // servers do not know shapes
      meta.attributes["shape/" + strategy_.model_name(name)] = dims_text(whole_dims(name));
  return store_.commit(temporary, meta, shards);
}

std::vector<std::string> Checkpointer::restore_local(const CheckpointInfo& info,
                                                     const std::map<std::string, std::string>& former_names) {
  std::vector<std::string> names = own_variables();
  if (names.empty()) return {};
  const RestoredValues restored(info, former_names);
  std::erase_if(names, [&](const std::string& name) {
    Tensor value = *runtime_.variables().read(name);
    const bool found = restored.read(name, value);
    if (found) runtime_.variables().write(name, value);
    return found;
  });
  runtime_.variables().clear_poison();
  return names;
}

}  // namespace braid::worker
