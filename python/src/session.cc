// braid._braid.Session: worker/session/graph_session.h for Python.
#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <future>
#include <stop_token>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "engine/staging/stage_pools.h"
#include "python/src/arrays.h"
#include "python/src/bind.h"
#include "worker/session/graph_session.h"

namespace nb = nanobind;

namespace braid::python {
namespace {

using worker::GraphRun;
using worker::GraphSession;
using worker::GraphSessionOptions;
using Peers = worker::SessionPeers;

constexpr std::int64_t kMostStreams = 64;  // as of streams.count
constexpr std::int64_t kMostThreads = 1024;

constexpr double kSourceTime = 5;  // seconds that a source may take to return where nobody can interrupt

/// Ends without the lock: threads of stages may want it for a source.
class Session {
 public:
  explicit Session(GraphSessionOptions options)
      : peers(options.peers), session_(std::make_unique<GraphSession>(std::move(options))) {}
  ~Session() {
    try {
      if (is_forked_child() || abandoned_ || !close(kSourceTime, [] {}))
        static_cast<void>(session_.release());
    } catch (const std::exception& error) {
      log_warning("a session ends: {}", error.what());
    }
    end_without_lock(session_);
  }
  /// Ends the stages; `poll` may throw meanwhile. False after so many seconds: a source of records does not
  /// return, and is left alone for ever, with the session. REQUIRES: the interpreter's lock.
  bool close(double seconds, const std::function<void()>& poll) {
    const nb::gil_scoped_release released;
    if (abandoned_) return false;
    const auto ended = std::make_shared<std::promise<void>>();
    std::future<void> end = ended->get_future();
    std::thread([session = session_.get(), ended] {
      try {
        session->close();
        ended->set_value();
      } catch (...) {
        ended->set_exception(std::current_exception());
      }
    }).detach();
    abandoned_ = true;  // unless it ends
    const auto last = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (end.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
      poll();
      if (std::chrono::steady_clock::now() < last) continue;
      log_warning("a source of records does not return: its thread is left alone");
      return false;
    }
    abandoned_ = false;
    end.get();
    return true;
  }
  GraphSession* operator->() { return session_.get(); }
  const std::shared_ptr<const Peers> peers;

 private:
  std::unique_ptr<GraphSession> session_;
  bool abandoned_ = false;
};

/// (inter-op threads, intra-op threads, name) of each pool of stages.
using Pools = std::vector<nb::tuple>;

std::chrono::milliseconds wait_of(double seconds) {
  constexpr double kLongest = 1e9;
  if (!(seconds > 0))
    throw InvalidArgument(fmt::format("timeout must be above 0 seconds, got {:g}", seconds));
  return std::chrono::milliseconds(static_cast<std::int64_t>(std::ceil(1000 * std::min(seconds, kLongest))));
}

void require_range(const char* what, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value < least || value > most)
    throw InvalidArgument(fmt::format("{} must be from {} to {}, got {}", what, least, most, value));
}

void make_session(Session* place, int streams, const std::string& policy, std::uint64_t seed, int threads,
                  double timeout, bool stage_multi_stream, const Pools& pools,
                  std::shared_ptr<const Peers> peers) {
  refuse_forked_child();
  require_range("streams", streams, 1, kMostStreams);
  require_range("threads", threads, 0, kMostThreads);
  GraphSessionOptions options;
  options.seed = seed;
  options.intra_op_threads = threads;
  options.timeout = wait_of(timeout);
  options.compile.streams.count = streams;
  const auto known = stream_policy_from_name(policy);
  if (!known) throw InvalidArgument("there is no stream policy '" + policy + "'");
  options.compile.streams.policy = *known;
  options.stages.streams = streams;
  options.stages.stage_multi_stream = stage_multi_stream;
  if (!pools.empty()) {
    std::vector<StagePoolOptions> declared;
    for (const nb::tuple& pool : pools) {
      if (nb::len(pool) != 3)
        throw InvalidArgument("a pool of stages is (inter-op threads, intra-op threads, name)");
      declared.push_back({.inter_op_threads_num = nb::cast<int>(pool[0]),
                          .intra_op_threads_num = nb::cast<int>(pool[1]),
                          .global_name = nb::cast<std::string>(pool[2])});
    }
    options.stages.pools = std::make_shared<StagePools>(declared);
  }
  options.peers = std::move(peers);
  new (place) Session(std::move(options));
}

/// What the interpreter has to say (Ctrl-C) while a call waits.
void poll_signals() {
  const nb::gil_scoped_acquire held;
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

/// Does what may wait for other processes, on a thread of its own: Ctrl-C ends it here. REQUIRES: without the
/// interpreter's lock.
template <class Work, class Interrupt>
auto interruptible(Work work, Interrupt interrupt) {
  auto result = std::async(std::launch::async, std::move(work));
  while (result.wait_for(std::chrono::milliseconds(100)) != std::future_status::ready) {
    try {
      poll_signals();
    } catch (...) {
      interrupt();
      result.wait();
      throw;
    }
  }
  return result.get();
}

std::vector<Tensor> run_with_peers(Session& session, const Graph& graph, GraphRun& asked) {
  std::atomic<bool> interrupted = false;
  asked.poll = [&] {
    if (interrupted) throw Cancelled("interrupted");
  };
  return interruptible([&] { return session->run(graph, asked); },
                       [&] {
                         interrupted = true;
                         session.peers->abort();
                       });
}

std::shared_ptr<Peers> make_peers(const std::string& cluster, const std::string& task, double timeout) {
  refuse_forked_child();
  const nb::gil_scoped_release released;
  std::stop_source stop;
  const std::chrono::milliseconds wait = wait_of(timeout);
  return interruptible([&] { return std::make_shared<Peers>(cluster, task, wait, stop.get_token()); },
                       [&] { stop.request_stop(); });
}

nb::list run(Session& session, const Graph& graph, std::vector<std::string> fetches,
             std::vector<std::string> targets, const std::vector<std::pair<std::string, nb::object>>& feeds) {
  refuse_forked_child();
  release_dropped();
  GraphRun asked{std::move(fetches), std::move(targets), {}, poll_signals};
  std::vector<const void*> fed;
  for (const auto& [name, value] : feeds) {
    asked.feeds.emplace_back(name, to_tensor(value, "feed '" + name + "'"));
    fed.push_back(asked.feeds.back().second.raw());
  }
  std::vector<Tensor> values;
  {
    const nb::gil_scoped_release released;
    values = session.peers ? run_with_peers(session, graph, asked) : session->run(graph, asked);
    asked.feeds.clear();
  }
  nb::list result;
  for (const Tensor& value : values) {  // what was fed and fetched is the caller's own memory: it gets a copy
    const bool is_fed = value.elements() > 0 && std::find(fed.begin(), fed.end(), value.raw()) != fed.end();
    result.append(to_array(is_fed ? value.clone() : value));
  }
  release_dropped();
  return result;
}

Batch read_record(const nb::object& read, std::uint64_t ticket) {
  const nb::gil_scoped_acquire held;
  try {
    Batch batch;
    for (nb::handle each : read(ticket)) batch.tensors.push_back(to_tensor(each, "a record"));
    batch.ticket = ticket;
    return batch;
  } catch (nb::python_error& error) {
    if (error.matches(PyExc_StopIteration) || error.matches(PyExc_EOFError))
      throw OutOfRange("the input has no more records");
    const std::string text = error.what();
    throw InvalidArgument("a source of records failed: " + text);
  }
}

/// A source is called by threads of stages; it is released with the lock held.
void add_source(Session& session, std::vector<std::string> placeholders, nb::object read) {
  auto* const function = new nb::object(std::move(read));
  const std::shared_ptr<nb::object> kept(function, [](nb::object* object) {
    const nb::gil_scoped_acquire held;
    delete object;
  });
  const nb::gil_scoped_release released;  // a run that holds the session may be in another source
  session->add_source(
      {std::move(placeholders), [kept](std::uint64_t ticket) { return read_record(*kept, ticket); }});
}

}  // namespace

void bind_session(nb::module_& module) {
  module.def("meet_peers", make_peers, nb::arg("cluster"), nb::arg("task"), nb::arg("timeout"),
             "The other workers of a cluster; waits for all of them.");
  nb::class_<Peers>(module, "Peers")
      .def_prop_ro("rank", &Peers::rank)
      .def_prop_ro("world", &Peers::world)
      .def("broadcast",
           [](const Peers& peers, nb::object value) {
             const Tensor mine = to_tensor(value, "a value");
             const Tensor theirs = [&] {
               const nb::gil_scoped_release released;
               return peers.broadcast(mine);
             }();
             return to_array(theirs);
           })
      .def("barrier", &Peers::barrier, nb::call_guard<nb::gil_scoped_release>())
      .def("abort", &Peers::abort);
  nb::class_<Session>(module, "Session")
      .def("__init__", make_session, nb::arg("streams"), nb::arg("policy"), nb::arg("seed"),
           nb::arg("threads"), nb::arg("timeout"), nb::arg("stage_multi_stream"), nb::arg("pools"),
           nb::arg("peers").none() = nb::none())
      .def("run", run, nb::arg("graph"), nb::arg("fetches"), nb::arg("targets"), nb::arg("feeds"))
      .def("add_source", add_source, nb::arg("placeholders"), nb::arg("read"))
      .def("start_stages",
           [](Session& session, const Graph& graph) {
             refuse_forked_child();
             const nb::gil_scoped_release released;
             session->start_stages(graph);
           })
      .def(
          "close",
          [](Session& session, double seconds) {
            return is_forked_child() || session.close(seconds, poll_signals);  // the stages are its parent's
          },
          nb::arg("seconds") = 1e9)
      .def("variables",
           [](Session& session) {
             const nb::gil_scoped_release released;
             return session->variables();
           })
      .def("value",
           [](Session& session, const std::string& name) -> nb::object {
             const auto value = [&] {
               const nb::gil_scoped_release released;
               return session->value(name);
             }();
             return value ? to_array(*value) : nb::none();
           })
      .def("assign", [](Session& session, const Graph& graph, const std::string& name, nb::object value) {
        const Tensor tensor = to_tensor(value, "variable '" + name + "'");
        const nb::gil_scoped_release released;
        session->assign(graph, name, tensor);
      });
}

}  // namespace braid::python
