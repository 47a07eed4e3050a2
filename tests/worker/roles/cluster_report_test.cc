#include "worker/roles/cluster_report.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "proto/job.pb.h"
#include "tests/support/temp_dir.h"

namespace braid::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ClusterReportTest, ListsOfCores) {
  EXPECT_THAT(parse_cpu_list("0-2,8"), ElementsAre(0, 1, 2, 8));
  EXPECT_THAT(parse_cpu_list(""), IsEmpty());
  EXPECT_THAT(parse_cpu_list("x,3,9-z"), ElementsAre(3));
  EXPECT_EQ(format_cpu_list({0, 1, 2, 8, 10, 11}), "0-2,8,10-11");
  EXPECT_EQ(format_cpu_list({}), "");
}

TEST(ClusterReportTest, NodesOfCores) {
  const TempDir directory;
  for (const auto& [node, list] :
       {std::pair("node0", "0-3"), std::pair("node1", "4-7"), std::pair("power", "9")}) {
    std::filesystem::create_directory(directory.path() / node);
    std::ofstream(directory.path() / node / "cpulist") << list << "\n";
  }
  EXPECT_THAT(numa_nodes_of({1, 2}, directory.path()), ElementsAre(0));
  EXPECT_THAT(numa_nodes_of({3, 4}, directory.path()), ElementsAre(0, 1));
  EXPECT_THAT(numa_nodes_of({9}, directory.path()), IsEmpty());
  EXPECT_THAT(numa_nodes_of({0}, directory.path() / "none"), IsEmpty());
}

TEST(ClusterReportTest, SaysWhoAndWhere) {
  launch::ClusterSpec cluster;
  cluster.worker = {{0, "a:1"}, {1, "b:1"}};
  cluster.task = {launch::TaskType::Worker, 1};
  cluster.rank = 1;
  cluster.world = 2;
  cluster.source = "TF_CONFIG";
  proto::Job job;
  job.mutable_strategy()->set_kind(proto::Strategy::ALLREDUCE);
  job.mutable_runtime()->set_device(proto::Runtime::CPU);
  const auto report = nlohmann::json::parse(cluster_report(job, cluster));
  EXPECT_EQ(report["task"], "worker 1");
  EXPECT_EQ(report["leads"], false);
  EXPECT_EQ(report["rank"], 1);
  EXPECT_EQ(report["tasks"]["worker"][0], "a:1");
  EXPECT_EQ(report["device"], "cpu");
  EXPECT_FALSE(report["cores"].get<std::string>().empty());
  EXPECT_GE(report["usable_cores"], 1);
  EXPECT_FALSE(report.contains("devices"));
  job.mutable_strategy()->set_kind(proto::Strategy::MIRRORED);
  job.mutable_strategy()->mutable_mirrored()->set_devices(2);
  EXPECT_EQ(nlohmann::json::parse(cluster_report(job, cluster))["devices"],
            nlohmann::json({"cpu:0", "cpu:1"}));
}

}  // namespace
}  // namespace braid::worker
