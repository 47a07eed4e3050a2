// One of our checkpoints as a source of values.
#include "base/checkpoint_values.h"

#include "base/error.h"
#include "cli/ckpt_values.h"

namespace braid::cli {
namespace {

class CheckpointSource : public ValueSource {
 public:
  explicit CheckpointSource(CheckpointInfo info) : values_(std::move(info)) {}
  const std::map<std::string, ValueInfo>& values() const override { return values_.values(); }
  const char* kind() const override { return "checkpoint"; }
  std::optional<CheckpointMeta> meta() const override { return values_.meta(); }
  std::vector<std::byte> read(const std::string& name) const override { return values_.read(name); }

 private:
  CheckpointValues values_;
};

}  // namespace

CheckpointInfo checkpoint_at(const std::filesystem::path& directory) {
  if (std::filesystem::exists(directory / "MANIFEST")) return read_checkpoint(directory);
  if (auto newest = CheckpointStore(directory).newest()) return std::move(*newest);
  throw InvalidArgument("'" + directory.string() + "' has no MANIFEST and holds no complete checkpoint");
}

std::unique_ptr<ValueSource> open_checkpoint_values(const std::filesystem::path& directory) {
  return std::make_unique<CheckpointSource>(checkpoint_at(directory));
}

}  // namespace braid::cli
