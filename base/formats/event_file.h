// Event files of TensorBoard: what `tensorboard --logdir` draws. A file of TFRecord frames, each an Event;
// the first says "brain.Event:2". One writer a directory. Field numbers are those of TensorFlow's
// event.proto, summary.proto and graph.proto, and of the hparams plugin. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files.h"

namespace braid {

/// A node of a graph as TensorBoard draws it. `device` colours it.
struct EventGraphNode {
  std::string name, op, device;
  std::vector<std::string> inputs;  // "node", "node:1", "^node" for control
};

class EventFile {
 public:
  /// Makes the directory, and in it "events.out.tfevents.<Unix seconds>.<host>.<pid>". Throws: as File.
  explicit EventFile(const std::filesystem::path& directory);

  void scalar(std::string_view tag, std::uint64_t step, double value);
  /// Counts in buckets whose bounds grow by a tenth, as TensorFlow's. Values that are not finite are left
  /// out.
  void histogram(std::string_view tag, std::uint64_t step, std::span<const float> values);
  void text(std::string_view tag, std::string_view markdown);
  void graph(const std::vector<EventGraphNode>& nodes);
  /// Hyper-parameters of the run, as its session starts: numbers and texts by name.
  void hyper_parameters(const std::map<std::string, double>& numbers,
                        const std::map<std::string, std::string>& texts);

  const std::filesystem::path& path() const { return file_.path(); }

 private:
  void add(std::uint64_t step, int field, std::string_view content);
  void summary(std::uint64_t step, std::string_view value);
  void record(std::string_view data);

  File file_;
};

}  // namespace braid
