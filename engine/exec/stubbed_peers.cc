#include "engine/exec/stubbed_peers.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "engine/device/accelerator.h"
#include "engine/ops/common/device_delay.h"
#include "engine/program/cost_model.h"

namespace braid {
namespace {

/// What an exchange takes between GPUs of one host: two H200 reach it. Between hosts it takes longer, and is
/// hidden by as many streams.
constexpr double kExchangeUs = 8, kBytesPerUs = 300e3;

}  // namespace

/// Completes nodes at their times, on a thread of its own.
class LaneStandIns::Timer {
 public:
  using Clock = std::chrono::steady_clock;

  Timer() : thread_([this] { work(); }) {}
  ~Timer() {
    {
      std::lock_guard lock(mu_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void complete_after(std::chrono::nanoseconds delay, Completion done) {
    {
      std::lock_guard lock(mu_);
      due_.emplace(Clock::now() + delay, std::move(done));
    }
    changed_.notify_all();
  }

 private:
  void work() {
    std::unique_lock lock(mu_);
    for (;;) {
      if (due_.empty()) {
        if (stopping_) return;
        changed_.wait(lock);
        continue;
      }
      const Clock::time_point next = due_.begin()->first;
      if (!stopping_ && Clock::now() < next) {
        changed_.wait_until(lock, next);
        continue;
      }
      const Completion done = std::move(due_.begin()->second);
      due_.erase(due_.begin());
      lock.unlock();
      done(nullptr);
      lock.lock();
    }
  }

  std::mutex mu_;
  std::condition_variable changed_;
  std::multimap<Clock::time_point, Completion> due_;  // guarded by mu_
  bool stopping_ = false;                             // guarded by mu_
  std::thread thread_;
};

LaneStandIns::LaneStandIns() : timer_(std::make_shared<Timer>()) {}
LaneStandIns::~LaneStandIns() = default;

std::shared_ptr<const Program> LaneStandIns::without_peers(const Program& program,
                                                           const std::vector<Lane>& real) {
  auto alone = std::make_shared<Program>(program);
  for (const ProgramOp& op : program.ops) {
    const bool on_device = op.domain == Domain::Device;
    if (op.kind != OpKind::Kernel || (!op.async && !on_device)) continue;
    Node& node = alone->graph.mutable_node(op.node);
    const Lane lane = node.op->lane;
    if (lane != Lane::Pull && lane != Lane::Push && lane != Lane::Comm) continue;
    if (std::ranges::find(real, lane) != real.end()) continue;
    auto stand_in = std::make_unique<OpDef>(*node.op);
    const std::chrono::nanoseconds delay(static_cast<std::int64_t>(1e3 * op.cost_us));
    stand_in->cpu = [timer = timer_, delay](const PrepareContext& c) {
      std::vector<std::size_t> bytes;
      for (const OutputInfo& info : c.outputs)
        bytes.push_back(static_cast<std::size_t>(info.shape.elements()) * dtype_size(info.dtype));
      PreparedKernel kernel;
      kernel.run_async = [timer, delay, bytes](const KernelArgs& args, Completion done) {
        for (std::size_t i = 0; i < bytes.size(); ++i) std::memset(args.outputs[i], 0, bytes[i]);
        timer->complete_after(delay, std::move(done));
      };
      return kernel;
    };
    const double device_us = kExchangeUs + modelled_cost(program, op).bytes / kBytesPerUs;
    stand_in->cuda = [device_us](const PrepareContext& c) {
      std::vector<std::uint64_t> bytes;
      for (const OutputInfo& info : c.outputs)
        bytes.push_back(static_cast<std::uint64_t>(info.shape.elements()) * dtype_size(info.dtype));
      PreparedKernel kernel;
      const double zeros_us =
          static_cast<double>(std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0})) /
          cost_model(Domain::Device).bytes_per_us;
      kernel.run = [bytes, delay_us = device_us - zeros_us, device = c.accelerator](const KernelArgs& args) {
        device_delay(args, delay_us);
        for (std::size_t i = 0; i < bytes.size(); ++i)
          if (bytes[i] != 0) device->fill_zero(args.outputs[i], bytes[i], args.stream);
      };
      return kernel;
    };
    node.op = stand_in.get();
    ops_.push_back(std::move(stand_in));
  }
  return alone;
}

}  // namespace braid
