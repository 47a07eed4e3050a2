#include "worker/inference/request_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <latch>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"

namespace braid::worker {
namespace {

using Clock = std::chrono::steady_clock;

bool same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Tensor& x, const Tensor& y) {
    return x.dtype() == y.dtype() && x.shape() == y.shape() && std::memcmp(x.raw(), y.raw(), x.bytes()) == 0;
  });
}

/// What one client brings home.
struct Client {
  std::vector<double> latencies;
  std::uint64_t late = 0, refused = 0, different = 0;
  std::vector<std::vector<Tensor>> answers;
  Clock::time_point end;
  ErrorPtr error;
};

/// Sends all requests of one client; an error that is not counted ends the others through `stop`.
class ClientRun {
 public:
  ClientRun(InferenceSession& session, const std::vector<std::vector<Tensor>>& feeds,
            const LoadOptions& options, const std::vector<std::vector<Tensor>>& expected,
            std::stop_source& stop)
      : session_(session), feeds_(feeds), options_(options), expected_(expected), stop_(stop) {}

  void operator()(int index, Client& mine) {
    mine.answers.resize(feeds_.size());
    mine.latencies.reserve(options_.requests);
    const std::uint64_t first = static_cast<std::uint64_t>(index) * options_.requests;
    for (std::uint64_t i = 0; i < options_.requests && !stop_.stop_requested() && !mine.error; ++i)
      send(static_cast<std::size_t>((first + i) % feeds_.size()), mine);
    mine.end = Clock::now();
  }

 private:
  void send(std::size_t which, Client& mine) {
    const auto begin = Clock::now();
    std::vector<Tensor> answer;
    ErrorPtr error;
    try {
      answer = session_.run({feeds_[which], options_.pool},
                            WaitContext::with_timeout(options_.timeout, stop_.get_token()));
    } catch (...) {
      error = capture_current_exception();
    }
    const auto took = Clock::now() - begin;
    // A step that its client runs alone looks at no clock.
    const bool is_late = error ? error->code == ErrorCode::DeadlineExceeded : took > options_.timeout;
    if (is_late) {
      ++mine.late;
    } else if (error && error->code == ErrorCode::Unavailable) {
      ++mine.refused;
    } else if (error) {
      if (!stop_.request_stop()) return;  // another client's error came first
      mine.error = error;
    } else {
      mine.latencies.push_back(std::chrono::duration<double>(took).count());
      mine.different += !expected_.empty() && !same_bits(answer, expected_[which]);
      mine.answers[which] = std::move(answer);
    }
  }

  InferenceSession& session_;
  const std::vector<std::vector<Tensor>>& feeds_;
  const LoadOptions& options_;
  const std::vector<std::vector<Tensor>>& expected_;
  std::stop_source& stop_;
};

LoadResult merged(std::vector<Client>& clients, Clock::time_point begin, std::size_t feeds) {
  LoadResult result;
  result.answers.resize(feeds);
  Clock::time_point end = begin;
  for (Client& client : clients) {
    if (client.error) throw_error(*client.error);
    result.latencies.insert(result.latencies.end(), client.latencies.begin(), client.latencies.end());
    result.late += client.late;
    result.refused += client.refused;
    result.different += client.different;
    for (std::size_t i = 0; i < feeds; ++i)
      if (!client.answers[i].empty()) result.answers[i] = std::move(client.answers[i]);
    end = std::max(end, client.end);
  }
  std::sort(result.latencies.begin(), result.latencies.end());
  result.seconds = std::chrono::duration<double>(end - begin).count();
  return result;
}

}  // namespace

LoadResult run_load(InferenceSession& session, const std::vector<std::vector<Tensor>>& feeds,
                    const LoadOptions& options, const std::vector<std::vector<Tensor>>& expected) {
  if (options.clients < 1 || feeds.empty())
    throw InvalidArgument("a load needs a client and something to send");
  const auto before = session.stats();
  std::vector<Client> clients(static_cast<std::size_t>(options.clients));
  std::stop_source stop;
  ClientRun run(session, feeds, options, expected, stop);
  std::latch ready(options.clients + 1);
  Clock::time_point begin;
  {
    std::vector<std::jthread> threads;
    for (int c = 0; c < options.clients; ++c)
      threads.emplace_back([&, c] {
        ready.arrive_and_wait();
        run(c, clients[static_cast<std::size_t>(c)]);
      });
    begin = Clock::now();
    ready.arrive_and_wait();
  }
  LoadResult result = merged(clients, begin, feeds.size());
  result.groups = session.stats();
  for (std::size_t g = 0; g < result.groups.size(); ++g) {
    result.groups[g].requests -= before[g].requests;
    result.groups[g].busy_seconds -= before[g].busy_seconds;
  }
  return result;
}

double LoadResult::percentile(double share) const {
  if (latencies.empty()) return 0;
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(latencies.size())));
  return latencies[std::clamp<std::size_t>(rank, 1, latencies.size()) - 1];
}

std::string format_load(const LoadResult& result, std::int64_t batch) {
  std::string text = fmt::format(
      "{} requests in {:.3f} s: {:.1f} requests/s, {:.1f} examples/s\n"
      "latency ms: p50 {:.3f}  p95 {:.3f}  p99 {:.3f}  max {:.3f}\n",
      result.answered(), result.seconds, result.per_second(),
      result.per_second() * static_cast<double>(batch), 1e3 * result.percentile(0.5),
      1e3 * result.percentile(0.95), 1e3 * result.percentile(0.99), 1e3 * result.percentile(1));
  if (result.late + result.refused > 0)
    text += fmt::format("late: {}, refused since the line was full: {}\n", result.late, result.refused);
  if (result.different > 0)
    text += fmt::format("answers that differ from a single group's: {}\n", result.different);
  for (std::size_t g = 0; g < result.groups.size(); ++g)
    text += fmt::format("group {}: {} requests, busy {:.1f} %\n", g, result.groups[g].requests,
                        100 * result.groups[g].busy_seconds / std::max(result.seconds, 1e-9));
  return text;
}

std::string load_json(const LoadResult& result, std::int64_t batch, const InferenceOptions& options,
                      int clients) {
  nlohmann::ordered_json out;
  out["groups"] = options.groups;
  out["clients"] = clients;
  out["batch"] = batch;
  out["merge_copies"] = options.instance.merge_copies;
  out["requests"] = result.answered();
  out["late"] = result.late;
  out["refused"] = result.refused;
  out["different"] = result.different;
  out["seconds"] = result.seconds;
  out["requests_per_second"] = result.per_second();
  out["p50_ms"] = 1e3 * result.percentile(0.5);
  out["p95_ms"] = 1e3 * result.percentile(0.95);
  out["p99_ms"] = 1e3 * result.percentile(0.99);
  for (const StreamGroups::Stats& group : result.groups)
    out["group_busy_seconds"].push_back(group.busy_seconds);
  return out.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace braid::worker
