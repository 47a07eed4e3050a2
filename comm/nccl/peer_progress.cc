#include "comm/nccl/peer_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <thread>

#include "base/error.h"
#include "base/log.h"

namespace braid::comm {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kNewsEvery{50};    // at most
constexpr milliseconds kAliveEvery{500};  // at least
constexpr milliseconds kSilent{4000};     // not heard of for so long: stopped or gone
constexpr milliseconds kAnswer{1000};     // of the rendezvous
constexpr milliseconds kGone{1000};       // a rank whose connection broke may connect again until then
constexpr std::string_view kGaveUp = "gave up: ";

bool is_behind(const RankProgress& other, const RankProgress& mine) {
  if (other.step != mine.step) return other.step < mine.step;
  return other.collectives < mine.collectives;
}

}  // namespace

PeerProgress::PeerProgress(Rendezvous& rendezvous, std::string key, int rank, std::vector<std::string> names)
    : rendezvous_(rendezvous), key_(std::move(key)), rank_(rank), names_(std::move(names)) {
  mine_.rank = rank;
}

void PeerProgress::begin_step(std::uint64_t step) {
  std::lock_guard lock(mu_);
  mine_.step = step + 1;
  news_ = true;
}

void PeerProgress::begin_collective(std::string_view operation) {
  std::lock_guard lock(mu_);
  ++mine_.collectives;
  mine_.last_collective = operation;
  news_ = true;
}

void PeerProgress::give_up(const std::string& why) {
  {
    std::lock_guard lock(mu_);
    mine_.last_collective = std::string(kGaveUp) + why;
  }
  post_now();
}

std::uint64_t PeerProgress::collectives() const {
  std::lock_guard lock(mu_);
  return mine_.collectives;
}

void PeerProgress::post() {
  {
    std::lock_guard lock(mu_);
    const auto since = Clock::now() - posted_;
    if (since < (news_ ? kNewsEvery : kAliveEvery)) return;
  }
  post_now();
}

void PeerProgress::post_now() {
  RankProgress progress;
  bool member = false;
  {
    std::lock_guard lock(mu_);
    progress = mine_;
    member = member_;
    news_ = false;
    posted_ = Clock::now();
  }
  try {
    const WaitContext wait = WaitContext::with_timeout(kAnswer);
    if (member)
      rendezvous_.heartbeat(member_of(rank_), wait);
    else
      rendezvous_.add_member({member_of(rank_), 0, {}}, wait);
    rendezvous_.post_progress(progress, wait);
    {
      std::lock_guard lock(mu_);
      member_ = true;
      answered_ = Clock::now();
    }
    stay();
  } catch (const InvalidArgument&) {
    std::lock_guard lock(mu_);
    member_ = false;  // the host was started anew
  } catch (const Error& error) {
    log_debug("[nccl] rank {}: the rendezvous at {} does not answer: {}", rank_, rendezvous_.address(),
              error.message());
  }
}

void PeerProgress::stay() {
  std::lock_guard lock(presence_mu_);
  if (presence_ && presence_->state() == Presence::State::Held) return;
  presence_.reset();
  presence_ = rendezvous_.stay(member_of(rank_));
}

std::optional<std::string> PeerProgress::who_is_lost() {
  try {
    const WaitContext wait = WaitContext::with_timeout(kAnswer);
    if (auto lost = who_gave_up(wait)) return lost;
    return who_is_gone(wait);
  } catch (const Error&) {
    if (host_is_gone())
      return fmt::format("{}, which hosts the rendezvous, is gone: its connection has broken", name_of(0));
  }
  return std::nullopt;
}

std::optional<std::string> PeerProgress::who_gave_up(const WaitContext& wait) {
  for (const RankProgress& other : rendezvous_.progress(wait))
    if (other.rank != rank_ && other.last_collective.starts_with(kGaveUp))
      return name_of(other.rank) + " " + other.last_collective;
  return std::nullopt;
}

std::optional<std::string> PeerProgress::who_is_gone(const WaitContext& wait) {
  const std::vector<MemberStatus> members = rendezvous_.members(wait);
  for (int rank = 0; rank < static_cast<int>(names_.size()); ++rank) {
    const auto member = std::find_if(members.begin(), members.end(), [&](const MemberStatus& status) {
      return status.member.name == member_of(rank);
    });
    if (rank == rank_ || member == members.end() || member->since_gone.value_or(milliseconds{}) < kGone)
      continue;
    return fmt::format("{} is gone: its connection to the rendezvous has broken", name_of(rank));
  }
  return std::nullopt;
}

bool PeerProgress::host_is_gone() {
  {
    std::lock_guard lock(mu_);
    if (Clock::now() - answered_ < kGone) return false;
  }
  std::lock_guard lock(presence_mu_);
  return presence_ && presence_->state() == Presence::State::Lost;
}

std::string PeerProgress::who_is_missing() {
  post_now();
  std::this_thread::sleep_for(4 * kNewsEvery);
  std::vector<RankProgress> progress;
  std::map<std::string, milliseconds> heard;
  try {
    const WaitContext wait = WaitContext::with_timeout(kAnswer);
    progress = rendezvous_.progress(wait);
    for (const MemberStatus& status : rendezvous_.members(wait))
      heard[status.member.name] = status.since_heartbeat;
  } catch (const Error& error) {
    return fmt::format("{}, which hosts the rendezvous, does not answer either: {}", name_of(0),
                       error.message());
  }
  RankProgress mine;
  {
    std::lock_guard lock(mu_);
    mine = mine_;
  }
  std::string silent, behind;
  for (int rank = 0; rank < static_cast<int>(names_.size()); ++rank) {
    if (rank == rank_) continue;
    const auto member = heard.find(member_of(rank));
    if (member == heard.end() || member->second > kSilent) {
      silent += (silent.empty() ? "" : ", ") + name_of(rank);
      continue;
    }
    const auto other = std::find_if(progress.begin(), progress.end(),
                                    [&](const RankProgress& entry) { return entry.rank == rank; });
    if (other != progress.end() && !is_behind(*other, mine)) continue;
    behind += (behind.empty() ? "" : ", ") + name_of(rank);
    if (other != progress.end() && !other->last_collective.empty())
      behind += fmt::format(" [step {}, collective #{}, {}]", other->step, other->collectives,
                            other->last_collective);
  }
  if (!silent.empty()) return silent + " did not take part and is not heard of";
  if (!behind.empty()) return behind + " did not take part before the deadline";
  return "all ranks are in it, and it did not end before the deadline of one of them";
}

}  // namespace braid::comm
