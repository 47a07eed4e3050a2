// The ops that strategies add to the registry: they say as much of themselves as the engine's own.
#include <gtest/gtest.h>

#include "engine/ir/op.h"
#include "worker/strategies/strategy.h"

namespace braid::worker {
namespace {

TEST(StrategyOpsTest, LeaveNothingUnsaid) {
  register_strategy_ops();
  for (const char* op : {"braid.AllReduce",
                         "braid.AllGatherRows",
                         "braid.AllToAll",
                         "braid.ToOwners",
                         "braid.FromOwners",
                         "braid.SendToOwners",
                         "braid.TakeAtOwners",
                         "braid.SendFromOwners",
                         "braid.TakeFromOwners",
                         "braid.RowsFromOwners",
                         "braid.SumsToOwners",
                         "braid.KeepValues",
                         "braid.StopVote",
                         "braid.ServedRows",
                         "braid.PsPull",
                         "braid.PsPush",
                         "braid.PsKeys",
                         "braid.PsRows",
                         "braid.PsPlanRows",
                         "braid.PsPushRows",
                         "braid.CombineGradients",
                         "braid.CombineRows",
                         "braid.CompressedAllReduce",
                         "braid.AverageVariables",
                         "braid.ReduceScatterGradients",
                         "braid.OwnPart",
                         "braid.ApplyPart",
                         "braid.GatherVariables",
                         "braid.SyncBatchNorm",
                         "braid.SyncBatchNormGrad",
                         "braid.Send",
                         "braid.Recv",
                         "braid.GroupAllReduce",
                         "braid.GroupReduceScatter",
                         "braid.GroupGather"})
    EXPECT_EQ(missing_traits(OpRegistry::global().require(op)), "") << op;
}

}  // namespace
}  // namespace braid::worker
