// `braid devices`: the GPUs of this host, what lies between them, and how they can be shared.
#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/device_list.h"

namespace braid::cli {
namespace {

std::string gib(std::uint64_t bytes) {
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / 1024 / 1024 / 1024);
}

std::string mps_text(const MpsDaemon& mps) {
  if (mps.runs)
    return fmt::format("runs, with its pipes in {}: processes are its clients", mps.pipes.string());
  if (mps.has_pipes)
    return fmt::format(
        "its pipes are in {}, and no daemon is seen from here: it has ended, or is outside of this container",
        mps.pipes.string());
  return fmt::format("does not run (nothing in {}): start it with nvidia-cuda-mps-control -d",
                     mps.pipes.string());
}

std::string sharing_text(const ListedDevice& device) {
  std::string text = !device.mig ? "no MIG" : *device.mig ? "MIG is on" : "MIG is off";
  if (device.exclusive) text += ", exclusive: one process, or the server of MPS";
  if (device.processes)
    text += fmt::format(", {} {}", *device.processes, *device.processes == 1 ? "process" : "processes");
  return text;
}

void print_text(const DeviceList& list, const MpsDaemon& mps) {
  if (!list.why_none.empty()) {
    fmt::print("{}\n", list.why_none);
    return;
  }
  fmt::print("driver {}\n", list.driver.empty() ? "of an unknown version" : list.driver);
  for (std::size_t i = 0; i < list.devices.size(); ++i) {
    const ListedDevice& device = list.devices[i];
    fmt::print("{}  {}  {}\n", i, device.name, device.uuid);
    fmt::print("   {} of {} free{}{}\n", gib(device.free_bytes), gib(device.memory_bytes),
               device.multiprocessors ? fmt::format(", {} multiprocessors", *device.multiprocessors) : "",
               device.compute_capability.empty() ? "" : ", compute capability " + device.compute_capability);
    fmt::print("   bus {}, {}\n", device.bus_id.empty() ? "unknown" : device.bus_id, sharing_text(device));
    for (const ListedDevice::Instance& instance : device.instances)
      fmt::print("   instance {}  {}  {}\n", instance.name, gib(instance.memory_bytes), instance.uuid);
    for (std::size_t other = 0; other < device.links.size(); ++other)
      if (!device.links[other].empty()) fmt::print("   to {}: {}\n", other, device.links[other]);
  }
  fmt::print("MPS {}\n", mps_text(mps));
  if (const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES"))
    fmt::print("CUDA_VISIBLE_DEVICES is '{}': processes number what it lists from 0\n", visible);
}

void print_json(const DeviceList& list, const MpsDaemon& mps) {
  nlohmann::ordered_json devices = nlohmann::ordered_json::array();
  for (const ListedDevice& device : list.devices) {
    nlohmann::ordered_json one{{"name", device.name},
                               {"uuid", device.uuid},
                               {"bus_id", device.bus_id},
                               {"memory_bytes", device.memory_bytes},
                               {"free_bytes", device.free_bytes},
                               {"compute_capability", device.compute_capability},
                               {"exclusive", device.exclusive},
                               {"links", device.links}};
    if (device.multiprocessors) one["multiprocessors"] = *device.multiprocessors;
    if (device.processes) one["processes"] = *device.processes;
    if (device.mig) one["mig"] = *device.mig;
    for (const ListedDevice::Instance& instance : device.instances)
      one["instances"].push_back(
          {{"name", instance.name}, {"uuid", instance.uuid}, {"memory_bytes", instance.memory_bytes}});
    devices.push_back(std::move(one));
  }
  const nlohmann::ordered_json json{
      {"driver", list.driver},
      {"why_none", list.why_none},
      {"devices", devices},
      {"mps", {{"pipes", mps.pipes.string()}, {"has_pipes", mps.has_pipes}, {"runs", mps.runs}}}};
  fmt::print("{}\n", json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

void add_devices(CLI::App& app, Action& action) {
  auto json = std::make_shared<bool>(false);
  CLI::App* sub = app.add_subcommand(
      "devices",
      "List this host's GPUs: memory, multiprocessors, links between them, MIG, and whether MPS runs.\n"
      "Exit code 1: there is none.");
  sub->add_flag("--json", *json, "Print one JSON object");
  sub->callback([json, &action] {
    action = [json] {
      const DeviceList list = list_devices();
      if (*json)
        print_json(list, find_mps_daemon());
      else
        print_text(list, find_mps_daemon());
      return list.devices.empty() ? kExitFailed : kExitSuccess;
    };
  });
}

}  // namespace braid::cli
