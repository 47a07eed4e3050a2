#include "tests/engine/testing/test_ops.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <queue>
#include <random>
#include <thread>

#include "engine/compile/compile.h"
#include "engine/ir/op.h"
#include "tests/engine/testing/test_formulas.h"

namespace braid::testing {
namespace {

std::atomic<int> g_delay_us{0};
std::atomic<std::int64_t> g_spun_ns{0};

void random_delay() {
  const int most = g_delay_us.load(std::memory_order_relaxed);
  if (most == 0) return;
  thread_local std::minstd_rand random(std::random_device{}());
  const int us = static_cast<int>(random() % static_cast<unsigned>(most + 1));
  if (us % 4 == 0) return;
  if (us % 4 == 1) {
    std::this_thread::yield();
    return;
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(us);
  if (us > 60) {
    std::this_thread::sleep_until(end);
  } else {
    while (std::chrono::steady_clock::now() < end) {
    }
  }
}

std::vector<std::int64_t> sizes(std::span<const OutputInfo> infos) {
  std::vector<std::int64_t> result;
  for (const OutputInfo& info : infos) result.push_back(info.shape.elements());
  return result;
}

/// Digest of inputs [first, ...) and the salt.
std::uint64_t digest(const KernelArgs& a, const std::vector<std::int64_t>& elements, std::size_t first,
                     std::uint64_t salt) {
  std::uint64_t sum = digest_of_nothing(salt);
  for (std::size_t i = first; i < elements.size(); ++i) {
    const auto* in = a.in<std::uint64_t>(static_cast<int>(i));
    for (std::int64_t k = 0; k < elements[i]; ++k) sum = digest_with(sum, in[k], i);
  }
  return sum;
}

void write_digest(const KernelArgs& a, std::uint64_t value, std::int64_t elements) {
  auto* out = a.out<std::uint64_t>(0);
  for (std::int64_t k = 0; k < elements; ++k) out[k] = scramble(value + static_cast<std::uint64_t>(k));
}

void infer_elements(InferContext& c) { c.output(DType::Int64, Shape{c.attr<std::int64_t>("elements", 8)}); }

PreparedKernel prepare_mix(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [in = sizes(c.inputs), out = c.outputs[0].shape.elements(),
                salt = static_cast<std::uint64_t>(c.attr<std::int64_t>("salt", 0))](const KernelArgs& a) {
    // What still needs this memory finds it spoilt at once, not only when the result is there.
    std::memset(a.outputs[0], 0xDD, static_cast<std::size_t>(out) * sizeof(std::uint64_t));
    random_delay();
    write_digest(a, digest(a, in, 0, salt), out);
  };
  return kernel;
}

PreparedKernel prepare_change(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [in = sizes(c.inputs),
                salt = static_cast<std::uint64_t>(c.attr<std::int64_t>("salt", 0))](const KernelArgs& a) {
    random_delay();
    for (std::int64_t k = 0; k < in[0]; ++k) {
      std::uint64_t sum = salt;
      for (std::size_t i = 0; i < in.size(); ++i)
        sum = scramble(sum + a.in<std::uint64_t>(static_cast<int>(i))[k]);
      a.out<std::uint64_t>(0)[k] = sum;
    }
  };
  return kernel;
}

PreparedKernel prepare_update(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [in = sizes(c.inputs),
                salt = static_cast<std::uint64_t>(c.attr<std::int64_t>("salt", 0))](const KernelArgs& a) {
    random_delay();
    const std::uint64_t sum = digest(a, in, 1, salt);
    for (std::int64_t k = 0; k < in[0]; ++k) {
      std::uint64_t& w = a.var<std::uint64_t>(0)[k];
      w = scramble(w + sum);
    }
  };
  return kernel;
}

/// Runs functions on a thread of its own, in the order of their times.
class Timer {
 public:
  static Timer& get() {
    static Timer timer;
    return timer;
  }
  void after(std::chrono::microseconds delay, std::function<void()> function) {
    {
      std::lock_guard lock(mu_);
      items_.push({std::chrono::steady_clock::now() + delay, next_++, std::move(function)});
    }
    changed_.notify_all();
  }

 private:
  struct Item {
    std::chrono::steady_clock::time_point at;
    std::uint64_t number;
    std::function<void()> function;
    bool operator<(const Item& other) const {
      return std::tie(other.at, other.number) < std::tie(at, number);
    }
  };
  Timer() : thread_([this] { work(); }) {}
  ~Timer() {
    {
      std::lock_guard lock(mu_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void work() {
    std::unique_lock lock(mu_);
    while (!stopping_) {
      if (items_.empty()) {
        changed_.wait(lock);
      } else if (items_.top().at > std::chrono::steady_clock::now()) {
        // A copy: the queue may move its items while this waits, and wait_until looks at the time again.
        const auto next = items_.top().at;
        changed_.wait_until(lock, next);
      } else {
        const auto function = items_.top().function;
        items_.pop();
        lock.unlock();
        function();
        lock.lock();
      }
    }
  }

  std::mutex mu_;
  std::condition_variable changed_;
  std::priority_queue<Item> items_;
  std::uint64_t next_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

/// The inputs are read and the output is written when the time comes, so their memory must last until then.
PreparedKernel prepare_mix_async(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run_async = [in = sizes(c.inputs), out = c.outputs[0].shape.elements(),
                      us = c.attr<std::int64_t>("us", -1),
                      salt = static_cast<std::uint64_t>(c.attr<std::int64_t>("salt", 0))](const KernelArgs& a,
                                                                                          Completion done) {
    std::vector<void*> inputs(a.inputs, a.inputs + in.size());
    void* const output = a.outputs[0];
    const std::int64_t delay = us >= 0 ? us : g_delay_us.load(std::memory_order_relaxed);
    Timer::get().after(std::chrono::microseconds(delay),
                       [in, out, salt, inputs, output, done = std::move(done)] {
                         KernelArgs late{};
                         late.inputs = inputs.data();
                         void* outputs[] = {output};
                         late.outputs = outputs;
                         write_digest(late, digest(late, in, 0, salt), out);
                         done(nullptr);
                       });
  };
  return kernel;
}

PreparedKernel prepare_sleep(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [us = c.attr<std::int64_t>("us", 0)](const KernelArgs& a) {
    std::this_thread::sleep_for(std::chrono::microseconds(us));
    *a.out<std::int64_t>(0) = 1;
  };
  return kernel;
}

PreparedKernel prepare_spin(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [us = c.attr<std::int64_t>("us", 0)](const KernelArgs& a) {
    const auto begin = std::chrono::steady_clock::now();
    auto now = begin;
    while (now < begin + std::chrono::microseconds(us)) now = std::chrono::steady_clock::now();
    g_spun_ns += (now - begin).count();
    *a.out<std::int64_t>(0) = 1;
  };
  return kernel;
}

PreparedKernel prepare_nop(const PrepareContext&) {
  PreparedKernel kernel;
  kernel.run = [](const KernelArgs&) {};
  return kernel;
}

PreparedKernel prepare_fail(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run = [message = c.attr<std::string>("message", "broken"),
                at = c.attr<std::int64_t>("at_step", 0)](const KernelArgs& a) {
    if (a.params->step == static_cast<std::uint64_t>(at)) throw InvalidArgument(message);
    *a.out<std::int64_t>(0) = 1;
  };
  return kernel;
}

PreparedKernel prepare_fail_async(const PrepareContext& c) {
  PreparedKernel kernel;
  kernel.run_async = [message = c.attr<std::string>("message", "broken"),
                      at = c.attr<std::int64_t>("at_step", 0)](const KernelArgs& a, Completion done) {
    const bool fails = a.params->step == static_cast<std::uint64_t>(at);
    Timer::get().after(std::chrono::microseconds(200), [message, fails, done = std::move(done)] {
      done(fails ? make_error(ErrorCode::Unavailable, message) : nullptr);
    });
  };
  return kernel;
}

PreparedKernel prepare_block(const PrepareContext&) {
  PreparedKernel kernel;
  kernel.run = [](const KernelArgs& a) {
    for (;;) {
      a.wait->check("blocked");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  return kernel;
}

struct Held {
  std::mutex mu;
  std::vector<Completion> completions;
};
Held& held() {
  static Held all;
  return all;
}

PreparedKernel prepare_never(const PrepareContext&) {
  PreparedKernel kernel;
  kernel.run_async = [](const KernelArgs&, Completion done) {
    std::lock_guard lock(held().mu);
    held().completions.push_back(std::move(done));
  };
  return kernel;
}

OpDef test_op(std::string name, PrepareFn cpu, Lane lane = Lane::Compute) {
  OpDef def;
  def.name = std::move(name);
  def.max_inputs = -1;
  def.infer = infer_elements;
  def.no_gradient_reason = "a test op";
  def.cpu = std::move(cpu);
  def.lane = lane;
  def.stateful = true;  // neither folded nor merged: tests count nodes
  // What the kernel takes is attribute `us`, so that schedules can be predicted.
  def.cost = [](const InferContext& c, std::span<const OutputInfo>) {
    return Cost{20e3 * static_cast<double>(c.node().attrs.get<std::int64_t>("us", 1)), 0};
  };
  return def;
}

}  // namespace

void set_random_delay_us(int us) { g_delay_us.store(us); }
int random_delay_us() { return g_delay_us.load(); }

double spun_seconds() { return 1e-9 * static_cast<double>(g_spun_ns.exchange(0)); }

void release_never() {
  std::vector<Completion> completions;
  {
    std::lock_guard lock(held().mu);
    completions.swap(held().completions);
  }
  for (Completion& done : completions) done(make_error(ErrorCode::Unavailable, "released"));
}

void register_test_ops() {
  static const bool once = [] {
    OpRegistry& registry = OpRegistry::global();
    registry.add(test_op("test.Mix", prepare_mix));
    OpDef change = test_op("test.Change", prepare_change);
    change.in_place = {{0, 0}};
    registry.add(std::move(change));
    OpDef update = test_op("test.Update", prepare_update);
    update.infer = [](InferContext&) {};
    update.handles = {Access::ReadWrite};
    update.side_effect = true;
    registry.add(std::move(update));
    OpDef gather = test_op("test.Gather", prepare_mix);
    gather.handles = {Access::Read};
    registry.add(std::move(gather));
    registry.add(test_op("test.Pull", prepare_mix_async, Lane::Pull));
    registry.add(test_op("test.Push", prepare_mix_async, Lane::Push));
    registry.add(test_op("test.Comm", prepare_mix_async, Lane::Comm));
    OpDef exchange = test_op("test.Exchange", prepare_mix_async, Lane::Comm);  // others may wait for it
    exchange.side_effect = true;
    registry.add(std::move(exchange));
    registry.add(test_op("test.Sleep", prepare_sleep));
    registry.add(test_op("test.Spin", prepare_spin));
    registry.add(test_op("test.Nop", prepare_nop));
    registry.add(test_op("test.Fail", prepare_fail));
    registry.add(test_op("test.FailAsync", prepare_fail_async, Lane::Pull));
    registry.add(test_op("test.Block", prepare_block));
    registry.add(test_op("test.Never", prepare_never, Lane::Pull));
    return true;
  }();
  static_cast<void>(once);
}

ValueRef TestGraph::add(const std::string& op, std::vector<ValueRef> inputs, AttrMap attrs,
                        const std::string& name) {
  Node node;
  node.name = name.empty() ? graph.unique_name(op.substr(op.find('.') + 1)) : name;
  node.op = &OpRegistry::global().require(op);
  node.attrs = std::move(attrs);
  if (op.starts_with("test.") && !node.attrs.has("salt")) node.attrs.set("salt", ++salt_);
  node.inputs = std::move(inputs);
  return {graph.add(std::move(node)), 0};
}

ValueRef TestGraph::feed(const std::string& name, std::int64_t elements) {
  return add("Placeholder", {}, {{"dtype", DType::Int64}, {"shape", Shape{elements}}}, name);
}

ValueRef TestGraph::constant(std::vector<std::int64_t> values) {
  const Shape shape{static_cast<std::int64_t>(values.size())};
  return add("Const", {}, {{"dtype", DType::Int64}, {"value", Tensor::from<std::int64_t>(shape, values)}});
}

ValueRef TestGraph::variable(const std::string& name, std::int64_t elements, bool sparse) {
  return add(
      "VarHandleOp", {},
      {{"dtype", DType::Int64}, {"shape", Shape{elements}}, {"shared_name", name}, {"_sparse", sparse}},
      name);
}

ValueRef TestGraph::mix(std::vector<ValueRef> inputs, std::int64_t elements, const std::string& name) {
  return add("test.Mix", std::move(inputs), {{"elements", elements}}, name);
}

Tensor test_tensor(std::int64_t elements, std::uint64_t seed) {
  Tensor tensor(DType::Int64, Shape{elements});
  for (std::int64_t i = 0; i < elements; ++i)
    tensor.data<std::int64_t>()[static_cast<std::size_t>(i)] =
        static_cast<std::int64_t>(scramble(seed * 1000 + static_cast<std::uint64_t>(i)));
  return tensor;
}

Tensor random_floats(const Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> value(-1, 1);
  Tensor made = Tensor::zeros(DType::Float32, shape);
  for (float& x : made.data<float>()) x = value(random);
  return made;
}

int count_ops(const Program& program, const std::string& op) {
  return static_cast<int>(
      std::count_if(program.ops.begin(), program.ops.end(), [&](const ProgramOp& o) { return o.op == op; }));
}

std::shared_ptr<const Program> compile_test(const TestGraph& graph, const std::vector<std::string>& fetches,
                                            const std::vector<std::string>& targets, int streams,
                                            StreamPolicy policy, int steps_in_flight,
                                            std::vector<FeedSpec> feeds) {
  CompileOptions options;
  options.streams.count = streams;
  options.streams.policy = policy;
  options.steps_in_flight = steps_in_flight;
  return compile(graph.graph, {std::move(feeds), fetches, targets}, options);
}

WaitContext soon(int milliseconds) {
  return WaitContext::with_timeout(std::chrono::milliseconds(milliseconds));
}

StepRequest request(std::uint64_t step, std::vector<Tensor> feeds) {
  StepRequest r;
  r.params.step = step;
  r.feeds = std::move(feeds);
  return r;
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

}  // namespace braid::testing
