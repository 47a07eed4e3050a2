// Question: what share of a plain socket's bandwidth do pushes and pulls of the parameter server reach, and
// how fast does one thread sum and apply?
//
// A forked process is the server, this one the worker. A push is one 4 MiB dense table, or 16384 sparse rows
// of 16 columns out of 2^20 (keys and rows; no batch has the order in which rows were made); a pull is the
// same the other way. Up to `window` are in flight.
// Beside it, in turn in the same run, two blocking threads with a connected socket move the same buffers (a
// 16-byte header, keys and payload one way, an acknowledgement or the payload the other). Numbers are medians
// of rounds; GB/s counts gradient or parameter bytes (and the keys of a push) once. Table modes: noop throws
// pushes away; sgd applies them, one table thread. Verified: after the sgd rounds the table is minus the
// number of pushes times the gradient.
//
//   ps_bench [--seconds S] [--rounds R] [--window N] [--cases TEXT]      (cases whose name has TEXT)
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <numeric>
#include <semaphore>
#include <thread>

#include "base/log.h"
#include "ps/client/ps_client.h"
#include "ps/server/ps_server.h"
#include "ps/table/dense_table.h"
#include "ps/table/sparse_table.h"

namespace braid::ps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kElements = std::int64_t{1} << 20;  // 4 MiB
constexpr int kTables = 8;
constexpr std::int64_t kRows = 16384;
constexpr std::int64_t kDim = 16;
constexpr std::int64_t kKeySpace = std::int64_t{1} << 20;

struct Settings {
  double seconds = 0.5;
  int rounds = 5;
  int window = 4;
  std::string cases;
};

bool matches(const Settings& settings, std::string_view what) {
  return what.find(settings.cases) != std::string_view::npos;
}

/// The keys 0 to `space` - 1, a power of two, in an order that is not that in which rows are made: an odd
/// multiplier is a permutation.
std::vector<std::int64_t> spread_keys(std::int64_t space) {
  std::vector<std::int64_t> keys(static_cast<std::size_t>(space));
  for (std::int64_t k = 0; k < space; ++k) keys[static_cast<std::size_t>(k)] = k * 0x9E3779B1 % space;
  return keys;
}

WaitContext long_wait() { return WaitContext::with_timeout(std::chrono::seconds(60)); }

void require(bool condition, const char* what) {
  if (!condition) throw Internal(fmt::format("ps_bench: {}", what));
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double cpu_seconds(clockid_t id) {
  timespec time{};
  clock_gettime(id, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

/// CPU seconds that this process and the server process have used.
class CpuClock {
 public:
  explicit CpuClock(pid_t child) { require(clock_getcpuclockid(child, &child_) == 0, "no CPU clock"); }
  double seconds() const { return cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) + cpu_seconds(child_); }

 private:
  clockid_t child_ = 0;
};

/// Operations a second of `start_one(slots)`, which begins one and releases the semaphore at its end.
double rate(const Settings& settings, const std::function<void(std::counting_semaphore<>&)>& start_one) {
  std::counting_semaphore<> slots(settings.window);
  auto drain = [&] {
    for (int i = 0; i < settings.window; ++i) slots.acquire();
    slots.release(settings.window);
  };
  auto one = [&] {
    slots.acquire();
    start_one(slots);
  };
  for (int i = 0; i < 2 * settings.window; ++i) one();
  drain();
  const auto begin = Clock::now();
  const auto end =
      begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(settings.seconds));
  std::uint64_t count = 0;
  for (; Clock::now() < end; ++count) one();
  drain();
  return static_cast<double>(count) / std::chrono::duration<double>(Clock::now() - begin).count();
}

// --- the blocking socket ---

struct RawHeader {
  std::uint64_t request_bytes;  // that follow
  std::uint64_t reply_bytes;    // that are asked for
};

bool read_all(int fd, void* data, std::size_t bytes) {
  auto* to = static_cast<char*>(data);
  while (bytes > 0) {
    const auto got = recv(fd, to, bytes, 0);
    if (got <= 0) return false;
    to += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

void write_all(int fd, std::vector<iovec> pieces) {
  std::size_t at = 0;
  while (at < pieces.size()) {
    msghdr message{};
    message.msg_iov = pieces.data() + at;
    message.msg_iovlen = pieces.size() - at;
    auto sent = sendmsg(fd, &message, MSG_NOSIGNAL);
    require(sent > 0, "write failed");
    while (at < pieces.size() && static_cast<std::size_t>(sent) >= pieces[at].iov_len)
      sent -= static_cast<ssize_t>(pieces[at++].iov_len);
    if (at < pieces.size()) {
      pieces[at].iov_base = static_cast<char*>(pieces[at].iov_base) + sent;
      pieces[at].iov_len -= static_cast<std::size_t>(sent);
    }
  }
}

std::pair<int, int> connected_pair(bool unix_socket) {
  int ends[2];
  if (unix_socket) {
    require(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0, "socketpair failed");
    return {ends[0], ends[1]};
  }
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  require(bind(listener, generic, size) == 0 && listen(listener, 1) == 0 &&
              getsockname(listener, generic, &size) == 0,
          "listen failed");
  ends[0] = socket(AF_INET, SOCK_STREAM, 0);
  require(connect(ends[0], generic, size) == 0, "connect failed");
  ends[1] = accept(listener, nullptr, nullptr);
  close(listener);
  const int one = 1;
  for (int end : ends) setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  return {ends[0], ends[1]};
}

void serve_raw(int fd) {
  // As many places as the server has for gradients and tables, so that caches help both alike.
  std::vector<std::vector<char>> in(4, std::vector<char>(8 << 20)),
      out(kTables, std::vector<char>(8 << 20, 1));
  RawHeader header;
  for (std::size_t turn = 0; read_all(fd, &header, sizeof header); ++turn) {
    if (!read_all(fd, in[turn % in.size()].data(), header.request_bytes)) return;
    std::uint64_t reply = header.reply_bytes;
    write_all(fd, {{&reply, sizeof reply}, {out[turn % out.size()].data(), reply}});
  }
}

/// Operations a second with these buffers there and back.
double raw_rate(int fd, const Settings& settings, const std::vector<iovec>& request,
                std::uint64_t reply_bytes) {
  RawHeader header{0, reply_bytes};
  for (const iovec& piece : request) header.request_bytes += piece.iov_len;
  std::vector<iovec> pieces{{&header, sizeof header}};
  pieces.insert(pieces.end(), request.begin(), request.end());
  std::vector<std::vector<char>> replies_to(kTables, std::vector<char>(reply_bytes));
  std::atomic<std::counting_semaphore<>*> slots{nullptr};
  std::counting_semaphore<> begun(0);
  std::atomic<bool> ended{false};
  std::jthread replies([&] {
    for (std::size_t turn = 0;; ++turn) {
      begun.acquire();
      if (ended) return;
      std::uint64_t bytes = 0;
      if (!read_all(fd, &bytes, sizeof bytes)) return;
      if (!read_all(fd, replies_to[turn % replies_to.size()].data(), bytes)) return;
      slots.load()->release();
    }
  });
  const double result = rate(settings, [&](std::counting_semaphore<>& s) {
    slots = &s;
    write_all(fd, pieces);
    begun.release();
  });
  ended = true;
  begun.release();
  return result;
}

// --- the parameter server ---

struct Child {
  pid_t pid = 0;
  std::string noop, sgd;  // gRPC addresses
};

/// Forked before this process has threads. Serves until it is killed.
Child start_child(int raw_tcp, int raw_unix) {
  int ends[2];
  require(pipe(ends) == 0, "pipe failed");
  Child child;
  child.pid = fork();
  if (child.pid == 0) {
    set_log_level(LogLevel::Warning);
    std::jthread tcp([=] { serve_raw(raw_tcp); });
    std::jthread local([=] { serve_raw(raw_unix); });
    std::vector<std::unique_ptr<PsServer>> servers;
    std::string addresses;
    for (bool apply : {false, true}) {
      PsServer::Options options;
      options.grpc_listen = "127.0.0.1:0";
      options.data_listen = "127.0.0.1:0";
      options.unix_socket = fmt::format("/tmp/braid-ps-bench-{}-{}.sock", getpid(), apply);
      options.table_threads = 1;
      options.apply_updates = apply;
      servers.push_back(PsServer::start(options));
      addresses += servers.back()->grpc_address() + "\n";
    }
    require(write(ends[1], addresses.data(), addresses.size()) > 0, "pipe failed");
    for (auto& server : servers) server->wait_shutdown(WaitContext::with_timeout(std::chrono::hours(1)));
    servers.clear();
    _exit(0);
  }
  char text[256] = {};
  std::size_t got = 0;
  while (std::count(text, text + got, '\n') < 2) {
    const auto more = read(ends[0], text + got, sizeof text - got);
    require(more > 0, "the server process ended");
    got += static_cast<std::size_t>(more);
  }
  const std::string both(text, got);
  child.noop = both.substr(0, both.find('\n'));
  child.sgd = both.substr(both.find('\n') + 1);
  child.sgd.pop_back();
  return child;
}

class Worker {
 public:
  Worker(const std::string& server, bool unix_socket, std::uint64_t incarnation) {
    PsClient::Options options;
    options.servers = {server};
    options.job = "bench";
    options.incarnation = incarnation;
    options.same_host_socket = unix_socket;
    client_ = PsClient::connect(options, long_wait());
    TableSet set;
    for (int t = 0; t < kTables; ++t) set.dense.push_back({fmt::format("w{}", t), kElements});
    set.sparse = {{"emb", kDim, {InitKind::Zeros, 0, 0}, {1}}};
    set.consistency = Consistency::Asp;
    client_->create_tables(set, long_wait());
    gradient_.resize(kElements);
    for (std::size_t i = 0; i < gradient_.size(); ++i) gradient_[i] = static_cast<float>(i % 8);
    out_.resize(kElements * static_cast<std::size_t>(kTables));
    const std::vector<float> zeros(kElements);
    for (const auto& table : set.dense) client_->set_dense(table.name, zeros, long_wait());
    all_keys_ = spread_keys(kKeySpace);
    rows_.resize(static_cast<std::size_t>(kRows * kDim), 1.0F);
    for (std::int64_t first = 0; first < kKeySpace; first += kRows) make_rows(first);
  }
  void end() { client_->shutdown(long_wait()); }

  void push_dense(std::counting_semaphore<>& slots) {
    const int table = static_cast<int>(step_ % kTables);
    PushRequest push = next_push();
    push.dense = {{table, gradient_}};
    ++pushes_[table];
    client_->push_async(std::move(push), releasing(slots), long_wait());
  }
  void pull_dense(std::counting_semaphore<>& slots) {
    const auto table = static_cast<int>(next_pull_++ % kTables);
    std::span<float> out(out_.data() + static_cast<std::size_t>(table) * kElements, kElements);
    client_->pull_async({{{table, out}}, {}, 0, true}, releasing(slots), long_wait());
  }
  void push_sparse(std::counting_semaphore<>& slots) {
    PushRequest push = next_push();
    push.sparse = {{0, keys(), rows_.data(), true}};
    client_->push_async(std::move(push), releasing(slots), long_wait());
  }
  void pull_sparse(std::counting_semaphore<>& slots) {
    float* out = out_.data() + (next_pull_++ % 64) * static_cast<std::size_t>(kRows * kDim);
    out = out_.data() + (static_cast<std::size_t>(out - out_.data()) %
                         (out_.size() - static_cast<std::size_t>(kRows * kDim)));
    client_->pull_async({{}, {{0, keys(), out, true}}, 0, true}, releasing(slots), long_wait());
  }
  void verify_sgd() {
    std::vector<float> values(kElements);
    for (int t = 0; t < kTables; ++t) {
      client_->read_dense(fmt::format("w{}", t), values, long_wait());
      for (std::size_t i = 0; i < values.size(); ++i)
        require(values[i] == -static_cast<float>(pushes_[t]) * gradient_[i],
                "the table is not what was pushed");
    }
  }

  std::span<const std::int64_t> keys() {
    first_key_ = (first_key_ + kRows) % kKeySpace;
    return std::span<const std::int64_t>(all_keys_).subspan(static_cast<std::size_t>(first_key_), kRows);
  }
  std::vector<float>& gradient() { return gradient_; }
  std::vector<float>& rows() { return rows_; }

 private:
  PushRequest next_push() {
    PushRequest push;
    push.step = step_++;
    push.params = {1.0F, 1.0F, push.step};
    push.examples = 1;
    return push;
  }
  void make_rows(std::int64_t first) {
    std::vector<float> out(static_cast<std::size_t>(kRows * kDim));
    std::vector<std::int64_t> keys(kRows);
    std::iota(keys.begin(), keys.end(), first);
    client_->pull({{}, {{0, keys, out.data(), true}}, 0, true}, long_wait());
  }
  static PsClient::Done releasing(std::counting_semaphore<>& slots) {
    return [&slots](const ErrorPtr& error) {
      if (error) log_error("{}", error->message);
      slots.release();
    };
  }

  std::unique_ptr<PsClient> client_;
  std::vector<float> gradient_, out_, rows_;
  std::vector<std::int64_t> all_keys_;
  std::int64_t first_key_ = 0;
  std::uint64_t step_ = 0, next_pull_ = 0;
  std::uint64_t pushes_[kTables] = {};
};

using Operation = void (Worker::*)(std::counting_semaphore<>&);

/// Rates of rounds, and CPU seconds of both processes for an operation.
struct Measured {
  std::vector<double> rates, cpu;

  void round(const Settings& settings, const CpuClock& clock, const std::function<double()>& run) {
    const double before = clock.seconds();
    rates.push_back(run());
    // rate() also runs two windows of warm-up.
    cpu.push_back((clock.seconds() - before) / (rates.back() * settings.seconds + 2 * settings.window));
  }
};

struct Case {
  const char* what;
  Operation operation;
  double bytes;  // counted for an operation
  std::vector<iovec> request;
  std::uint64_t reply_bytes;
};

void compare(const Settings& settings, const Case& c, Worker& worker, const CpuClock& clock, int raw,
             const char* transport, const char* table) {
  if (!matches(settings, c.what)) return;
  Measured socket, ps;
  for (int round = 0; round < settings.rounds; ++round) {
    socket.round(settings, clock, [&] { return raw_rate(raw, settings, c.request, c.reply_bytes); });
    ps.round(settings, clock, [&] {
      return rate(settings, [&](std::counting_semaphore<>& slots) { (worker.*c.operation)(slots); });
    });
  }
  const double gbps = median(ps.rates) * c.bytes / 1e9, raw_gbps = median(socket.rates) * c.bytes / 1e9;
  fmt::print(
      "{{\"bench\":\"ps\",\"case\":\"{}\",\"transport\":\"{}\",\"table\":\"{}\",\"gb_per_s\":{:.3f},"
      "\"raw_gb_per_s\":{:.3f},\"share\":{:.3f},\"cpu_s_per_gb\":{:.3f},\"raw_cpu_s_per_gb\":{:.3f},"
      "\"window\":{},"
      "\"rounds\":{},\"seconds\":{},\"processors\":{}}}\n",
      c.what, transport, table, gbps, raw_gbps, gbps / raw_gbps, median(ps.cpu) / c.bytes * 1e9,
      median(socket.cpu) / c.bytes * 1e9, settings.window, settings.rounds, settings.seconds,
      std::thread::hardware_concurrency());
  std::fflush(stdout);
}

void bench_network(const Settings& settings) {
  const auto [raw_tcp, child_tcp] = connected_pair(false);
  const auto [raw_unix, child_unix] = connected_pair(true);
  const Child child = start_child(child_tcp, child_unix);
  const CpuClock clock(child.pid);
  std::uint64_t incarnation = 0;
  for (bool unix_socket : {false, true}) {
    const int raw = unix_socket ? raw_unix : raw_tcp;
    const char* transport = unix_socket ? "unix" : "tcp";
    for (const char* table : {"noop", "sgd"}) {
      const bool sgd = std::strcmp(table, "sgd") == 0;
      Worker worker(sgd ? child.sgd : child.noop, unix_socket, ++incarnation);
      const double dense = kElements * 4.0, keys = kRows * 8.0, rows = kRows * kDim * 4.0;
      const iovec dense_out{worker.gradient().data(), static_cast<std::size_t>(dense)};
      const iovec keys_out{const_cast<std::int64_t*>(worker.keys().data()), static_cast<std::size_t>(keys)};
      const iovec rows_out{worker.rows().data(), static_cast<std::size_t>(rows)};
      const auto run = [&](const Case& c) { compare(settings, c, worker, clock, raw, transport, table); };
      run({"push dense 4 MiB", &Worker::push_dense, dense, {dense_out}, 0});
      run({"push sparse 16384 x 16", &Worker::push_sparse, keys + rows, {keys_out, rows_out}, 0});
      if (!sgd) continue;  // pulls do not depend on what pushes do
      run({"pull dense 4 MiB", &Worker::pull_dense, dense, {}, static_cast<std::uint64_t>(dense)});
      run({"pull sparse 16384 x 16",
           &Worker::pull_sparse,
           rows,
           {keys_out},
           static_cast<std::uint64_t>(rows)});
      worker.verify_sgd();
    }
  }
  kill(child.pid, SIGTERM);
  waitpid(child.pid, nullptr, 0);
  close(raw_tcp);
  close(raw_unix);
}

void bench_apply(const Settings& settings, const char* what, OptimizerKind kind, std::size_t workers) {
  if (!matches(settings, what)) return;
  OptimizerSpec spec;
  spec.kind = kind;
  // Eight tables of 4 MiB and their gradients are far larger than the caches.
  std::vector<DenseTable> tables;
  std::vector<std::vector<float>> gradients(workers * kTables, std::vector<float>(kElements, 0.5F));
  for (int t = 0; t < kTables; ++t) tables.emplace_back(kElements, spec);
  std::vector<double> rates;
  std::uint64_t step = 0;
  for (int round = 0; round < settings.rounds; ++round) {
    const auto begin = Clock::now();
    std::uint64_t count = 0;
    double seconds = 0;
    for (; seconds < settings.seconds; ++count) {
      auto& table = tables[count % kTables];
      std::vector<const float*> pointers;
      for (std::size_t w = 0; w < workers; ++w)
        pointers.push_back(gradients[(count % kTables) * workers + w].data());
      const PreparedUpdate update = prepare_update(spec, {0.01F, 1.0F, step++});
      for (std::int64_t block = 0; block < table.blocks(); ++block) table.apply(block, update, pointers);
      seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    }
    rates.push_back(static_cast<double>(count * workers) * kElements * 4.0 / seconds / 1e9);
  }
  fmt::print(
      "{{\"bench\":\"ps\",\"case\":\"{}\",\"gradients\":{},\"gradient_gb_per_s\":{:.3f},\"threads\":1,"
      "\"rounds\":{}}}\n",
      what, workers, median(rates), settings.rounds);
}

/// One thread with a sparse table of `space` rows, by its CPU time: pushes and pulls of kRows rows, without a
/// network.
void bench_rows(const Settings& settings, const char* what, std::int64_t space) {
  if (!matches(settings, what)) return;
  const OptimizerSpec spec;
  SparseTable table({"emb", kDim, {InitKind::Zeros, 0, 0}, {1}}, spec);
  const std::vector<std::int64_t> keys = spread_keys(space);
  std::vector<std::uint32_t> positions(static_cast<std::size_t>(std::max(kRows, space)));
  std::iota(positions.begin(), positions.end(), 0U);
  std::vector<std::int64_t> in_order(positions.begin(), positions.begin() + space);
  // As many blocks in transit as the network's window has.
  std::vector<std::vector<float>> blocks(static_cast<std::size_t>(settings.window),
                                         std::vector<float>(static_cast<std::size_t>(kRows * kDim), 1.0F));
  std::vector<float> all(static_cast<std::size_t>(space * kDim));
  table.pull(in_order, std::span(positions).first(in_order.size()), true, 0, all.data());
  std::array<std::vector<double>, 2> nanoseconds;  // push, pull
  std::uint64_t count = 0;
  const auto end = Clock::now() + settings.rounds * std::chrono::duration<double>(settings.seconds);
  for (; Clock::now() < end; ++count) {
    const auto batch = std::span(keys).subspan(count * kRows % keys.size(), kRows);
    const auto part = std::span(positions).first(kRows);
    std::vector<float>& block = blocks[count % blocks.size()];
    const double begin = cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
    if (count % 2 == 0) {
      const SparseGradient gradient{batch, part, block.data()};
      table.apply(prepare_update(spec, {0.01F, 1.0F, count}), count, {&gradient, 1});
    } else {
      table.pull(batch, part, true, count, block.data());
    }
    nanoseconds[count % 2].push_back((cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - begin) * 1e9 / kRows);
  }
  fmt::print(
      "{{\"bench\":\"ps\",\"case\":\"{}\",\"push_ns_a_row\":{:.1f},\"pull_ns_a_row\":{:.1f},\"threads\":1}}"
      "\n",
      what, median(nanoseconds[0]), median(nanoseconds[1]));
}

}  // namespace
}  // namespace braid::ps

int main(int count, char** arguments) {
  using namespace braid;
  ps::Settings settings;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string_view name = arguments[i];
    if (name == "--seconds") settings.seconds = std::atof(arguments[i + 1]);
    if (name == "--rounds") settings.rounds = std::atoi(arguments[i + 1]);
    if (name == "--window") settings.window = std::atoi(arguments[i + 1]);
    if (name == "--cases") settings.cases = arguments[i + 1];
  }
  try {
    ps::bench_network(settings);
    ps::bench_apply(settings, "apply SGD", OptimizerKind::Sgd, 1);
    ps::bench_apply(settings, "sum and apply SGD", OptimizerKind::Sgd, 2);
    ps::bench_apply(settings, "sum and apply SGD", OptimizerKind::Sgd, 4);
    ps::bench_apply(settings, "apply Adagrad", OptimizerKind::Adagrad, 1);
    ps::bench_apply(settings, "apply Adam", OptimizerKind::Adam, 1);
    ps::bench_rows(settings, "rows of 16 out of 2^20", std::int64_t{1} << 20);
    ps::bench_rows(settings, "rows of 16 out of 2^14", std::int64_t{1} << 14);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
  return 0;
}
