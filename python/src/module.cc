// The extension module braid._braid: one binding for the package in python/braid. Thin: graphs, sessions,
// runs and the command line are the C++ libraries' own. Every call that can block releases the interpreter's
// lock.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/command_line.h"
#include "engine/input/files/remote_files.h"
#include "python/src/arrays.h"
#include "python/src/bind.h"
#include "worker/strategies/strategy.h"

namespace nb = nanobind;

namespace braid::python {
namespace {

pid_t importer = 0;

int command_line(const std::vector<std::string>& arguments, std::vector<std::string> own) {
  std::vector<const char*> argv{"braid"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  const nb::gil_scoped_release released;
  return cli::run_command_line(static_cast<int>(argv.size()), argv.data(), std::move(own));
}

}  // namespace

bool is_forked_child() { return ::getpid() != importer; }

void refuse_forked_child() {
  if (is_forked_child())
    throw Internal("this process was forked after braid was imported: start it with the method 'spawn'");
}

}  // namespace braid::python

NB_MODULE(_braid, module) {
  using namespace braid::python;
  importer = ::getpid();
  // A session that is a program's global outlives the module, which is no leak.
  nb::set_leak_warnings(false);
  braid::worker::register_strategy_ops();
  module.attr("version") = BRAID_VERSION;
  bind_errors(module);
  bind_bundles(module);
  bind_graph(module);
  bind_rows(module);
  bind_session(module);
  bind_training(module);
  module.def(
      "command_line", command_line, nb::arg("arguments"), nb::arg("own"),
      "Runs the `braid` command line and returns its exit code. `own`: the command that starts it again.");
  module.def("close_stores", braid::close_stores, "At the end of the process: ends what stores keep for it.");
  module.def("bytes_in", bytes_in, "Bytes of arrays taken so far: (without a copy, copied).");
}
