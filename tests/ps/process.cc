// A parameter server, or a worker of a one-table BSP job, in a process of its own, for tests that kill it.
//   process server INDEX COUNT DEADLINE_MS [GRPC_LISTEN]   prints its gRPC address, ends when asked to
//   process worker INDEX COUNT STEPS SERVER...             pushes STEPS steps of ones, prints "pushed",
//   sleeps
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "base/log.h"
#include "ps/client/ps_client.h"
#include "ps/server/ps_server.h"

namespace braid::ps {
namespace {

WaitContext long_wait() { return WaitContext::with_timeout(std::chrono::seconds(60)); }

int serve(char** arguments, int count) {
  PsServer::Options options;
  options.index = std::atoi(arguments[0]);
  options.count = std::atoi(arguments[1]);
  options.deadline = std::chrono::milliseconds(std::atoi(arguments[2]));
  options.grpc_listen = count > 3 ? arguments[3] : "127.0.0.1:0";
  options.data_listen = "127.0.0.1:0";
  auto server = PsServer::start(options);
  std::printf("%s\n", server->grpc_address().c_str());
  std::fflush(stdout);
  server->wait_shutdown(long_wait());
  return 0;
}

int work(char** arguments, int count) {
  PsClient::Options options;
  options.worker = std::atoi(arguments[0]);
  options.workers = std::atoi(arguments[1]);
  options.job = "test";
  options.incarnation = 1;
  options.deadline = std::chrono::milliseconds(1000);
  options.servers.assign(arguments + 3, arguments + count);
  auto client = PsClient::connect(options, long_wait());
  TableSet set;
  set.dense = {{"w", 9000}};
  set.workers = options.workers;
  client->create_tables(set, long_wait());
  client->wait_initialized(long_wait());
  const std::vector<float> ones(9000, 1.0F);
  for (std::uint64_t step = 0; step < std::strtoull(arguments[2], nullptr, 10); ++step) {
    PushRequest push;
    push.step = step;
    push.params = {1.0F, 1.0F, step};
    push.dense = {{0, ones}};
    client->push(std::move(push), long_wait());
  }
  std::printf("pushed\n");
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::seconds(60));
  return 0;
}

}  // namespace
}  // namespace braid::ps

int main(int count, char** arguments) {
  if (count < 5) return 2;
  try {
    const std::string role = arguments[1];
    return role == "server" ? braid::ps::serve(arguments + 2, count - 2)
                            : braid::ps::work(arguments + 2, count - 2);
  } catch (const std::exception& e) {
    braid::log_error("{}", e.what());
    return 1;
  }
}
