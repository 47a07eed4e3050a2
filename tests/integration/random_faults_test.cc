// Jobs drawn at random, in which a process drawn at random is killed, stops without a word, is asked to stop,
// or stands still for a while, at a moment drawn at random. All processes end in time, with the codes of
// docs/user/troubleshooting.md, and who ends because of another one names it. Started again with --resume,
// the job trains to its end as the plain job does in one process. BRAID_RANDOM_FAULTS says how many are
// drawn, BRAID_RANDOM_SEED from which seed on; a failure names its seed.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <random>
#include <regex>
#include <thread>

#include "tests/integration/checkpoints.h"
#include "tests/integration/drawn_job.h"
#include "tests/integration/exit_codes.h"

namespace braid::integration {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

constexpr int kDrawnSteps = 120, kCheckpointEvery = 9;
constexpr auto kDrawnDeadline = 6s, kDrawnStartDeadline = 25s;
constexpr auto kDrawnSlack = 30s;

enum class Fault { Kill, Freeze, Ask, Pause };

struct DrawnFault {
  Fault kind = Fault::Kill;
  bool server = false;
  int index = 0;
  milliseconds when{0};

  std::string task() const { return fmt::format("{} {}", server ? "server" : "worker", index); }
  std::string text() const {
    const char* const kinds[] = {"is killed", "freezes", "is asked to stop", "stands still for 2 s"};
    return fmt::format("{} {} after {} ms", task(), kinds[static_cast<int>(kind)], when.count());
  }
};

DrawnFault draw_fault(std::uint64_t seed, const Cluster::Shape& shape) {
  std::mt19937_64 random(seed ^ 0x66617573);
  DrawnFault fault;
  fault.kind = static_cast<Fault>(std::uniform_int_distribution<>(0, 3)(random));
  const int victim = std::uniform_int_distribution<>(0, shape.workers + shape.servers - 1)(random);
  fault.server = victim >= shape.workers;
  fault.index = fault.server ? victim - shape.workers : victim;
  fault.when = milliseconds(std::uniform_int_distribution<>(0, 3000)(random));
  return fault;
}

class RandomFaults : public IntegrationTest {
 protected:
  static Process& victim_of(Cluster& cluster, const DrawnFault& fault) {
    return fault.server ? cluster.server(fault.index) : cluster.worker(fault.index);
  }

  static void inflict(Process& victim, const DrawnFault& fault) {
    std::this_thread::sleep_for(fault.when);
    switch (fault.kind) {
      case Fault::Kill:
        return victim.signal(SIGKILL);
      case Fault::Freeze:
        return victim.signal(SIGSTOP);
      case Fault::Ask:
        return victim.signal(SIGTERM);
      case Fault::Pause:
        victim.signal(SIGSTOP);
        std::this_thread::sleep_for(2s);
        return victim.signal(SIGCONT);
    }
  }

  /// Whether `text` names the task, or the rank of a world that a worker is (of several, with several
  /// devices).
  static bool names(const std::string& text, const DrawnFault& fault) {
    if (std::regex_search(text, std::regex(fault.task() + "\\b|no worker for"))) return true;
    return !fault.server && std::regex_search(text, std::regex(R"(\b(rank|ranks|replica|process) \d)"));
  }

  static void expect_code(Process& task, const std::string& who, int code, const DrawnFault& fault) {
    // Who is asked to stop before all have met is gone for the others.
    const bool may_lose = fault.kind != Fault::Pause, may_stop = fault.kind == Fault::Ask;
    EXPECT_TRUE(code == 0 || (may_lose && code == kPeerLost) || (may_stop && code == kTerminated))
        << who << " ends with " << code << "\n"
        << task.err();
    if (code == kPeerLost) {
      EXPECT_TRUE(names(task.err(), fault)) << who << " does not name it\n" << task.err();
    }
  }

  static void expect_ends(Cluster& cluster, const DrawnFault& fault, const Cluster::Shape& shape) {
    const auto end = std::chrono::steady_clock::now() + kDrawnDeadline + kDrawnStartDeadline + kDrawnSlack;
    Process& victim = victim_of(cluster, fault);
    const bool is_gone = fault.kind == Fault::Freeze || fault.kind == Fault::Kill;
    for (int i = 0; i < shape.workers + shape.servers; ++i) {
      const bool serves = i >= shape.workers;
      Process& task = serves ? cluster.server(i - shape.workers) : cluster.worker(i);
      if (&task == &victim && is_gone) continue;
      const auto left = std::chrono::duration_cast<milliseconds>(end - std::chrono::steady_clock::now());
      expect_code(task, fmt::format("{} {}", serves ? "server" : "worker", serves ? i - shape.workers : i),
                  task.exit_code(left), fault);
    }
    if (!is_gone) return;
    victim.signal(SIGKILL);
    const auto code = victim.wait(10s);
    EXPECT_TRUE(code == kKilled || code == 0) << "it may have ended before";
  }

  void expect_resumes(const Path& root, const DrawnJob& drawn, const Job& job,
                      const std::vector<double>& expected) {
    Cluster again(root / "again", job, drawn.first.shape, {"--resume"});
    again.expect_success();
    if (HasFailure()) return;
    const std::vector<LoggedStep> made = read_steps(again.steps_file(0));
    // A job that had made all steps makes none.
    if (made.empty()) return;
    const std::vector<double> losses = again.mean_losses(made.front().step);
    // A round of TIMED closes without who is late.
    if (drawn.first.text().find("TIMED") != std::string::npos) return;
    ASSERT_EQ(made.front().step + losses.size(), expected.size());
    for (std::size_t i = 0; i < losses.size(); ++i)
      ASSERT_EQ(losses[i], expected[made.front().step + i]) << made.front().step + i;
  }

  void suffers(std::uint64_t seed) {
    const DrawnJob drawn = draw_job(seed, kDrawnSteps);
    const Cluster::Shape shape = drawn.first.shape;
    const DrawnFault fault = draw_fault(seed, shape);
    SCOPED_TRACE(fmt::format("seed {}: {}: {}", seed, fault.text(), drawn.text()));
    const Path root = directory() / std::to_string(seed);
    const Job plain = drawn.plain(kDrawnSteps).with(drawn.first.settings);
    Cluster undisturbed(root / "undisturbed", plain, shape);
    undisturbed.expect_success();
    const Job job = plain.with(checkpoints_in(root / "checkpoints", kCheckpointEvery))
                        .with({fmt::format("strategy.deadline_seconds={}", kDrawnDeadline.count()),
                               fmt::format("strategy.start_deadline_seconds={}", kDrawnStartDeadline.count()),
                               fmt::format("strategy.server_idle_seconds={}", kDrawnDeadline.count())});
    {
      Cluster cluster(root / "job", job, shape);
      inflict(victim_of(cluster, fault), fault);
      expect_ends(cluster, fault, shape);
    }
    if (!HasFailure()) expect_resumes(root, drawn, job, undisturbed.mean_losses());
  }
};

TEST_F(RandomFaults, EndInTimeAndGoOn) {
  const std::uint64_t first = number_of("BRAID_RANDOM_SEED", 1), faults = number_of("BRAID_RANDOM_FAULTS", 5);
  for (std::uint64_t seed = first; seed < first + faults && !HasFailure(); ++seed) suffers(seed);
}

}  // namespace
}  // namespace braid::integration
