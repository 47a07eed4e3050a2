// The attendance of the workers that do not lead: a stream to the leader, read by a thread.
#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/log.h"
#include "comm/membership/attendance.h"
#include "comm/rendezvous/grpc_channel.h"
#include "proto/cluster.grpc.pb.h"

namespace braid::comm {
namespace {

constexpr std::chrono::milliseconds kComeAgain{50};
constexpr std::chrono::seconds kLeaderTime{5};  // to answer, before it counts as lost

class WorkerAttendance final : public Attendance {
 public:
  explicit WorkerAttendance(AttendanceOptions options)
      : options_(std::move(options)), place_("[membership] the leader at " + options_.leader) {}
  ~WorkerAttendance() override { disconnect(); }

  World next_world(std::uint64_t left, const Holding& holding, const WaitContext& wait) override;
  bool newcomers_wait() const override { return false; }
  void on_over(std::function<void(std::uint64_t, const std::string&)> told) override {
    std::lock_guard lock(mutex_);
    told_ = std::move(told);
  }
  void leave(const std::string& why) override;
  void finish() override { leave("it has made the last step"); }
  void end(ErrorPtr) override {}

 private:
  using Stub = proto::Membership::Stub;
  using Stream = grpc::ClientReaderWriter<proto::MemberSays, proto::LeaderSays>;

  void find_leader(const WaitContext& wait);
  void require_leader(const WaitContext& wait);
  void connect();
  void disconnect();
  void read();
  void take(const proto::LeaderSays& says);
  /// False: the stream has ended.
  bool say_ready(std::uint64_t left, const Holding& holding);

  const AttendanceOptions options_;
  const std::string place_;
  std::unique_ptr<Stub> stub_;
  std::unique_ptr<grpc::ClientContext> context_;
  std::unique_ptr<Stream> stream_;
  bool was_in_ = false;  // a world

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<World> formed_;  // guarded by mutex_, as the rest
  std::optional<std::string> refused_;
  ErrorPtr ended_;
  bool broken_ = false;  // the stream
  std::function<void(std::uint64_t, const std::string&)> told_;

  std::jthread reader_;
};

/// The rendezvous on the same port knows how to wait for a host, and to say why it does not answer.
void WorkerAttendance::find_leader(const WaitContext& wait) {
  make_grpc_rendezvous(options_.leader, {options_.job + "#members", 0}, options_.security)->members(wait);
}

/// A connection has ended, which its host may have lived through.
void WorkerAttendance::require_leader(const WaitContext& wait) {
  try {
    find_leader(wait.at_most(kLeaderTime));
  } catch (const DeadlineExceeded& error) {
    throw Unavailable(fmt::format("{} is lost: {}", place_, error.message()));
  }
}

void WorkerAttendance::connect() {
  if (!stub_)
    stub_ = proto::Membership::NewStub(make_channel(options_.leader, options_.security, options_.silence));
  context_ = std::make_unique<grpc::ClientContext>();
  context_->set_wait_for_ready(false);
  stream_ = stub_->Attend(context_.get());
  {
    std::lock_guard lock(mutex_);
    broken_ = false;
    refused_.reset();
    formed_.reset();
  }
  proto::MemberSays says;
  says.mutable_join()->set_job(options_.job);
  says.mutable_join()->set_name(options_.name);
  says.mutable_join()->set_place(options_.place);
  stream_->Write(says);  // where that fails, so does the read
  reader_ = std::jthread([this] { read(); });
}

void WorkerAttendance::disconnect() {
  if (!stream_) return;
  context_->TryCancel();
  if (reader_.joinable()) reader_.join();
  stream_->Finish();
  stream_.reset();
}

void WorkerAttendance::read() {
  proto::LeaderSays says;
  while (stream_->Read(&says)) take(says);
  std::lock_guard lock(mutex_);
  broken_ = true;
  changed_.notify_all();
}

void WorkerAttendance::take(const proto::LeaderSays& says) {
  std::lock_guard lock(mutex_);
  if (says.has_formed()) {
    const auto& its = says.formed();
    formed_ = World{its.generation(), its.rank(), {its.names().begin(), its.names().end()},
                    its.source(),     its.step(), its.spread()};
  } else if (says.has_over()) {
    if (told_) told_(says.over().generation(), says.over().why());
  } else if (says.has_end()) {
    ended_ = make_error(static_cast<ErrorCode>(says.end().code()), says.end().why());
    // An end in order is one that all come to by themselves.
    if (told_ && ended_->code != ErrorCode::Cancelled) told_(0, says.end().why());
  } else if (says.says_case() == proto::LeaderSays::kRefused) {
    refused_ = says.refused();
  }
  changed_.notify_all();
}

bool WorkerAttendance::say_ready(std::uint64_t left, const Holding& holding) {
  {
    std::lock_guard lock(mutex_);
    formed_.reset();
  }
  proto::MemberSays says;
  says.mutable_ready()->set_left(left);
  says.mutable_ready()->set_step(holding.step);
  says.mutable_ready()->set_whole(holding.whole);
  return stream_->Write(says);
}

World WorkerAttendance::next_world(std::uint64_t left, const Holding& holding, const WaitContext& wait) {
  Holding mine = holding;
  for (;;) {
    if (!stream_) {
      find_leader(wait);
      connect();
    }
    say_ready(left, mine);
    std::unique_lock lock(mutex_);
    wait_on(changed_, lock, wait, place_ + ": waiting for a world with this worker",
            [&] { return formed_ || refused_ || ended_ || broken_; });
    if (ended_) throw_error(*ended_);
    if (formed_) {
      was_in_ = true;
      return *formed_;
    }
    const bool lost = !refused_ && was_in_;
    const std::string why = lost ? "the connection to the leader has ended" : refused_.value_or("");
    lock.unlock();
    disconnect();
    if (lost) require_leader(wait);
    if (!why.empty()) log_warning("{}: it comes again as a new one", why);
    wait.check(place_ + ": its connections end");
    std::this_thread::sleep_for(kComeAgain);
    left = 0;
    mine = {};
  }
}

void WorkerAttendance::leave(const std::string& why) {
  if (!stream_) return;
  proto::MemberSays says;
  says.mutable_leave()->set_why(why);
  stream_->Write(says);
  stream_->WritesDone();
}

}  // namespace

std::unique_ptr<Attendance> attend(AttendanceOptions options) {
  return std::make_unique<WorkerAttendance>(std::move(options));
}

}  // namespace braid::comm
