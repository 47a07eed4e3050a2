// Findings of `braid doctor` about this machine. Nothing is changed and nothing waits: programs are looked
// for on PATH and not run, libraries are opened and closed. Thread rule: one thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace braid::cli {

struct Finding {
  enum class State {
    Good,
    Poor,     // works, but something will be slow or will end early
    Missing,  // not there; a reason for exit code 1 where it is needed
  };
  std::string name;
  State state = State::Good;
  std::string found;
  std::string advice = {};                   // what to type or change; empty where there is nothing
  std::vector<std::string> needed_for = {};  // "train", "cuda", "nccl", "mpi"
};

struct Examination {
  std::filesystem::path directory = ".";  // for checkpoints
  std::filesystem::path root = "/";       // of /proc, /sys and /dev, for tests
};

std::vector<Finding> examine_machine(const Examination& examination);

}  // namespace braid::cli
