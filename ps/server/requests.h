// What a server is asked, in memory: the data plane decodes messages into these, tests make them by hand. The
// spans of a job point into memory that its `hold` keeps. Each job's `done` is called exactly once, on any
// thread, and must not block or throw.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/optim.h"

namespace braid::ps {

using Clock = std::chrono::steady_clock;

/// An evaluator or another reader: pulls without inserting, never pushes, and no round waits for it.
inline constexpr std::int32_t kObserver = -1;

/// Who asks, and whom it believes to ask.
struct Sender {
  std::uint64_t job = 0;          // stable_hash of the job's name
  std::uint64_t incarnation = 0;  // of the job: raised when the whole job starts again
  std::uint64_t instance = 0;     // of the server process, as learned at registration
  std::uint64_t session = 0;      // of the worker process
  std::int32_t worker = 0;
};

struct DensePart {
  std::uint32_t table = 0;
  std::span<const float> values;  // this server's range of the table
};

struct SparsePart {
  std::uint32_t table = 0;
  std::uint32_t dim = 0;
  std::span<const std::int64_t> keys;
  const float* rows = nullptr;                // [keys, dim] f32, row-major; not used by pulls
  bool ordered = false;                       // the keys rise by bucket_of_hash()
  std::span<const std::uint32_t> known = {};  // by key; of pulls of what has changed
};

/// On the wire: never renumber.
enum class PushResult : std::uint32_t {
  Applied = 1,
  Duplicate = 2,
  Dropped = 3,
  Late = 4  // goes into a later round than its own
};

struct PushAnswer {
  ErrorPtr error;  // set: refused, nothing was changed
  PushResult result = PushResult::Applied;
  std::string reason;  // of Dropped and Late
};

struct PushJob {
  Sender sender;
  std::uint64_t step = 0;
  std::uint32_t sequence = 0;
  std::uint32_t examples = 0;
  UpdateParams params;
  std::vector<DensePart> dense;
  std::vector<SparsePart> sparse;
  std::shared_ptr<const void> hold;
  std::function<void(PushAnswer)> done;
  bool votes_to_stop = false;
  bool votes_to_finish = false;
  bool trial = false;  // for its time alone (trial.h)
  std::uint64_t round =
      0;  // that it is for: its step, but of a worker that was late (TIMED); set by the core
};

struct PullAnswer {
  ErrorPtr error;
  std::uint64_t version = 0;                   // rounds applied to every table (BSP); see wire.md
  std::vector<std::span<const float>> pieces;  // dense parts in order of the request, then sparse rows
  std::shared_ptr<const void> hold;            // keeps the pieces unchanged
  bool stop = false;  // a push of a round below the pull's min_version voted to stop, or the server is to end
  bool finish = false;  // such a push voted to finish (ASP: any push)
  // Of Repair and Changed, whose pieces end with the numbers of the rows that are sent again, then these
  // rows:
  std::uint64_t repaired = 0;
  bool unknown = false;  // the server has no such pull ahead, and has done nothing
};

/// Rows of a step are pulled before its round (Ahead): as they are, without a trace in the tables. When the
/// step's turn has come, a Repair names that pull, does what a pull of the same rows would have done, and
/// sends those alone that are others than before (BSP). Changed is of rows that the worker has: of these it
/// gets those that others have changed (BSP).
enum class PullKind : std::uint8_t { Plain = 0, Ahead = 1, Repair = 2, Changed = 3 };

struct PulledAhead;

struct PullJob {
  Sender sender;
  std::uint64_t min_version = 0;
  PullKind kind = PullKind::Plain;
  std::uint64_t ahead = 0;      // its number, chosen by the worker; of Ahead and Repair
  bool slots = false;           // rows come with their slots
  bool trial = false;           // for its time alone (trial.h)
  std::uint64_t step = 0;       // what min_version was asked to be; set by the core, as is the next
  std::uint64_t begins_at = 0;  // of a worker that is back from being late (TIMED): it begins with this round
  bool insert = true;
  Clock::time_point deadline = Clock::time_point::max();
  std::vector<std::uint32_t> dense;
  std::vector<SparsePart> sparse;  // of a repair: filled in by the core, from `repairs`
  std::shared_ptr<const PulledAhead> repairs;
  std::shared_ptr<const void> hold;
  std::function<void(PullAnswer)> done;
};

/// The chief's initial values of some dense tables; or rows that come back from the worker that was their
/// home: a row is its values, its slots, and the low half of the step that used it last, as it is.
struct AssignJob {
  Sender sender;
  std::vector<DensePart> dense;
  std::shared_ptr<const void> hold;
  std::function<void(ErrorPtr)> done;
  std::vector<SparsePart> rows = {};
  bool trial = false;  // for its time alone
};

}  // namespace braid::ps
