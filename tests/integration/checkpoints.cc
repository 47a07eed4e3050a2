#include "tests/integration/checkpoints.h"

#include <cstring>
#include <fstream>
#include <sstream>

#include "base/checkpoint.h"
#include "base/checkpoint_values.h"

namespace braid::integration {
namespace {

template <class T>
std::vector<T> read(const CheckpointValues& checkpoint, const std::string& name) {
  const std::vector<std::byte> bytes = checkpoint.read(name);
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

CheckpointInfo newest(const Path& root) {
  const auto info = CheckpointStore(root).newest();
  if (!info) throw std::runtime_error("no checkpoint in " + root.string());
  return *info;
}

/// "table/slot@rows" -> the rows, each under "table/slot[key]".
void add_rows(const CheckpointValues& checkpoint, const std::string& entry, Values& values) {
  const std::string name = entry.substr(0, entry.find('@'));
  const std::string table =
      checkpoint.values().contains(name + "@keys") ? name : name.substr(0, name.rfind('/'));
  const auto keys = read<std::int64_t>(checkpoint, table + "@keys");
  const auto rows = read<float>(checkpoint, entry);
  for (std::size_t k = 0; k < keys.size(); ++k) {
    const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(k * (rows.size() / keys.size()));
    values[name + "[" + std::to_string(keys[k]) + "]"] = {
        begin, begin + static_cast<std::ptrdiff_t>(rows.size() / keys.size())};
  }
}

}  // namespace

std::vector<std::string> checkpoints_in(const Path& root, int every_steps) {
  return {"checkpoint.directory=" + root.string(), "checkpoint.every_steps=" + std::to_string(every_steps),
          "checkpoint.keep=2"};
}

std::vector<std::uint64_t> checkpointed_steps(const Path& root) {
  std::vector<std::uint64_t> steps;
  for (const CheckpointInfo& info : CheckpointStore(root).list()) steps.push_back(info.meta.step);
  return steps;
}

Files files_in(const Path& directory) {
  Files files;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    std::ifstream in(entry.path(), std::ios::binary);
    std::stringstream bytes;
    bytes << in.rdbuf();
    files[entry.path().filename()] = bytes.str();
  }
  return files;
}

Files files_of_newest(const Path& root) {
  Files files = files_in(newest(root).directory);
  // Of the manifest all but which run it was, and the CRC, which that is in.
  std::string& manifest = files["MANIFEST"];
  if (const std::size_t run = manifest.find("\nrun {\n"); run != std::string::npos)
    manifest.erase(run + 1, manifest.find("\n}\n", run) + 2 - run);
  manifest.erase(manifest.rfind("# crc32c"));
  return files;
}

Values values_of_newest(const Path& root) {
  const CheckpointValues checkpoint(newest(root));
  Values values;
  for (const auto& [name, value] : checkpoint.values()) {
    if (value.dtype != DType::Float32) continue;
    if (name.ends_with("@rows"))
      add_rows(checkpoint, name, values);
    else
      values[name] = read<float>(checkpoint, name);
  }
  return values;
}

}  // namespace braid::integration
