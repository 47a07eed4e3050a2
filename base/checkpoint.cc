// The manifest and the directories of a store; shards are in checkpoint_shard.cc.
#include "base/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "base/checked_text.h"
#include "base/env.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "proto/checkpoint.pb.h"

namespace braid {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t kVersion = 1;
constexpr const char* kManifest = "MANIFEST";
constexpr std::string_view kFinalPrefix = "step-";
constexpr const char* kUnfinished = "unfinished-";
constexpr std::ptrdiff_t kMostLeftToReader = 32;  // what a slow or dead reader may keep on the disk
constexpr std::string_view kTemporaryPrefix = ".tmp-step-";

std::string step_digits(std::uint64_t step) { return fmt::format("{:012}", step); }

bool plain_file_name(const std::string& name) {
  return !name.empty() && name.find('/') == std::string::npos && name != "." && name != ".." &&
         name != kManifest;
}

/// The step in "<prefix><digits>" or, with a suffix allowed, "<prefix><digits>-<anything>".
std::optional<std::uint64_t> step_of(std::string_view name, std::string_view prefix, bool suffix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
  if (digits < 12 || (suffix ? name.substr(digits, 1) != "-" : digits != name.size())) return std::nullopt;
  const auto step = parse_int(name.substr(0, digits));
  return step ? std::optional<std::uint64_t>(*step) : std::nullopt;
}

std::string manifest_text(const CheckpointMeta& meta, const std::vector<ShardInfo>& shards) {
  proto::CheckpointManifest manifest;
  manifest.set_version(kVersion);
  manifest.set_step(meta.step);
  manifest.set_generation(meta.generation);
  manifest.set_plan_hash(meta.plan_hash);
  manifest.set_job_name(meta.job_name);
  for (const ShardInfo& shard : shards) {
    auto& out = *manifest.add_shards();
    out.set_file(shard.file);
    out.set_bytes(shard.bytes);
    out.set_index_crc(shard.crc);
  }
  manifest.mutable_cursors()->insert(meta.cursors.begin(), meta.cursors.end());
  manifest.mutable_metrics()->insert(meta.metrics.begin(), meta.metrics.end());
  manifest.mutable_attributes()->insert(meta.attributes.begin(), meta.attributes.end());
  if (meta.run.number > 0) to_proto(meta.run, manifest.mutable_run());
  return checked_text(manifest);
}

CheckpointInfo parse_manifest(const fs::path& file, const std::string& text) {
  const auto damaged = [&](std::string_view why) {
    throw DataLoss(fmt::format("[checkpoint] '{}': {}", file.string(), why));
  };
  proto::CheckpointManifest manifest;
  parse_checked_text(file, text, manifest);
  if (manifest.version() != kVersion)
    damaged(fmt::format("version {} of the format, this program knows {}", manifest.version(), kVersion));

  CheckpointInfo info;
  info.directory = file.parent_path();
  info.meta.step = manifest.step();
  info.meta.run = from_proto(manifest.run());
  info.meta.generation = manifest.generation();
  info.meta.plan_hash = manifest.plan_hash();
  info.meta.job_name = manifest.job_name();
  info.meta.cursors = {manifest.cursors().begin(), manifest.cursors().end()};
  info.meta.metrics = {manifest.metrics().begin(), manifest.metrics().end()};
  info.meta.attributes = {manifest.attributes().begin(), manifest.attributes().end()};
  for (const auto& shard : manifest.shards()) {
    if (!plain_file_name(shard.file())) damaged(fmt::format("'{}' is not the name of a shard", shard.file()));
    info.shards.push_back({shard.file(), shard.bytes(), shard.index_crc()});
  }
  return info;
}

/// Of what is under the name of a checkpoint, damaged or not; nothing when its manifest cannot be read.
std::optional<CheckpointRun> stored_run(const fs::path& directory) {
  const fs::path file = directory / kManifest;
  if (std::error_code error; !fs::exists(file, error)) return std::nullopt;
  try {
    return parse_manifest(file, read_file(file)).meta.run;
  } catch (const Error&) {
    return std::nullopt;
  }
}

void check_shard(const fs::path& directory, const ShardInfo& expected) {
  const fs::path file = directory / expected.file;
  std::error_code error;
  const std::uint64_t bytes = fs::file_size(file, error);
  if (error)
    throw DataLoss(fmt::format("[checkpoint] shard '{}' is missing: {}", file.string(), error.message()));
  if (bytes != expected.bytes)
    throw DataLoss(fmt::format("[checkpoint] shard '{}' has {} bytes, the manifest says {}", file.string(),
                               bytes, expected.bytes));
  if (const std::uint32_t crc = ShardReader(file).info().crc; crc != expected.crc)
    throw DataLoss(
        fmt::format("[checkpoint] shard '{}' has an index with CRC {:08x}, the manifest says {:08x}",
                    file.string(), crc, expected.crc));
}

/// A name under which list() does not see a checkpoint and prune() may remove it.
fs::path aside(const fs::path& root, std::uint64_t step, std::string_view what) {
  return root / fmt::format("{}{}-{}-{}", kTemporaryPrefix, step_digits(step), ::getpid(), what);
}

/// Gives `from` the name `to`. A directory that has the name already changes places with `from` in one step,
/// so that at every moment there is a whole checkpoint of that name, and is removed.
void move_into_place(const fs::path& from, const fs::path& to, std::uint64_t step) {
  std::error_code error;
  if (!fs::exists(to, error)) return rename_path(from, to);
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0)
    return remove_tree(from);
  const fs::path old = aside(to.parent_path(), step, "replaced");  // the file system cannot exchange names
  rename_path(to, old);
  rename_path(from, to);
  remove_tree(old);
}

}  // namespace

CheckpointInfo read_checkpoint(const fs::path& directory) {
  const fs::path file = directory / kManifest;
  std::error_code error;
  if (!fs::exists(file, error))
    throw DataLoss(
        fmt::format("[checkpoint] '{}' has no {}: not a complete checkpoint", directory.string(), kManifest));
  CheckpointInfo info = parse_manifest(file, read_file(file));
  for (const ShardInfo& shard : info.shards) check_shard(directory, shard);
  return info;
}

std::error_code link_checkpoint(const CheckpointInfo& info, const fs::path& to) {
  std::error_code error;
  fs::create_directory(to, error);
  for (const ShardInfo& shard : info.shards)
    if (!error) fs::create_hard_link(info.directory / shard.file, to / shard.file, error);
  if (!error) fs::create_hard_link(info.directory / kManifest, to / kManifest, error);
  return error;
}

/// Without the slashes at its end: as parent_path() of what is in it has it.
CheckpointStore::CheckpointStore(fs::path root) : root_(std::move(root)) {
  while (root_.has_relative_path() && root_.filename().empty()) root_ = root_.parent_path();
}

/// The names of checkpoints, whole or damaged.
std::vector<fs::path> CheckpointStore::finished() const {
  std::vector<fs::path> names;
  if (std::error_code error; !fs::exists(root_, error)) return names;
  for (const fs::path& name : list_directory(root_))
    if (step_of(name.string(), kFinalPrefix, false)) names.push_back(name);
  return names;
}

std::optional<CheckpointRun> CheckpointStore::current_run() const {
  std::optional<CheckpointRun> run = read_run_file(root_);
  if (const auto latest = newest(); latest && (!run || run->before(latest->meta.run))) run = latest->meta.run;
  return run;
}

void CheckpointStore::refuse_used() const {
  if (finished().empty()) return;
  std::string what = "damaged checkpoints";
  if (const auto all = list(); !all.empty()) {
    const CheckpointMeta& last = all.back().meta;
    const auto its = list(last.run);
    what = fmt::format("checkpoints of another run ({}, job '{}', {})", last.run.describe(), last.job_name,
                       its.size() == 1 ? fmt::format("step {}", last.step)
                                       : fmt::format("steps {} to {}", its.front().meta.step, last.step));
  }
  throw InvalidArgument(
      fmt::format("checkpoint.directory '{}' has {}, and this is a new run, which would mix with "
                  "them: give --resume to continue that run, another checkpoint.directory, or "
                  "--overwrite to replace it once the new run has a checkpoint",
                  root_.string(), what));
}

CheckpointRun CheckpointStore::begin_run(RunStart how) {
  if (how == RunStart::New) refuse_used();
  make_directories(root_);
  const std::optional<CheckpointRun> current = current_run();
  CheckpointRun run =
      how == RunStart::Resume && current ? *current : make_run(current ? current->number + 1 : 1);
  if (how == RunStart::Overwrite) run.overwrites = true;
  const auto named = read_run_file(root_);
  if (run.number > 0 && !(named && named->same_as(run))) write_run_file(root_, run);
  return run;
}

fs::path CheckpointStore::begin(std::uint64_t step) {
  make_directories(root_);
  for (const fs::path& name : list_directory(root_))
    if (step_of(name.string(), kTemporaryPrefix, true) == step) remove_tree(root_ / name);
  const fs::path temporary = root_ / fmt::format("{}{}-{}", kTemporaryPrefix, step_digits(step), ::getpid());
  make_directories(temporary);
  return temporary;
}

CheckpointInfo CheckpointStore::commit(const fs::path& temporary, const CheckpointMeta& meta,
                                       const std::vector<ShardInfo>& shards) {
  if (step_of(temporary.filename().string(), kTemporaryPrefix, true) != meta.step ||
      temporary.parent_path() != root_)
    throw InvalidArgument(fmt::format("[checkpoint] '{}' was not begun for step {} under '{}'",
                                      temporary.string(), meta.step, root_.string()));
  for (const ShardInfo& shard : shards) {
    if (!plain_file_name(shard.file))
      throw InvalidArgument(fmt::format("[checkpoint] '{}' is not the name of a shard", shard.file));
    check_shard(temporary, shard);
  }
  const fs::path final = root_ / (std::string(kFinalPrefix) + step_digits(meta.step));
  check_owner(meta, final);
  write_file_atomically(temporary / kManifest,
                        manifest_text(meta, shards));  // syncs the directory's names as well
  move_into_place(temporary, final, meta.step);
  sync_directory(root_);
  if (meta.run.overwrites) remove_runs_before(meta.run);
  return {meta, shards, final};
}

/// Two jobs that were given one directory notice it here at the latest, before either loses anything.
void CheckpointStore::check_owner(const CheckpointMeta& meta, const fs::path& final) const {
  const auto named = read_run_file(root_);
  if (!named && meta.run.number > 0) {
    log_warning(
        "checkpoint.directory '{}' was emptied or replaced while {} writes there: what it had is gone, and "
        "the run goes on in it",
        root_.string(), meta.run.describe());
    write_run_file(root_, meta.run);
  }
  if (named && !named->same_as(meta.run))
    throw InvalidArgument(
        fmt::format("checkpoint.directory '{}' was taken over by {}: this is {}, and writes "
                    "no more there",
                    root_.string(), named->describe(), meta.run.describe()));
  const auto there = stored_run(final);
  if (there && !there->same_as(meta.run) && !(meta.run.overwrites && there->before(meta.run)))
    throw InvalidArgument(fmt::format("'{}' is a checkpoint of {}, which this one, of {}, does not replace",
                                      final.string(), there->describe(), meta.run.describe()));
}

/// Also damaged checkpoints, as long as they tell their run; and what no one finishes any more.
void CheckpointStore::remove_runs_before(const CheckpointRun& run) {
  for (const fs::path& name : finished())
    if (const auto its = stored_run(root_ / name); its && its->before(run)) remove(root_ / name);
  for (const fs::path& name : list_directory(root_))
    if (step_of(name.string(), kTemporaryPrefix, true)) remove_tree(root_ / name);
}

std::vector<CheckpointInfo> CheckpointStore::list() const {
  std::vector<CheckpointInfo> whole;
  for (const fs::path& name : finished()) {
    try {
      CheckpointInfo info = read_checkpoint(root_ / name);
      if (info.meta.step != step_of(name.string(), kFinalPrefix, false))
        throw DataLoss(fmt::format("[checkpoint] '{}' has the manifest of step {}", (root_ / name).string(),
                                   info.meta.step));
      whole.push_back(std::move(info));
    } catch (const Error& e) {
      std::error_code unseen;
      if (!fs::exists(root_ / name, unseen)) continue;  // who writes here has removed it meanwhile
      log_warning("left out: {}", e.message());
    }
  }
  std::sort(whole.begin(), whole.end(), [](const CheckpointInfo& a, const CheckpointInfo& b) {
    return a.meta.run.same_as(b.meta.run) ? a.meta.step < b.meta.step : a.meta.run.before(b.meta.run);
  });
  return whole;
}

std::vector<CheckpointInfo> CheckpointStore::list(const CheckpointRun& run) const {
  auto whole = list();
  std::erase_if(whole, [&](const CheckpointInfo& info) { return !info.meta.run.same_as(run); });
  return whole;
}

std::optional<CheckpointInfo> CheckpointStore::newest() const {
  auto whole = list();
  return whole.empty() ? std::nullopt : std::optional(std::move(whole.back()));
}

void CheckpointStore::remove(const fs::path& directory) {
  const std::uint64_t step = step_of(directory.filename().string(), kFinalPrefix, false).value();
  try {
    leave_to_readers(directory);
  } catch (const DataLoss&) {
  }  // a damaged one is nothing to read
  const fs::path hidden = aside(root_, step, "removed");
  rename_path(directory, hidden);
  remove_tree(hidden);
}

void CheckpointStore::leave_to_readers(const fs::path& directory) const {
  for (const fs::path& name : list_directory(root_)) {
    if (!name.string().starts_with(kReaderPrefix)) continue;
    const CheckpointInfo info = read_checkpoint(directory);
    const fs::path reader = root_ / name;
    std::error_code error;
    const auto waiting = std::distance(fs::directory_iterator(reader, error), fs::directory_iterator());
    if (error || waiting >= kMostLeftToReader) continue;
    const std::string place =
        fmt::format("{}{}-{}", kPrunedPrefix, info.meta.run.number, directory.filename().string());
    const fs::path unfinished = reader / (kUnfinished + place);
    fs::remove_all(unfinished, error);  // of a writer that was killed here
    error = link_checkpoint(info, unfinished);
    if (!error) fs::rename(unfinished, reader / place, error);
    if (error) fs::remove_all(unfinished, error);  // no links here: what is pruned is gone for the reader
  }
}

void CheckpointStore::prune(std::size_t keep) {
  auto whole = list();
  if (keep == 0 || whole.empty()) return;
  const CheckpointMeta last = whole.back().meta;
  std::erase_if(whole, [&](const CheckpointInfo& info) { return !info.meta.run.same_as(last.run); });
  for (std::size_t i = 0; i + keep < whole.size(); ++i) remove(whole[i].directory);
  for (const fs::path& name : list_directory(root_)) {
    const auto step = step_of(name.string(), kTemporaryPrefix, true);
    if (step && *step < last.step) remove_tree(root_ / name);
  }
}

}  // namespace braid
