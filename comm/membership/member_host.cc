// The leader's attendance: the membership behind a mutex, and a stream for each other worker.
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "base/log.h"
#include "comm/membership/attendance.h"
#include "proto/cluster.grpc.pb.h"

namespace braid::comm {
namespace {

constexpr std::chrono::seconds kFarewellTime{2};
constexpr std::size_t kMostNameBytes = 512;

using Says = proto::LeaderSays;

Says formed(const World& world) {
  Says says;
  proto::LeaderSays::World& its = *says.mutable_formed();
  its.set_generation(world.generation);
  its.set_rank(world.rank);
  for (const std::string& name : world.names) its.add_names(name);
  its.set_source(world.source);
  its.set_step(world.step);
  its.set_spread(world.spread);
  return says;
}

Says end_of(const ErrorPtr& why) {
  Says says;
  says.mutable_end()->set_code(static_cast<int>(why->code));
  says.mutable_end()->set_why(why->message);
  return says;
}

class Host;

/// One worker's stream. All but in_ is guarded by the host's mutex, which who calls the others holds.
class Line final : public grpc::ServerBidiReactor<proto::MemberSays, Says> {
 public:
  explicit Line(std::shared_ptr<Host> host);
  void begin(MemberId id) {
    id_ = id;
    StartRead(&in_);
  }
  void say(Says says);
  void read_on() {
    if (!closing_) StartRead(&in_);
  }
  void wrote(bool ok);
  /// Behind what is still to be said.
  void close();

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  void finish();

  const std::shared_ptr<Host> host_;
  MemberId id_ = kLeaderId;
  proto::MemberSays in_;
  std::deque<Says> out_;  // the first is being written
  bool closing_ = false, finished_ = false;
};

/// What the streams and the leader's thread share.
class Host : public std::enable_shared_from_this<Host> {
 public:
  Host(std::string job, const std::string& name, const MembershipLimits& limits)
      : job_(std::move(job)), membership_(limits, name, Clock::now()) {}

  // Of streams; any thread.
  Line* open();
  void hear(Line& line, MemberId id, const proto::MemberSays& says);
  void wrote(Line& line, bool ok);
  void lose(MemberId id);
  void forget(MemberId id);

  // Of the leader.
  World next_world(std::uint64_t left, const Holding& holding, const WaitContext& wait);
  void finish() {
    std::lock_guard lock(mutex_);
    finished_ = true;
  }
  void end(const ErrorPtr& why);
  void on_over(std::function<void(std::uint64_t, const std::string&)> told);
  bool newcomers_wait() const { return newcomers_wait_.load(std::memory_order_relaxed); }

 private:
  using Clock = std::chrono::steady_clock;

  // REQUIRES (all): mutex_.
  void take(MemberId id, const proto::MemberSays& says);
  void join(MemberId id, const proto::MemberSays::Join& join);
  void dispatch();
  void tell(const MembershipEvent& event);
  void say(MemberId id, Says says);
  void tell_the_end();

  const std::string job_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  Membership membership_;  // guarded by mutex_, as the rest
  std::map<MemberId, Line*> lines_;
  MemberId next_ = kLeaderId + 1;
  std::optional<World> formed_;  // of the leader
  bool finished_ = false;        // who comes and goes changes nothing any more
  bool over_ = false;
  ErrorPtr why_over_;
  std::function<void(std::uint64_t, const std::string&)> told_;
  std::atomic<bool> newcomers_wait_{false};
};

// --------------------------------------------------------------------------------------------------- streams

Line::Line(std::shared_ptr<Host> host) : host_(std::move(host)) {}

void Line::say(Says says) {
  if (finished_ || closing_) return;
  out_.push_back(std::move(says));
  if (out_.size() == 1) StartWrite(&out_.front());
}

void Line::wrote(bool ok) {
  out_.pop_front();
  if (!ok) out_.clear();
  if (finished_) return;
  if (!out_.empty())
    StartWrite(&out_.front());
  else if (closing_)
    finish();
}

void Line::close() {
  closing_ = true;
  if (out_.empty()) finish();
}

void Line::finish() {
  if (finished_) return;
  finished_ = true;
  Finish(grpc::Status::OK);
}

void Line::OnReadDone(bool ok) {
  if (ok)
    host_->hear(*this, id_, in_);
  else
    host_->lose(id_);
}
void Line::OnWriteDone(bool ok) { host_->wrote(*this, ok); }
void Line::OnCancel() { host_->lose(id_); }
void Line::OnDone() {
  host_->forget(id_);
  delete this;  // gRPC's rule for reactors of one call
}

// ------------------------------------------------------------------------------------------- what they share

Line* Host::open() {
  auto* line = new Line(shared_from_this());  // deletes itself
  std::lock_guard lock(mutex_);
  const MemberId id = next_++;
  lines_[id] = line;
  line->begin(id);
  if (over_) {
    line->say(end_of(why_over_));
    line->close();
  }
  return line;
}

void Host::hear(Line& line, MemberId id, const proto::MemberSays& says) {
  std::lock_guard lock(mutex_);
  if (!over_ && !finished_) take(id, says);
  line.read_on();
}

void Host::take(MemberId id, const proto::MemberSays& says) {
  const auto now = Clock::now();
  if (says.has_join()) {
    join(id, says.join());
  } else if (says.has_ready()) {
    const auto& ready = says.ready();
    membership_.ready(id, ready.left(), {ready.step(), ready.whole()}, now);
  } else if (says.has_leave()) {
    membership_.leave(id, says.leave().why(), true, now);
  }
  dispatch();
}

void Host::join(MemberId id, const proto::MemberSays::Join& join) {
  std::string name = join.name().substr(0, kMostNameBytes);
  if (join.job() == job_) return membership_.join(id, name, join.place());
  say(id, end_of(make_error(ErrorCode::InvalidArgument,
                            fmt::format("{} is of job '{}', and the leader of job '{}'", name,
                                        join.job().substr(0, kMostNameBytes), job_))));
  if (const auto line = lines_.find(id); line != lines_.end()) line->second->close();
}

void Host::wrote(Line& line, bool ok) {
  std::lock_guard lock(mutex_);
  line.wrote(ok);
}

void Host::lose(MemberId id) {
  std::lock_guard lock(mutex_);
  const auto line = lines_.find(id);
  if (line == lines_.end()) return;
  line->second->close();
  if (over_ || finished_) return;
  membership_.leave(id, "its connection ended", false, Clock::now());
  dispatch();
}

void Host::forget(MemberId id) {
  std::lock_guard lock(mutex_);
  lines_.erase(id);
  changed_.notify_all();
}

void Host::dispatch() {
  for (const MembershipEvent& event : membership_.take_events()) tell(event);
  newcomers_wait_ = membership_.wants_newcomers();
  changed_.notify_all();
}

void Host::tell(const MembershipEvent& event) {
  Says says;
  switch (event.kind) {
    case MembershipEvent::Kind::Formed:
      if (event.member == kLeaderId) {
        formed_ = event.world;
        return;
      }
      return say(event.member, formed(event.world));
    case MembershipEvent::Kind::Over:
      if (event.member == kLeaderId) {
        if (told_) told_(event.generation, event.text);
        return;
      }
      says.mutable_over()->set_generation(event.generation);
      says.mutable_over()->set_why(event.text);
      return say(event.member, std::move(says));
    case MembershipEvent::Kind::Refused:
      says.set_refused(event.text);
      return say(event.member, std::move(says));
    case MembershipEvent::Kind::Ended:
      over_ = true;
      why_over_ = make_error(ErrorCode::Unavailable, "too few workers: " + event.text);
      return tell_the_end();
  }
}

void Host::say(MemberId id, Says says) {
  if (const auto line = lines_.find(id); line != lines_.end()) line->second->say(std::move(says));
}

void Host::tell_the_end() {
  for (const auto& [id, line] : lines_) {
    line->say(end_of(why_over_));
    line->close();
  }
}

// ------------------------------------------------------------------------------------------------ the leader

World Host::next_world(std::uint64_t left, const Holding& holding, const WaitContext& wait) {
  std::unique_lock lock(mutex_);
  formed_.reset();
  if (!over_) membership_.ready(kLeaderId, left, holding, Clock::now());
  dispatch();
  while (!formed_ && !over_) {
    const auto now = Clock::now();
    const auto until = std::min(wait.deadline, membership_.next_deadline(now).value_or(wait.deadline));
    changed_.wait_until(lock, wait.stop, until, [&] { return formed_ || over_; });
    if (formed_ || over_) break;
    wait.check(fmt::format("waiting for workers: {}", membership_.describe(Clock::now())));
    membership_.tick(Clock::now());
    dispatch();
  }
  if (over_) throw_error(*why_over_);
  return *formed_;
}

void Host::end(const ErrorPtr& why) {
  std::unique_lock lock(mutex_);
  if (!over_) {
    over_ = true;
    why_over_ = why ? why : make_error(ErrorCode::Cancelled, kJobHasEnded);
    tell_the_end();
  }
  told_ = nullptr;
  changed_.wait_for(lock, kFarewellTime, [&] { return lines_.empty(); });
}

void Host::on_over(std::function<void(std::uint64_t, const std::string&)> told) {
  std::lock_guard lock(mutex_);
  told_ = std::move(told);
}

class MembershipService final : public proto::Membership::CallbackService {
 public:
  explicit MembershipService(std::shared_ptr<Host> host) : host_(std::move(host)) {}
  grpc::ServerBidiReactor<proto::MemberSays, Says>* Attend(grpc::CallbackServerContext*) override {
    return host_->open();
  }

 private:
  const std::shared_ptr<Host> host_;
};

class LeaderAttendance final : public Attendance {
 public:
  explicit LeaderAttendance(std::shared_ptr<Host> host) : host_(std::move(host)) {}
  ~LeaderAttendance() override {
    host_->end(make_error(ErrorCode::Unavailable, "the worker that leads the job has ended"));
  }

  World next_world(std::uint64_t left, const Holding& holding, const WaitContext& wait) override {
    return host_->next_world(left, holding, wait);
  }
  bool newcomers_wait() const override { return host_->newcomers_wait(); }
  void on_over(std::function<void(std::uint64_t, const std::string&)> told) override {
    host_->on_over(std::move(told));
  }
  void leave(const std::string& why) override {
    host_->end(make_error(ErrorCode::Unavailable, "the worker that leads the job has left: " + why));
  }
  void finish() override { host_->finish(); }
  void end(ErrorPtr why) override { host_->end(why); }

 private:
  const std::shared_ptr<Host> host_;
};

}  // namespace

HostedMembership host_membership(const std::string& job, const std::string& name,
                                 const MembershipLimits& limits) {
  auto host = std::make_shared<Host>(job, name, limits);
  auto service = std::make_shared<MembershipService>(host);
  return {std::make_unique<LeaderAttendance>(host),
          [service](grpc::ServerBuilder& builder) { builder.RegisterService(service.get()); }};
}

}  // namespace braid::comm
