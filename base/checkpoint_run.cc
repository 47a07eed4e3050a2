#include "base/checkpoint_run.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <tuple>

#include "base/checked_text.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/random_id.h"
#include "proto/checkpoint.pb.h"

namespace braid {
namespace {

constexpr const char* kRunFile = "RUN";

}  // namespace

bool CheckpointRun::before(const CheckpointRun& other) const {
  return std::tie(number, begun, id) < std::tie(other.number, other.begun, other.id);
}

std::string CheckpointRun::describe() const {
  if (number == 0) return "a run from before runs had numbers";
  const auto seconds = static_cast<std::time_t>(begun);
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  return fmt::format("run {}, begun {:%Y-%m-%d %H:%M:%S} UTC", number, utc);
}

CheckpointRun make_run(std::uint64_t number) {
  return {number, fmt::format("{:016x}", random_id()), static_cast<std::int64_t>(std::time(nullptr)), false};
}

std::optional<CheckpointRun> read_run_file(const std::filesystem::path& root) {
  const std::filesystem::path file = root / kRunFile;
  if (std::error_code error; !std::filesystem::exists(file, error)) return std::nullopt;
  try {
    proto::CheckpointRun stored;
    parse_checked_text(file, read_file(file), stored);
    return from_proto(stored);
  } catch (const DataLoss& error) {
    log_warning("left out: {}", error.message());
    return std::nullopt;
  }
}

void write_run_file(const std::filesystem::path& root, const CheckpointRun& run) {
  proto::CheckpointRun stored;
  to_proto(run, &stored);
  write_file_atomically(root / kRunFile, checked_text(stored));
}

void to_proto(const CheckpointRun& run, proto::CheckpointRun* out) {
  out->set_number(run.number);
  out->set_id(run.id);
  out->set_begun(run.begun);
  out->set_overwrites(run.overwrites);
}

CheckpointRun from_proto(const proto::CheckpointRun& in) {
  return {in.number(), in.id(), in.begun(), in.overwrites()};
}

}  // namespace braid
