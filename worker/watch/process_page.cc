#include "worker/watch/process_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <utility>

#include "base/env.h"
#include "base/error.h"
#include "base/log.h"
#include "watch/page.h"
#include "watch/rules.h"

namespace braid::worker {
namespace {

using PageClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kSampleEvery{1000};
constexpr std::size_t kSamples = 5;                  // the window of shares and rates is as many seconds
constexpr std::chrono::milliseconds kPeerTime{900};  // for all peers to answer
constexpr std::chrono::seconds kInterest{10};        // so long after a request somebody looks

HttpResponse json_response(std::string body) { return {200, "application/json", std::move(body)}; }

std::string boot_id() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string text;
  std::getline(in, text);
  return text;
}

}  // namespace

ProcessPage::ProcessPage(Sources sources) : sources_(std::move(sources)) {
  samples_.push_back(sources_.read(false));
  watching_ = std::jthread([this](const std::stop_token& stop) { keep_up(stop); });
}

ProcessPage::~ProcessPage() {
  watching_.request_stop();
  watching_.join();
}

void ProcessPage::keep_up(const std::stop_token& stop) {
  auto next = PageClock::now() + kSampleEvery;
  while (!stop.stop_requested()) {
    std::vector<watch::PeerAddress> peers;
    {
      std::unique_lock lock(mu_);
      const bool early = looked_at_;
      wake_.wait_until(lock, stop, next, [&] { return looked_at_ != early; });
      if (stop.stop_requested()) return;
      if (looked_at_ && PageClock::now() - asked_ < kInterest)
        peers = peers_;
      else
        looked_at_ = false;
    }
    try {
      if (PageClock::now() >= next) {
        history_.add(status(false));
        watch::Status now = sources_.read(false);
        trace_.tick();
        next = std::max(next + kSampleEvery, PageClock::now());
        std::lock_guard lock(mu_);
        samples_.push_back(std::move(now));
        if (samples_.size() > kSamples) samples_.pop_front();
      }
      if (peers.empty()) continue;
      watch::JobStatus job;
      {
        std::lock_guard lock(mu_);
        job = job_;
      }
      ask_peers(peers, kPeerTime, job);
      std::lock_guard lock(mu_);
      job_ = std::move(job);
    } catch (const Error& error) {
      log_debug("page: {}", error.message());
    }
  }
}

watch::Status ProcessPage::status(bool devices) {
  watch::Status now = sources_.read(devices);
  {
    std::lock_guard lock(mu_);
    set_rates(now, samples_.front());
    now.peers = peers_;
  }
  now.warnings = watch::find_warnings(now);
  return now;
}

void ProcessPage::set_peers(std::vector<watch::PeerAddress> peers) {
  std::lock_guard lock(mu_);
  peers_ = std::move(peers);
}

void ProcessPage::set_plan(std::string json) {
  std::lock_guard lock(mu_);
  plan_ = std::move(json);
}

watch::JobStatus ProcessPage::job() {
  watch::Status own = status();
  watch::JobStatus job;
  {
    std::lock_guard lock(mu_);
    asked_ = PageClock::now();
    if (!looked_at_) {
      looked_at_ = true;
      wake_.notify_all();
    }
    job = job_;
    if (job.peers.empty())
      for (const watch::PeerAddress& peer : peers_)
        job.peers.push_back({peer.task, peer.address, std::nullopt, watch::kNotAskedYet, 0});
  }
  job.job = own.job;
  job.time = own.time;
  bool found = false;
  for (watch::Peer& peer : job.peers) {
    if (peer.task != own.task) continue;
    found = true;
    peer.error.clear();
    peer.silent_seconds = 0;
    peer.status = own;
  }
  if (!found) job.peers.push_back({own.task, "", own, "", 0});
  job.warnings = watch::find_warnings(job);
  return job;
}

HttpResponse ProcessPage::guarded(const HttpRequest& request,
                                  const std::function<HttpResponse()>& answer) const {
  if (sources_.refuse)
    if (const std::string why = sources_.refuse(request); !why.empty())
      return {401, "text/plain; charset=utf-8", why + "\n"};
  return answer();
}

HttpResponse ProcessPage::answer_trace(std::string_view target) {
  const auto number = query_value(target, "window");
  const auto window = number ? parse_int(*number) : std::nullopt;
  const auto state =
      window && *window > 0 ? trace_.state(static_cast<std::uint64_t>(*window)) : TraceWindow::State::Unknown;
  if (state == TraceWindow::State::Recording) return {202, "text/plain; charset=utf-8", "recording\n"};
  std::string json = state == TraceWindow::State::Ready ? trace_.json() : "";
  if (json.empty())
    return {404, "text/plain; charset=utf-8", "no such window: /trace/start?steps=N begins one\n"};
  return json_response(std::move(json));
}

void ProcessPage::add_to(HttpServer& server) {
  for (const watch::PageFile& file : watch::page_files())
    server.handle(std::string(file.path), [&file](std::string_view) {
      return HttpResponse{200, std::string(file.content_type), std::string(file.body)};
    });
  server.handle("/status.json", [this](std::string_view) { return json_response(to_json(status()) + "\n"); });
  server.handle("/job.json", [this](std::string_view) { return json_response(to_json(job()) + "\n"); });
  server.handle("/history.json",
                [this](std::string_view) { return json_response(history_.to_json() + "\n"); });
  server.handle("/clock.json", [boot = boot_id()](std::string_view) {
    const auto now = PageClock::now().time_since_epoch();
    return json_response(fmt::format("{{\"boot_id\":\"{}\",\"steady_us\":{:.3f}}}\n", boot,
                                     std::chrono::duration<double, std::micro>(now).count()));
  });
  server.handle_request("/plan.json", [this](const HttpRequest& request) {
    return guarded(request, [this] {
      std::lock_guard lock(mu_);
      return plan_.empty() ? HttpResponse{404, "text/plain; charset=utf-8", "this process has no plan\n"}
                           : json_response(plan_);
    });
  });
  server.handle_request("/trace/start", [this](const HttpRequest& request) {
    return guarded(request, [&] {
      const auto text = query_value(request.target, "steps");
      const auto steps = text ? parse_int(*text) : std::optional<std::int64_t>(5);
      if (!steps || *steps < 1)
        return HttpResponse{400, "text/plain; charset=utf-8", "steps must be a number from 1\n"};
      const auto from = query_value(request.target, "first");
      const std::int64_t first = from ? parse_int(*from).value_or(0) : 0;
      const auto window = trace_.start(static_cast<std::uint64_t>(*steps), sources_.read(false).step,
                                       static_cast<std::uint64_t>(std::max<std::int64_t>(0, first)));
      if (!window) return HttpResponse{404, "text/plain; charset=utf-8", "this process runs no steps\n"};
      return json_response(fmt::format("{{\"window\":{}}}\n", *window));
    });
  });
  server.handle_request("/trace.json", [this](const HttpRequest& request) {
    return guarded(request, [&] { return answer_trace(request.target); });
  });
}

}  // namespace braid::worker
