// Switches by the negative names that they had.
#include "worker/job/old_names.h"

#include <gmock/gmock.h>

#include <fstream>

#include "proto/job.pb.h"
#include "tests/support/message_of.h"
#include "tests/support/temp_dir.h"
#include "worker/job/field_path.h"
#include "worker/job/job.h"
#include "worker/job/text_proto.h"

namespace braid::worker {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(OldNamesTest, AllOfThemAreReadAsTheNewOnes) {
  const proto::Job job = parse_job(
      "input { no_shuffle: true } staging { disabled: true } streams { no_measuring: true no_memory_waits: "
      "true } evaluation { disabled: true } metrics { no_sampling: true } runtime { no_tf32: true "
      "no_graphs: true no_soft_placement: true }",
      "j");
  const auto is_off = [](bool has, bool on) { return has && !on; };
  EXPECT_TRUE(is_off(job.input().has_shuffle(), job.input().shuffle()));
  EXPECT_TRUE(is_off(job.staging().has_enabled(), job.staging().enabled()));
  EXPECT_TRUE(is_off(job.streams().has_measure(), job.streams().measure()));
  EXPECT_TRUE(is_off(job.streams().has_memory_waits(), job.streams().memory_waits()));
  EXPECT_TRUE(is_off(job.evaluation().has_enabled(), job.evaluation().enabled()));
  EXPECT_TRUE(is_off(job.metrics().has_sampling(), job.metrics().sampling()));
  EXPECT_TRUE(is_off(job.runtime().has_tf32(), job.runtime().tf32()));
  EXPECT_TRUE(is_off(job.runtime().has_graphs(), job.runtime().graphs()));
  EXPECT_TRUE(is_off(job.runtime().has_soft_placement(), job.runtime().soft_placement()));
  EXPECT_FALSE(is_set(job, "input.no_shuffle")) << "what reads a job need not know them";
}

TEST(OldNamesTest, AWarningSaysWhatToWrite) {
  proto::Job job;
  parse_text("runtime { no_tf32: true } evaluation { disabled: false }", "a.pbtxt", job);
  EXPECT_THAT(take_new_names(job, "a.pbtxt"),
              ElementsAre("a.pbtxt: evaluation.disabled is an old name; write enabled: true",
                          "a.pbtxt: runtime.no_tf32 is an old name; write tf32: false"));
  EXPECT_THAT(take_new_names(job, "a.pbtxt"), testing::IsEmpty());
}

TEST(OldNamesTest, TheStrongerLayerWinsByEitherName) {
  TempDir dir;
  const auto file = dir.path() / "job.pbtxt";
  std::ofstream(file) << "model { name: 'mlp' } steps: 3 input { format: IDX global_batch_size: 8 } "
                         "optimizer { learning_rate: 0.1 } runtime { no_tf32: true no_graphs: true }";
  const proto::Job job = load_job(file, {"runtime.no_graphs=false"}, {"runtime.tf32=true"});
  EXPECT_FALSE(job.runtime().tf32()) << "the file goes over the settings";
  EXPECT_TRUE(job.runtime().graphs()) << "and --set over the file";
}

TEST(OldNamesTest, BothNamesMayNotContradictEachOther) {
  EXPECT_THAT(message_of([] { parse_job("runtime { tf32: true no_tf32: true }", "a.pbtxt"); }),
              HasSubstr("a.pbtxt: runtime.tf32 and runtime.no_tf32, its old name, contradict each other"));
  EXPECT_FALSE(parse_job("runtime { tf32: false no_tf32: true }", "a.pbtxt").runtime().tf32());
}

TEST(OldNamesTest, ABinaryJobOfAnOlderVersionStillReads) {
  // field 15 (runtime), a message of 2 bytes: its field 5, which was `bool no_tf32`, is true
  const std::string stored("\x7a\x02\x28\x01", 4);
  proto::Job job;
  ASSERT_TRUE(job.ParseFromString(stored));
  take_new_names(job, "checkpoint");
  EXPECT_TRUE(job.runtime().has_tf32());
  EXPECT_FALSE(job.runtime().tf32());
}

TEST(OldNamesTest, TheyAreNotSuggested) {
  const std::string message = message_of([] { parse_job("runtime { no_tf31: true }", "a.pbtxt"); });
  EXPECT_THAT(message, HasSubstr(" tf32,"));
  EXPECT_THAT(message, testing::Not(HasSubstr("no_tf32")));
}

}  // namespace
}  // namespace braid::worker
