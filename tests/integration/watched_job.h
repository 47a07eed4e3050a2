// Running jobs whose processes have pages, and what these say. Thread rule: one thread.
#pragma once

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/http_client.h"
#include "tests/integration/run.h"

namespace braid::integration {

inline constexpr const char* kForever = "steps=100000000";

class WatchedJobTest : public IntegrationTest {
 protected:
  using json = nlohmann::json;

  /// Workers and servers with pages that know each other.
  std::unique_ptr<Process> launch(const Job& job, int workers, int servers, const Variables& variables = {}) {
    std::vector<std::string> arguments{
        "launch", "--workers", std::to_string(workers), "--ps", std::to_string(servers), "--watch", "--grace",
        "5",      "--"};
    for (const std::string& argument : job.arguments()) arguments.push_back(argument);
    return std::make_unique<Process>(braid(arguments), variables, directory() / "launch");
  }

  static std::string page_of(Process& launcher) {
    const std::string mark = "braid top ";
    EXPECT_TRUE(launcher.says(mark)) << launcher.err();
    const std::string log = launcher.err();
    const std::size_t begin = log.find(mark) + mark.size();
    return log.substr(begin, log.find('\n', begin) - begin);
  }

  static json parse(const std::optional<HttpReply>& reply) {
    return json::parse(reply.value_or(HttpReply{}).body, nullptr, false);
  }

  /// Asks `address` until `good` says yes to its /job.json.
  template <class Good>
  json wait_for_job(const std::string& address, Good good,
                    std::chrono::seconds limit = std::chrono::seconds(120)) {
    using Clock = std::chrono::steady_clock;
    json job;
    for (const auto end = Clock::now() + limit; Clock::now() < end;
         std::this_thread::sleep_for(std::chrono::milliseconds(200))) {
      job = parse(http_get(address, "/job.json"));
      if (job.is_object() && good(job)) return job;
    }
    ADD_FAILURE() << job.dump(1);
    return job;
  }

  static bool trains(const json& job, std::size_t peers) {
    std::size_t training = 0;
    for (const json& peer : job["peers"])
      training += peer.contains("status") && peer["status"].value("window_seconds", 0.0) > 2 &&
                  (!peer["status"]["trains"] || peer["status"].value("steps_per_second", 0.0) > 0);
    return training == peers;
  }

  std::string tool(const std::vector<std::string>& arguments, int expected = 0) {
    const auto process = run("tool", arguments);
    EXPECT_EQ(process->exit_code(), expected) << process->out() << process->err();
    return process->out();
  }
};

}  // namespace braid::integration
