// Question: what does a worker's cache of rows give, by the share of its rows that are there?
//
// A forked process is the server, two workers make steps in BSP: this process and another forked one. Each
// step a worker draws `ids` ids by a Zipf law (exponent S) from a table of 2^18 rows of `dim` columns with
// Adagrad, pulls their rows, each once, and pushes a gradient of each. Tables of one kind, one for each size
// of the cache (0: none), are trained in turns of `steps` steps, so that what else the machine does hits all
// alike. With --age it is ASP, and rows are used for so many steps. Numbers are medians over turns of this
// worker's time a step, and of the CPU time of all three processes a step; bytes are the rows' that the
// server sends. Verified in BSP: at the end rows pulled from all tables have the same bits.
//
//   cache_bench [--dim D] [--ids N] [--zipf S] [--steps N] [--turns T] [--workers 1|2] [--tcp 1] [--age N]
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstring>
#include <future>
#include <memory>
#include <random>
#include <utility>

#include "base/log.h"
#include "ps/client/ordered_keys.h"
#include "ps/client/ps_client.h"
#include "ps/client/row_cache.h"
#include "ps/server/ps_server.h"

namespace braid::ps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kRows = std::int64_t{1} << 18;
constexpr std::array<double, 5> kShares = {0, 0.02, 0.1, 0.3, 1};  // of the table's rows

struct Settings {
  std::int64_t dim = 16, ids = 4096;
  double zipf = 1.0;
  int steps = 20, turns = 9, workers = 2;
  bool tcp = false;
  std::uint64_t age = 0;  // 0: BSP
};

WaitContext long_wait() { return WaitContext::with_timeout(std::chrono::seconds(120)); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double cpu_seconds(clockid_t id) {
  timespec time{};
  clock_gettime(id, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double cpu_seconds_of(const std::vector<pid_t>& others) {
  double sum = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);
  for (const pid_t pid : others) {
    clockid_t clock = 0;
    if (clock_getcpuclockid(pid, &clock) == 0) sum += cpu_seconds(clock);
  }
  return sum;
}

TableSet table_set(const Settings& settings) {
  TableSet set;
  for (std::size_t t = 0; t < kShares.size(); ++t)
    set.sparse.push_back({fmt::format("table{}", t), settings.dim, {InitKind::Uniform, -0.1F, 0.1F}, {7}});
  set.optimizer.kind = OptimizerKind::Adagrad;
  set.workers = settings.workers;
  set.cached = true;
  if (settings.age > 0) set.consistency = Consistency::Asp;
  return set;
}

/// The ids of steps, the same for all tables: rank r of the law is some row, spread over the table.
class Ids {
 public:
  explicit Ids(const Settings& settings) : settings_(settings), sums_(static_cast<std::size_t>(kRows)) {
    double sum = 0;
    for (std::size_t r = 0; r < sums_.size(); ++r)
      sums_[r] = sum += std::pow(static_cast<double>(r + 1), -settings.zipf);
  }
  std::vector<std::int64_t> of(int worker, std::uint64_t step) const {
    std::mt19937_64 random(step * 2 + static_cast<std::uint64_t>(worker) + 1);
    std::uniform_real_distribution<double> uniform(0, sums_.back());
    std::vector<std::int64_t> ids(static_cast<std::size_t>(settings_.ids));
    for (std::int64_t& id : ids) {
      const auto rank = std::ranges::lower_bound(sums_, uniform(random)) - sums_.begin();
      id = rank * 0x9E3779B1 % kRows;
    }
    return ids;
  }

 private:
  const Settings settings_;
  std::vector<double> sums_;
};

class Worker {
 public:
  Worker(const Settings& settings, int index, const std::string& address)
      : settings_(settings), index_(index), ids_(settings) {
    PsClient::Options options;
    options.servers = {address};
    options.worker = index;
    options.workers = settings.workers;
    options.job = "cache_bench";
    options.same_host_socket = !settings.tcp;
    client_ = PsClient::connect(options, long_wait());
    const TableSet set = table_set(settings);
    client_->create_tables(set, long_wait());
    client_->wait_initialized(long_wait());
    for (const double share : kShares) {
      const auto rows = static_cast<std::int64_t>(share * static_cast<double>(kRows));
      RowCache::Options cache{{set.optimizer}, settings.dim, rows, kRows};
      if (settings.age > 0) cache.most_age = settings.age;
      caches_.push_back(rows == 0 ? nullptr : std::make_unique<RowCache>(std::move(cache)));
    }
  }

  void step(std::size_t table, std::uint64_t step) {
    const std::vector<std::int64_t> ids = ids_.of(index_, step);
    const auto n = static_cast<std::int64_t>(ids.size());
    std::vector<std::int64_t> keys(ids.size()), counts(1), entries(ids.size());
    std::vector<std::int32_t> places(ids.size());
    std::vector<std::int64_t> scratch(order_scratch_bytes(n, 1, 1) / 8 + 1);
    const std::vector<IdList> lists{{0, ids}};
    order_keys(lists, 1, 1, {keys.data(), counts.data(), places.data(), entries.data()}, scratch.data());
    const std::vector<int> tables{static_cast<int>(table)};
    const OrderedKeys ordered{tables, keys.data(), counts};
    std::vector<float> rows(static_cast<std::size_t>(counts[0] * settings_.dim));
    pull(*this, table, step, ordered, rows.data());
    for (float& value : rows) value = 0.01F * value + 0.001F;
    PushRequest push;
    push.step = step;
    push.sequence = static_cast<std::uint32_t>(table);
    push.params = {0.1F, 1.0F / static_cast<float>(settings_.workers), step};
    push.ordered = {{ordered, rows.data()}};
    auto pushed = std::make_shared<std::promise<ErrorPtr>>();
    auto ended = pushed->get_future();
    client_->push_async(
        push, [pushed](ErrorPtr error) { pushed->set_value(std::move(error)); }, long_wait());
    if (caches_[table]) caches_[table]->update(step, ordered, push.params, rows.data());
    if (const ErrorPtr error = ended.get()) throw_error(*error);
    rows_ += static_cast<double>(counts[0]);
  }

  double take_rows() { return std::exchange(rows_, 0); }
  double take_bytes() { return std::exchange(bytes_, 0); }
  CacheCounts counts(std::size_t table) const {
    return caches_[table] ? caches_[table]->counts() : CacheCounts{};
  }
  /// Of some rows.
  std::vector<float> values(std::size_t table, std::uint64_t version) {
    std::vector<std::int64_t> keys(5000);
    for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<std::int64_t>(i) * 17 % kRows;
    std::vector<float> rows(keys.size() * static_cast<std::size_t>(settings_.dim));
    PullRequest pull;
    pull.sparse = {{static_cast<int>(table), keys, rows.data(), true}};
    pull.min_version = version;
    pull.insert = false;
    client_->pull(pull, long_wait());
    return rows;
  }
  void leave() { client_->leave(long_wait()); }

 private:
  static void pull(Worker& self, std::size_t table, std::uint64_t step, const OrderedKeys& keys,
                   float* rows) {
    const double row_bytes = static_cast<double>(self.settings_.dim) * sizeof(float);
    PullRequest plain;
    plain.min_version = self.settings_.age > 0 ? 0 : step;
    if (!self.caches_[table]) {
      plain.ordered = {{keys, rows}};
      self.client_->pull(plain, long_wait());
      self.bytes_ += static_cast<double>(keys.counts[0]) * row_bytes;
      return;
    }
    RowCache& cache = *self.caches_[table];
    cache.plan(step, keys);
    RowCache::Round& round = *cache.round(step);
    plain.slots = true;
    plain.ordered = {self.settings_.age > 0 ? OrderedPull{round.missing, round.missing_rows}
                                            : OrderedPull{keys, nullptr, round.known, &round.changed}};
    cache.gather(round, rows);
    self.client_->pull(plain, long_wait());
    double sent = 0;
    if (self.settings_.age > 0) sent = static_cast<double>(round.missing.counts[0]);
    for (const auto& server : round.changed.servers) sent += static_cast<double>(server.rows.size());
    cache.land(round, rows);
    self.bytes_ += 2 * sent * row_bytes;  // with the slot
  }

  const Settings settings_;
  const int index_;
  const Ids ids_;
  std::unique_ptr<PsClient> client_;
  std::vector<std::unique_ptr<RowCache>> caches_;
  double rows_ = 0, bytes_ = 0;
};

/// Turn by turn, each table's `steps`.
template <class BeforeTable, class AfterTable>
void train(const Settings& settings, Worker& worker, BeforeTable before, AfterTable after) {
  for (int turn = 0; turn <= settings.turns; ++turn)  // the first fills the caches
    for (std::size_t i = 0; i < kShares.size(); ++i) {
      const std::size_t table = (i + static_cast<std::size_t>(turn)) % kShares.size();
      before(table);
      for (int s = 0; s < settings.steps; ++s)
        worker.step(table, static_cast<std::uint64_t>(turn * settings.steps + s));
      after(turn, table);
    }
}

struct Measured {
  std::vector<double> ms, cpu_ms, bytes, rows;
  CacheCounts before;
};

void report(const Settings& settings, std::size_t table, const Measured& measured, const CacheCounts& now) {
  const auto share = [&](std::uint64_t CacheCounts::*what) {
    const double all =
        static_cast<double>(now.hits + now.misses - measured.before.hits - measured.before.misses);
    return all == 0 ? 0 : static_cast<double>(now.*what - measured.before.*what) / all;
  };
  fmt::print(
      "{{\"bench\":\"cache\",\"age\":{},\"workers\":{},\"dim\":{},\"ids\":{},\"zipf\":{},\"cache_share\":{},"
      "\"rows_a_step\":{:.0f},\"ms_a_step\":{:.3f},\"cpu_ms_a_step\":{:.3f},\"kb_of_rows_a_step\":{:.1f},"
      "\"here\":{:.3f},\"changed_by_others\":{:.3f},\"turns\":{}}}\n",
      settings.age, settings.workers, settings.dim, settings.ids, settings.zipf, kShares[table],
      median(measured.rows), median(measured.ms), median(measured.cpu_ms), median(measured.bytes) / 1e3,
      share(&CacheCounts::hits), share(&CacheCounts::repairs), settings.turns);
}

void measure(const Settings& settings, const std::string& address, const std::vector<pid_t>& others) {
  Worker worker(settings, 0, address);
  std::vector<Measured> measured(kShares.size());
  Clock::time_point begin;
  double cpu = 0;
  train(
      settings, worker,
      [&](std::size_t) {
        begin = Clock::now();
        cpu = cpu_seconds_of(others);
      },
      [&](int turn, std::size_t table) {
        Measured& its = measured[table];
        const double rows = worker.take_rows() / settings.steps, bytes = worker.take_bytes() / settings.steps;
        if (turn == 0) {
          its.before = worker.counts(table);
          return;
        }
        its.ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count() /
                         settings.steps);
        its.cpu_ms.push_back(1e3 * (cpu_seconds_of(others) - cpu) / settings.steps);
        its.bytes.push_back(bytes);
        its.rows.push_back(rows);
      });
  const auto version = static_cast<std::uint64_t>((settings.turns + 1) * settings.steps);
  const std::vector<float> without = worker.values(0, settings.age > 0 ? 0 : version);
  for (std::size_t table = 1; table < kShares.size() && settings.age == 0; ++table)
    if (worker.values(table, version) != without) throw Internal("cache_bench: other rows than without");
  for (std::size_t table = 0; table < kShares.size(); ++table)
    report(settings, table, measured[table], worker.counts(table));
  worker.leave();
}

std::string read_line(int fd) {
  std::string line;
  for (char c; ::read(fd, &c, 1) == 1 && c != '\n';) line += c;
  return line;
}

pid_t start_server(int tell) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  PsServer::Options options;
  options.count = 1;
  options.grpc_listen = options.data_listen = "127.0.0.1:0";
  options.unix_socket = fmt::format("/tmp/cache_bench.{}", getpid());
  options.table_threads = 1;
  const auto server = PsServer::start(options);
  const std::string address = server->grpc_address() + "\n";
  if (::write(tell, address.data(), address.size()) < 0) _exit(1);
  for (;;) pause();
}

void run(const Settings& settings) {
  int ends[2];
  if (pipe(ends) != 0) throw Internal("cache_bench: no pipe");
  std::vector<pid_t> others{start_server(ends[1])};
  const std::string address = read_line(ends[0]);
  if (settings.workers > 1) {
    others.push_back(fork());
    if (others.back() == 0) {
      Worker worker(settings, 1, address);
      train(
          settings, worker, [](std::size_t) {}, [](int, std::size_t) {});
      worker.leave();
      _exit(0);
    }
  }
  measure(settings, address, others);
  for (const pid_t pid : others) {
    kill(pid, SIGTERM);
    waitpid(pid, nullptr, 0);
  }
}

}  // namespace
}  // namespace braid::ps

int main(int count, char** arguments) {
  using namespace braid;
  ps::Settings settings;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string_view name = arguments[i];
    const double value = std::atof(arguments[i + 1]);
    if (name == "--dim") settings.dim = static_cast<std::int64_t>(value);
    if (name == "--ids") settings.ids = static_cast<std::int64_t>(value);
    if (name == "--zipf") settings.zipf = value;
    if (name == "--steps") settings.steps = static_cast<int>(value);
    if (name == "--turns") settings.turns = static_cast<int>(value);
    if (name == "--workers") settings.workers = static_cast<int>(value);
    if (name == "--age") settings.age = static_cast<std::uint64_t>(value);
    if (name == "--tcp") settings.tcp = value != 0;
  }
  try {
    ps::run(settings);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
  return 0;
}
