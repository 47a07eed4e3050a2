#include "worker/run/user_hooks.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.h"
#include "proto/job.pb.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {
namespace {

std::string absolute(const std::string& path) {
  std::error_code unknown;
  return path.empty() ? path : std::filesystem::absolute(path, unknown).lexically_normal().string();
}

/// Puts `value` into the event under `name`, and as a variable under `variable`.
template <class Value>
void tell(HookEvent& event, const char* name, const char* variable, const Value& value) {
  auto json = nlohmann::ordered_json::parse(event.json);
  json[name] = value;
  event.variables[variable] =
      json[name].is_string() ? json[name].template get<std::string>() : json[name].dump();
  event.json = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

UserHooks::UserHooks(const RunContext& run)
    : job_(run.job.name()),
      directory_(absolute(run.job.run_directory())),
      every_steps_(std::max<std::uint64_t>(1, run.job.hooks().every_steps())),
      deadline_(static_cast<std::int64_t>(1000 * run.job.hooks().deadline_seconds())) {
  if (!run.peers.leader()) return;
  const proto::Hooks& hooks = run.job.hooks();
  const auto make = [](const char* field, const std::string& line) {
    return line.empty() ? nullptr : make_hook(field, line);
  };
  on_step_ = make("hooks.on_step", hooks.on_step());
  on_checkpoint_ = make("hooks.on_checkpoint", hooks.on_checkpoint());
  on_end_ = make("hooks.on_end", hooks.on_end());
  if (on_step_ || on_checkpoint_ || on_end_)
    thread_ = std::jthread([this](const std::stop_token& stop) { serve(stop); });
}

UserHooks::~UserHooks() = default;

HookEvent UserHooks::event(const char* name, std::uint64_t step) const {
  HookEvent event{"{}", {}};
  tell(event, "event", "BRAID_EVENT", name);
  tell(event, "job", "BRAID_JOB", job_);
  tell(event, "step", "BRAID_STEP", step);
  if (!directory_.empty()) tell(event, "run_directory", "BRAID_RUN_DIRECTORY", directory_);
  return event;
}

void UserHooks::step(std::uint64_t step, double loss) {
  if (!on_step_ || (step + 1) % every_steps_ != 0) return;
  {
    const std::lock_guard lock(mutex_);
    if (busy_ || !waiting_.empty()) {
      if (skipped_++ == 0)
        log_warning("hooks.on_step: a call takes longer than {} steps: some steps have none", every_steps_);
      return;
    }
  }
  HookEvent told = event("step", step);
  if (std::isfinite(loss)) tell(told, "loss", "BRAID_LOSS", loss);
  add({on_step_.get(), "hooks.on_step", std::move(told)});
}

void UserHooks::checkpoint(std::uint64_t step, const std::string& directory,
                           const std::map<std::string, double>& metrics) {
  if (!on_checkpoint_ || directory.empty()) return;
  HookEvent told = event("checkpoint", step);
  tell(told, "checkpoint", "BRAID_CHECKPOINT", absolute(directory));
  tell(told, "metrics", "BRAID_METRICS", metrics);
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= kMostWaiting) {
      log_warning("hooks.on_checkpoint: {} calls wait already: that of step {} is left out", kMostWaiting,
                  step);
      return;
    }
  }
  add({on_checkpoint_.get(), "hooks.on_checkpoint", std::move(told)});
}

void UserHooks::end(const TrainResult& result) {
  HookEvent told = event("end", result.last_step);
  tell(told, "exit", "BRAID_EXIT", result.exit);
  tell(told, "result", "BRAID_RESULT", nlohmann::ordered_json::parse(result.to_json()));
  finish(std::move(told));
}

void UserHooks::fail(const Error& error) {
  HookEvent told = event("end", 0);
  tell(told, "exit", "BRAID_EXIT", exit_code_for(error.code()));
  tell(told, "error", "BRAID_ERROR", error.message());
  finish(std::move(told));
}

void UserHooks::finish(HookEvent event) {
  if (!thread_.joinable()) return;
  if (on_end_) add({on_end_.get(), "hooks.on_end", std::move(event)});
  std::unique_lock lock(mutex_);
  if (busy_ || !waiting_.empty()) log_info("hooks: waiting for {}", waiting_.empty() ? "a call" : "calls");
  changed_.wait(lock, [&] { return !busy_ && waiting_.empty(); });  // each call has a deadline
  if (skipped_ > 0)
    log_warning("hooks.on_step: {} calls were left out, as one before them was busy", skipped_);
}

void UserHooks::add(Waiting call) {
  const std::lock_guard lock(mutex_);
  waiting_.push_back(std::move(call));
  changed_.notify_all();
}

void UserHooks::serve(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !waiting_.empty(); })) {
    const Waiting next = std::move(waiting_.front());
    waiting_.pop_front();
    busy_ = true;
    lock.unlock();
    try {
      const std::string wrong = next.hook->call(next.event, deadline_, stop);
      if (!wrong.empty()) log_warning("{}: {} {}", next.field, next.event.variables.at("BRAID_EVENT"), wrong);
    } catch (const std::exception& error) {
      log_warning("{}: cannot be called: {}", next.field, error.what());
    }
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace braid::worker
