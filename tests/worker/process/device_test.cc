// Which device a job gets, as far as a machine without GPUs can show it; tests/gpu runs jobs on real ones.
#include "worker/process/device.h"
#include "tests/support/missing.h"

#include <gmock/gmock.h>

#include "proto/job.pb.h"
#include "tests/support/message_of.h"

namespace braid::worker {
namespace {

using ::testing::HasSubstr;

TEST(DeviceTest, AutoIsTheCpuWhereThereIsNoDevice) {
  if (cuda_device_count() > 0)
    GTEST_SKIP() << "this machine has a CUDA device, and the case is of one without: "
                    "CUDA_VISIBLE_DEVICES=\"\" hides it";
  proto::Job job;
  resolve_device(job, {});
  EXPECT_EQ(job.runtime().device(), proto::Runtime::CPU);
  EXPECT_EQ(open_device(job, {}), nullptr);
}

TEST(DeviceTest, AutoIsTheDeviceThatIsThere) {
  if (cuda_device_count() == 0) GTEST_SKIP() << missing::kCudaDevice;
  proto::Job job;
  resolve_device(job, {});
  EXPECT_EQ(job.runtime().device(), proto::Runtime::CUDA);
}

TEST(DeviceTest, AutoIsTheCpuForMoreWorkersOfAHostThanDevices) {
  launch::ClusterSpec cluster;
  cluster.world = cluster.local_world = cuda_device_count() + 1;
  for (int i = 0; i < cluster.world; ++i) cluster.worker[i] = "";
  proto::Job job;
  resolve_device(job, cluster);
  EXPECT_EQ(job.runtime().device(), proto::Runtime::CPU);
}

TEST(DeviceTest, CudaWithoutADeviceIsRefused) {
  if (cuda_device_count() > 0)
    GTEST_SKIP() << "this machine has a CUDA device, and the case is of one without: "
                    "CUDA_VISIBLE_DEVICES=\"\" hides it";
  proto::Job job;
  job.mutable_runtime()->set_device(proto::Runtime::CUDA);
  resolve_device(job, {});
  EXPECT_THAT(message_of([&] { open_device(job, {}); }), HasSubstr("CUDA"));
}

TEST(DeviceTest, AProcessForWhichNoDeviceIsLeftIsRefused) {
  const int count = cuda_device_count();
  if (count == 0) GTEST_SKIP() << missing::kCudaDevice;
  proto::Job job;
  job.mutable_runtime()->set_device(proto::Runtime::CUDA);
  launch::ClusterSpec cluster;
  cluster.local_rank = count;
  cluster.local_world = count + 1;
  EXPECT_THAT(message_of([&] { open_device(job, cluster); }), HasSubstr("needs a GPU of its own"));
}

TEST(DeviceTest, ReplicasOfMirroredAreAsManyAsTheJobSaysOrDevices) {
  proto::Job job;
  job.mutable_runtime()->set_device(proto::Runtime::CPU);
  EXPECT_EQ(replicas_of_process(job, {}), 1) << "LOCAL";
  job.mutable_strategy()->set_kind(proto::Strategy::MIRRORED);
  EXPECT_EQ(replicas_of_process(job, {}), 1) << "the CPU is one";
  job.mutable_strategy()->mutable_mirrored()->set_devices(3);
  EXPECT_EQ(replicas_of_process(job, {}), 3);
  EXPECT_EQ(open_device(job, {}, 2), nullptr);
}

TEST(DeviceTest, EachReplicaHasAGpuOfItsOwn) {
  const int count = cuda_device_count();
  if (count == 0) GTEST_SKIP() << missing::kCudaDevice;
  proto::Job job;
  job.mutable_runtime()->set_device(proto::Runtime::CUDA);
  job.mutable_strategy()->set_kind(proto::Strategy::MIRRORED);
  EXPECT_EQ(replicas_of_process(job, {}), count);
  for (int replica = 0; replica < count; ++replica) EXPECT_EQ(device_ordinal(job, {}, replica), replica);
  job.mutable_strategy()->mutable_mirrored()->set_devices(count + 1);
  EXPECT_THAT(message_of([&] { device_ordinal(job, {}, count); }), HasSubstr("needs a GPU of its own"));
}

TEST(DeviceTest, NcclIsForGpus) {
  proto::Job job;
  job.mutable_strategy()->set_kind(proto::Strategy::ALLREDUCE);
  job.mutable_strategy()->set_backend(proto::Strategy::NCCL);
  resolve_device(job, {});
  EXPECT_EQ(job.runtime().device(), proto::Runtime::CUDA) << "whatever is visible";
  job.mutable_runtime()->set_device(proto::Runtime::CPU);
  EXPECT_THAT(message_of([&] { resolve_device(job, {}); }), HasSubstr("NCCL is for GPUs"));
}

}  // namespace
}  // namespace braid::worker
