// Who the workers of an elastic job are, as a state machine without threads, clocks and sockets. The leader
// has it (member_host.h); all others are told what it decides.
//
// A world is a set of workers with ranks, numbered by a generation. The leader is rank 0 of every world. A
// world ends when one of its workers is gone, or when all have left it to form the next one; then the next is
// gathered. It forms when
//   * every worker of the last world that is still connected is there, or has been silent for `silence`, and
//   * as many as listed at the start are there, in the first world, or `first_wait` is over, and
//   * at least min_workers are there.
// Workers that were silent are refused from then on: they may come again, as newcomers. Newcomers that find
// the job running wait until wants_newcomers() makes the workers leave their world. Below min_workers for
// `wait` the job is over.
//
// What the workers' variables hold: two workers of a world are at most a step apart (a step's updates come
// behind all of its collectives), so those of the one that is furthest count.
//
// Thread rule: one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace braid::comm {

struct MembershipLimits {
  int min_workers = 1;
  int max_workers = 1;
  int listed = 1;  // workers that the first world waits for, the leader too
  std::chrono::milliseconds first_wait{120'000};
  std::chrono::milliseconds wait{120'000};
  std::chrono::milliseconds silence{60'000};
};

/// Of a connection; a worker that comes again has another.
using MemberId = std::uint64_t;
inline constexpr MemberId kLeaderId = 0;

/// What a worker has between steps.
struct Holding {
  std::uint64_t step = 0;  // steps that are in its variables
  bool whole = false;      // a failed step has not half updated them
};

struct World {
  std::uint64_t generation = 0;
  int rank = -1;                   // of whoever is told
  std::vector<std::string> names;  // by rank
  /// The rank whose variables count, with how many steps; -1: nobody has whole ones.
  int source = -1;
  std::uint64_t step = 0;
  bool spread = true;  // somebody does not have them
  int size() const { return static_cast<int>(names.size()); }
};

/// What is to be told, to whom. In the order in which it happened.
struct MembershipEvent {
  enum class Kind {
    Formed,   // `world`, to `member`
    Over,     // the world of `generation` cannot go on: `text`, to `member`
    Refused,  // the world went on without it: `text`, to `member`
    Ended,    // the job: `text`, to all
  };
  Kind kind = Kind::Ended;
  MemberId member = 0;
  World world = {};
  std::uint64_t generation = 0;
  std::string text = {};
};

class Membership {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// The leader is there, and not ready.
  Membership(const MembershipLimits& limits, const std::string& leader, Time now);

  /// A worker has connected. `place`: in the list of workers, by which the first world has its ranks; in
  /// later ones newcomers are behind the others, as they came. REQUIRES: `id` is new.
  void join(MemberId id, const std::string& name, int place = 0);
  /// It has left the world of that generation, or none (0), and waits for the next one. What does not fit,
  /// such as a word of a world that is long over, changes nothing.
  void ready(MemberId id, std::uint64_t left, const Holding& holding, Time now);
  /// It is gone. `in_order`: the others have heard of it, and leave their world by themselves.
  void leave(MemberId id, const std::string& why, bool in_order, Time now);
  /// Time has passed.
  void tick(Time now);
  /// What has happened since the last call.
  std::vector<MembershipEvent> take_events();

  /// When tick() may change something; nothing while a world is under way.
  std::optional<Time> next_deadline(Time now) const;
  /// Somebody waits to be taken in, and there is room.
  bool wants_newcomers() const;
  bool gathering() const { return gathering_; }
  bool ended() const { return ended_; }
  std::uint64_t generation() const { return generation_; }
  /// Who is missing and how long is left, for people.
  std::string describe(Time now) const;

 private:
  struct Member {
    std::string name;
    int place = 0;
    int rank = -1;  // in the last world; -1: a newcomer
    bool ready = false;
    bool refused = false;
    Holding holding = {};
  };

  void begin_gathering(Time now);
  void form_or_end(Time now);
  void form(std::vector<MemberId> seats);
  void refuse(MemberId id);
  void end(Time now);
  std::vector<MemberId> survivors(bool ready) const;  // by their rank
  std::vector<MemberId> newcomers() const;            // that are ready, by when they came
  bool may_still_come(Time now) const;
  std::string missing() const;

  const MembershipLimits limits_;
  std::map<MemberId, Member> members_;
  std::uint64_t generation_ = 0;  // of the last world
  int size_ = 0;                  // of the last world
  bool gathering_ = true;
  bool ended_ = false;
  Time since_;                     // of gathering
  std::vector<std::string> lost_;  // since the last world formed, and why
  std::vector<MembershipEvent> events_;
};

}  // namespace braid::comm
