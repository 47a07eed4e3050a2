// Named arrays of whatever holds a model's state: one of our checkpoints (or the newest below a directory),
// whichever number of servers wrote it; an .npz; a TensorFlow V2 checkpoint, a Saver's directory of them or a
// SavedModel. What `braid ckpt` compares, exports and imports. Thread rule: one object, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/checkpoint_values.h"
#include "base/dtype.h"

namespace braid::cli {

using ValueInfo = CheckpointValue;

class ValueSource {
 public:
  virtual ~ValueSource() = default;
  /// Throws: InvalidArgument (nothing of the kind there), DataLoss (damage: file, place).
  static std::unique_ptr<ValueSource> open(const std::filesystem::path& path);

  virtual const std::map<std::string, ValueInfo>& values() const = 0;
  /// The elements, row-major; strings as in braid::Tensor. Throws: DataLoss (damage), InvalidArgument.
  virtual std::vector<std::byte> read(const std::string& name) const = 0;
  /// "checkpoint", "npz" or "tensorflow".
  virtual const char* kind() const = 0;
  /// Of a TensorFlow checkpoint: its prefix, whichever way it was found.
  virtual std::filesystem::path path() const { return {}; }
  /// What the manifest of one of our checkpoints says.
  virtual std::optional<CheckpointMeta> meta() const { return std::nullopt; }
};

/// Whether a directory is a Saver's or a SavedModel, which open() follows to its checkpoint.
bool is_tensorflow_directory(const std::filesystem::path& directory);

/// The checkpoint that `directory` is, or the newest whole one below it. Throws: InvalidArgument (neither),
/// DataLoss.
CheckpointInfo checkpoint_at(const std::filesystem::path& directory);
std::unique_ptr<ValueSource> open_checkpoint_values(const std::filesystem::path& directory);

/// The variable that `name` is a slot of ("w" for "w/m"), if it is one.
std::optional<std::string> slot_owner(const std::string& name,
                                      const std::map<std::string, ValueInfo>& values);

}  // namespace braid::cli
