#include "ps/server/trial.h"

#include "base/error.h"

namespace braid::ps {

void add_pieces(const PullWork& work, const RepairWork& named, PullAnswer& answer) {
  for (auto& part : work.dense)
    for (auto& block : part) answer.pieces.push_back(block->values());
  for (const auto& rows : work.sparse) answer.pieces.emplace_back(rows);
  for (const auto& share : named.shares) {
    if (share.where.empty()) continue;
    answer.repaired += share.where.size();
    // Numbers among floats: pieces are sent as bytes.
    answer.pieces.emplace_back(reinterpret_cast<const float*>(share.where.data()), share.where.size());
  }
  for (const auto& share : named.shares)
    if (!share.rows.empty()) answer.pieces.emplace_back(share.rows);
}

Trial::~Trial() {
  for (const auto& job : parked_)
    job->done({make_error(ErrorCode::Cancelled, "[ps] the trial is over"), 0, {}, nullptr});
}

bool Trial::satisfied(const PullJob& job) const {
  if (!rounds_ || job.min_version == 0) return true;
  for (const TableId table : tables_->ids_of(job)) {
    const auto newest = pushed_.find({job.sender.worker, table});
    if (newest == pushed_.end() || newest->second != job.min_version) return false;
  }
  return true;
}

void Trial::pull(std::shared_ptr<PullJob> job, BufferPool& pool, TableThreads& threads) {
  tables_->check_pull(*job);
  workers_.insert(job->sender.worker);
  if (job->kind == PullKind::Ahead || job->kind == PullKind::Repair)
    throw InvalidArgument("[ps] a trial is of pulls in their turn");
  if (satisfied(*job))
    post(job, pool, threads);
  else
    parked_.push_back(std::move(job));
}

void Trial::post(const std::shared_ptr<PullJob>& job, BufferPool& pool, TableThreads& threads) const {
  auto work = std::make_shared<PullWork>(tables_->begin_pull(*job, pool));
  auto changed = std::make_shared<RepairWork>();
  changed->shares.resize(static_cast<std::size_t>(threads.threads()));
  threads.post(
      [tables = tables_, job, work, changed](int thread) {
        tables->pull(thread, *job, *work);
        if (job->kind == PullKind::Changed) tables->changed(thread, *job, *changed);
      },
      [job, work, changed](ErrorPtr error) {
        PullAnswer answer;
        answer.error = std::move(error);
        if (!answer.error) add_pieces(*work, *changed, answer);
        answer.hold = std::make_shared<std::pair<decltype(work), decltype(changed)>>(work, changed);
        job->done(std::move(answer));
      });
}

void Trial::push(const std::shared_ptr<PushJob>& job, BufferPool& pool, TableThreads& threads) {
  tables_->check(job->dense, job->sparse);
  workers_.insert(job->sender.worker);
  threads.post([tables = tables_, job](int thread) { tables->apply(thread, *job); },
               [job](ErrorPtr error) {
                 job->done({std::move(error), PushResult::Applied, {}});
               });
  for (const TableId table : tables_->ids_of(*job)) pushed_[{job->sender.worker, table}] = job->step + 1;
  for (auto it = parked_.begin(); it != parked_.end();) {
    if (!satisfied(**it)) {
      ++it;
      continue;
    }
    post(*it, pool, threads);
    it = parked_.erase(it);
  }
}

bool Trial::ended(std::int32_t worker) {
  workers_.erase(worker);
  return workers_.empty();
}

void Trial::tick(Clock::time_point now) {
  std::list<std::shared_ptr<PullJob>> late;
  for (auto it = parked_.begin(); it != parked_.end();) {
    const auto next = std::next(it);
    if (now >= (*it)->deadline) late.splice(late.end(), parked_, it);
    it = next;
  }
  for (const auto& job : late)
    job->done(
        {make_error(ErrorCode::DeadlineExceeded, "[ps] a pull on trial waits for a push"), 0, {}, nullptr});
}

}  // namespace braid::ps
