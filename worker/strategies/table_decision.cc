#include "worker/strategies/table_decision.h"

#include <filesystem>
#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "comm/communicator.h"
#include "proto/job.pb.h"
#include "worker/process/share_text.h"
#include "worker/strategies/table_measure.h"
#include "worker/strategies/table_plan_file.h"

namespace braid::worker {
namespace {

constexpr const char* kTablePlanFile = "tables.plan";
constexpr const char* kLeadersPlan = "the leader's table plan";
constexpr const char* kRefused = "refused: ";

class Planning {
 public:
  Planning(const TableDecision& decision, std::vector<PlannedTable>& tables)
      : decision_(decision), strategy_(decision.job.strategy()), tables_(tables) {
    if (!decision.job.checkpoint().directory().empty())
      file_ = std::filesystem::path(decision.job.checkpoint().directory()) / kTablePlanFile;
    key_ = table_plan_key(strategy_, decision.on_device, decision.costs.card, tables);
  }

  /// By this process alone.
  StepCosts alone() {
    plan_tables(strategy_, decision_.on_device, decision_.costs, tables_);
    if (decision_.choose_hot_rows) decision_.choose_hot_rows(tables_);
    return decision_.costs;
  }

  StepCosts with_others(comm::Communicator& communicator) {
    const bool leads = decision_.peers.leader();
    std::string text = leads ? kept() : std::string();
    share_text(text, communicator, decision_.wait);
    if (text.empty()) {
      StepCosts costs = decision_.costs;
      if (!decision_.on_device && decision_.job.streams().measure())
        costs = measured_costs(std::move(costs), communicator, decision_.wait);
      std::optional<InvalidArgument> refusal;
      if (leads) text = planned(costs, refusal);
      share_text(text, communicator, decision_.wait);
      if (refusal) throw InvalidArgument(*refusal);
      if (text.starts_with(kRefused)) throw InvalidArgument(text.substr(std::string(kRefused).size()));
      if (leads) keep(text);
    }
    StepCosts costs = take_table_plan(text, kLeadersPlan, tables_).costs;
    mark_users_word(strategy_, tables_);
    return costs;
  }

 private:
  /// Empty: nothing that is of use here.
  std::string kept() const {
    std::error_code unseen;
    if (!decision_.resume || file_.empty() || !std::filesystem::exists(file_, unseen)) return {};
    try {
      std::string text = read_file(file_);
      std::vector<PlannedTable> copies = tables_;
      if (take_table_plan(text, file_.string(), copies).made_for == key_) return text;
      log_warning("{} was made for other tables, workers or settings: planning again", file_.string());
    } catch (const InvalidArgument& error) {
      log_warning("{}: planning again", error.message());
    }
    return {};
  }

  std::string planned(const StepCosts& costs, std::optional<InvalidArgument>& refusal) const {
    std::vector<PlannedTable> copies = tables_;
    try {
      plan_tables(strategy_, decision_.on_device, costs, copies);
      if (decision_.choose_hot_rows) decision_.choose_hot_rows(copies);
    } catch (const InvalidArgument& error) {
      refusal = error;
      return kRefused + error.message();
    }
    return table_plan_text(key_, costs, copies);
  }

  void keep(const std::string& text) const {
    if (file_.empty()) return;
    std::filesystem::create_directories(file_.parent_path());
    write_file_atomically(file_, text);
  }

  const TableDecision& decision_;
  const proto::Strategy& strategy_;
  std::vector<PlannedTable>& tables_;
  std::filesystem::path file_;  // empty: no checkpoints, nothing is kept
  std::uint64_t key_ = 0;
};

}  // namespace

StepCosts decide_tables(const TableDecision& decision, std::vector<PlannedTable>& tables) {
  if (tables.empty()) return decision.costs;
  Planning planning(decision, tables);
  comm::Communicator* const communicator = decision.peers.communicator.get();
  if (!communicator || communicator->size() == 1) return planning.alone();
  return planning.with_others(*communicator);
}

}  // namespace braid::worker
