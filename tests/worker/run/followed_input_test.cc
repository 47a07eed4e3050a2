// A run whose input grows trains as if all files had been there, ends where it is told to, and goes on at the
// exact row.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <future>
#include <thread>

#include "base/files.h"
#include "comm/rendezvous/in_process.h"
#include "launch/cluster_spec.h"
#include "proto/job.pb.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"
#include "worker/input/followed_input.h"
#include "worker/job/job.h"
#include "worker/process/stop_signal.h"
#include "worker/roles/roles.h"
#include "worker/run/hooks.h"
#include "worker/run/steps.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {
namespace {

using testing::HasSubstr;

class FollowedRunTest : public testing::Test {
 protected:
  FollowedRunTest() { empty(); }
  void empty() const {
    std::filesystem::remove_all(dir_.path() / "in");
    std::filesystem::create_directories(dir_.path() / "in");
  }
  /// 100 rows.
  void add(int file) const {
    const std::filesystem::path name = "f" + std::to_string(file);
    std::ofstream out(dir_.path() / name);
    for (int r = 0; r < 100; ++r)
      out << (r * 7 + file) % 13 << ",c" << (r * 5 + file) % 11 << "," << (r + r / 3 + file) % 2 << "\n";
    out.close();
    std::filesystem::rename(dir_.path() / name, dir_.path() / "in" / name);
  }
  void end() const { std::ofstream(dir_.path() / "in" / "_END"); }

  proto::Job job(const std::string& more = "", const std::string& follow = "idle_seconds: 60") const {
    return load_job_text(
        R"(model { name: "dcn_v2" embedding_dim: 4 hidden: 8 dropout: 0.1 } steps: 1000
           optimizer { kind: ADAM learning_rate: 0.02 } evaluation { enabled: false }
           input { format: CSV train_files: "in" global_batch_size: 16 follow { poll_seconds: 0.02 )" +
            follow + R"( } stream { block_bytes: 128 window_rows: 40 }
             columns { name: "x" kind: NUMERIC } columns { name: "city" kind: CATEGORICAL buckets: 20 }
             columns { name: "y" kind: LABEL } }
           runtime { device: CPU intra_op_threads: 1 } )" +
            more,
        "test", {});
  }
  std::string checkpoints(const std::string& name, int every) const {
    return "checkpoint { directory: '" + (dir_.path() / name).string() +
           "' every_steps: " + std::to_string(every) + " } ";
  }

  struct Ran {
    std::vector<float> losses;
    int code = -1;
  };
  /// `at`: after that many steps `then` is called, once.
  Ran run(const proto::Job& job, std::size_t at = 0, const std::function<void(StopFlag&)>& then = {},
          RunStart start = RunStart::New) const {
    Ran ran;
    auto stop = std::make_shared<StopFlag>();
    RunHooks hooks;
    hooks.step = [&](const StepOutcome& step) {
      ran.losses.push_back(step.loss);
      if (then && ran.losses.size() == at) then(*stop);
    };
    RoleOptions role;
    role.data_dir = dir_.path();
    role.hooks = &hooks;
    role.start = start;
    ran.code = run_role(job, role, stop);
    return ran;
  }

  TempDir dir_;
};

TEST_F(FollowedRunTest, FilesMayComeWhileItTrains) {
  for (int file = 0; file < 4; ++file) add(file);
  end();
  const Ran whole = run(job());
  EXPECT_EQ(whole.code, 0);
  EXPECT_EQ(whole.losses.size(), 25U) << "400 rows";
  for (const char* staging : {"staging { enabled: false }", "staging { num_threads: 3 capacity: 2 }"}) {
    empty();
    add(0);
    std::jthread later;
    const Ran grown = run(job(staging), 6, [&](StopFlag&) {
      later = std::jthread([&] {
        for (int file = 1; file < 4; ++file) {
          std::this_thread::sleep_for(std::chrono::milliseconds(150));
          add(file);
        }
        end();
      });
    });
    EXPECT_EQ(grown.code, 0);
    EXPECT_EQ(grown.losses, whole.losses) << staging;
  }
}

TEST_F(FollowedRunTest, StoppedWhileItWaitsItGoesOnAtTheExactRow) {
  for (int file = 0; file < 4; ++file) add(file);
  end();
  const Ran whole = run(job());
  empty();
  add(0);
  const proto::Job saved = job(checkpoints("ckpt", 4));
  std::jthread signal;
  const Ran first = run(saved, 6, [&](StopFlag& stop) {
    signal = std::jthread([&stop] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      stop.request();
    });
  });
  EXPECT_EQ(first.code, 143) << "it is to be gone on with";
  EXPECT_EQ(first.losses, std::vector<float>(whole.losses.begin(), whole.losses.begin() + 6));
  for (int file = 1; file < 4; ++file) add(file);
  end();
  const Ran second = run(saved, 0, {}, RunStart::Resume);
  EXPECT_EQ(second.code, 0);
  EXPECT_EQ(second.losses, std::vector<float>(whole.losses.begin() + 6, whole.losses.end()));
}

// Its child is a fork of this process, which has no threads yet.
using FollowedRunDeathTest = FollowedRunTest;

TEST_F(FollowedRunDeathTest, KilledItGoesOnAtTheExactRow) {
  const proto::Job saved = job(checkpoints("ckpt", 4) + "staging { num_threads: 2 capacity: 3 }");
  add(0);
  add(1);
  EXPECT_EXIT(run(saved, 10, [](StopFlag&) { raise(SIGKILL); }), testing::KilledBySignal(SIGKILL), "");
  add(2);
  add(3);
  end();
  const Ran second = run(saved, 0, {}, RunStart::Resume);
  EXPECT_EQ(second.code, 0);
  const Ran whole = run(job());
  ASSERT_EQ(whole.losses.size(), 25U);
  EXPECT_EQ(second.losses, std::vector<float>(whole.losses.begin() + 8, whole.losses.end()));
}

TEST_F(FollowedRunTest, WorkersHearFromTheLeaderWhichFilesCome) {
  const auto store = std::make_shared<comm::RendezvousStore>();
  const StopFlag stop;
  const auto peers = [&](int rank) {
    Peers its;
    its.rank = rank;
    its.world = 2;
    its.rendezvous = comm::make_in_process_rendezvous(store, {"job", 0});
    return its;
  };
  const Peers first = peers(0), second = peers(1);
  add(1);
  auto other = std::async(std::launch::async, [&] {
    return follow_input(job(), dir_.path(), {second, stop});
  });
  const FollowedInput leads = follow_input(job(), dir_.path(), {first, stop}), hears = other.get();
  auto waits = std::async(std::launch::async, [&] { return hears.files->reach(1, 101, {}); });
  add(0);
  EXPECT_TRUE(leads.files->reach(1, 101, {}));
  EXPECT_TRUE(waits.get());
  for (const std::size_t n : {0U, 1U}) EXPECT_EQ(hears.files->file(n).taken, leads.files->file(n).taken) << n;
  EXPECT_THAT(hears.files->file(1).taken.name, HasSubstr("f0")) << "it came later";
  auto ends = std::async(std::launch::async, [&] { return hears.files->reach(1, 201, {}); });
  end();
  EXPECT_FALSE(leads.files->reach(1, 201, {}));
  EXPECT_FALSE(ends.get());
  Peers alone = peers(1);
  alone.rendezvous = nullptr;
  EXPECT_THAT(message_of([&] {
                follow_input(job(), dir_.path(), {alone, stop});
              }),
              HasSubstr("RING or NCCL"));
}

TEST_F(FollowedRunTest, EndsWithoutNewFilesAndAfterItsSteps) {
  add(0);
  const Ran idle = run(job("", "idle_seconds: 0.2"));
  EXPECT_EQ(idle.code, 0);
  EXPECT_EQ(idle.losses.size(), 6U);
  proto::Job few = job("staging { num_threads: 2 capacity: 4 }");
  few.set_steps(5);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(run(few).losses.size(), 5U) << "its stage waits for files that nobody needs";
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST_F(FollowedRunTest, RefusesWhatItCannotDo) {
  const auto refused = [&](const std::string& why, const std::function<void(proto::Job&)>& change) {
    EXPECT_THAT(message_of([&] {
                  proto::Job its = job();
                  change(its);
                  check_job(its);
                  run(its);
                }),
                HasSubstr(why));
  };
  refused("needs steps", [](proto::Job& its) { its.set_steps(0), its.set_epochs(1); });
  refused("takes one name", [](proto::Job& its) { its.mutable_input()->add_train_files("more"); });
  refused("no input.read MEMORY",
          [](proto::Job& its) { its.mutable_input()->set_read(proto::Input::MEMORY); });
  refused("is no directory", [](proto::Job& its) { its.mutable_input()->set_train_files(0, "nowhere"); });
  refused("of this machine", [](proto::Job& its) { its.mutable_input()->set_train_files(0, "s3://b/k"); });
  refused("PS and PS_ALLREDUCE",
          [](proto::Job& its) { its.mutable_strategy()->set_kind(proto::Strategy::PS); });
  end();
  refused("no file with rows has come", [](proto::Job&) {});
}

}  // namespace
}  // namespace braid::worker
