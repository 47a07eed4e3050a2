// What a launch starts: where its tasks are, who they are told to be, their pages and their token. Thread
// rule: pure functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launch/host_file.h"
#include "launch/port_reservation.h"

namespace braid::launch {

struct LocalLaunchOptions;

/// Throws: InvalidArgument for counts that make no cluster.
void check_launch(const LocalLaunchOptions& options);

/// Ports of this host for tasks and their pages; none where tasks are on other hosts.
PortReservation reserve_ports(const LocalLaunchOptions& options);

struct LaunchPlan {
  Placement placement;                // hosts: of tasks on other hosts alone
  std::map<Task, std::string> pages;  // HTTP addresses; empty: none is watched
  std::string page_list;              // BRAID_HTTP_PEERS
  std::string token;                  // for the tasks; empty: they have one from whoever started us
};
/// Throws: as place_tasks(), and where the token's file cannot be read.
LaunchPlan plan_launch(const LocalLaunchOptions& options, const std::vector<std::string>& addresses);

}  // namespace braid::launch
