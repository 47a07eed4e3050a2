#include "worker/checkpoint/followed_run.h"

#include <ctime>
#include <optional>

namespace braid::worker {

FollowedRun::FollowedRun(const std::filesystem::path& root, RunStart how, std::chrono::seconds start_time)
    : store_(root),
      not_before_(how == RunStart::Overwrite
                      ? static_cast<std::int64_t>(std::time(nullptr)) - start_time.count()
                      : 0) {}

std::vector<CheckpointInfo> FollowedRun::checkpoints() const {
  std::vector<CheckpointInfo> all = store_.list();
  std::optional<CheckpointRun> current = read_run_file(store_.root());
  if (!all.empty() && (!current || current->before(all.back().meta.run))) current = all.back().meta.run;
  if (!current || current->begun < not_before_) return {};
  std::erase_if(all, [&](const CheckpointInfo& info) { return !info.meta.run.same_as(*current); });
  return all;
}

}  // namespace braid::worker
