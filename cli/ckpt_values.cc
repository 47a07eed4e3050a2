#include "cli/ckpt_values.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/formats/npy.h"
#include "base/formats/tensor_bundle.h"
#include "base/formats/zip.h"
#include "base/log.h"
#include "base/optim.h"

namespace braid::cli {
namespace {

class NpzValues : public ValueSource {
 public:
  explicit NpzValues(const std::filesystem::path& file) : file_(file), zip_(file) {
    constexpr std::string_view kEnding = ".npy";
    for (const ZipEntry& entry : zip_.entries()) {
      if (!entry.name.ends_with(kEnding)) continue;
      const std::string name = entry.name.substr(0, entry.name.size() - kEnding.size());
      entries_[name] = &entry;
      const NpyArray array = parse(name);
      values_[name] = {array.dtype, array.shape};
    }
    if (entries_.empty()) throw InvalidArgument("'" + file.string() + "' has no arrays");
  }
  const std::map<std::string, ValueInfo>& values() const override { return values_; }
  std::vector<std::byte> read(const std::string& name) const override { return parse(name).data; }
  const char* kind() const override { return "npz"; }

 private:
  NpyArray parse(const std::string& name) const {
    return parse_npy(zip_.read(*entries_.at(name)), "'" + file_.string() + "' array '" + name + "'");
  }

  std::filesystem::path file_;
  ZipReader zip_;
  std::map<std::string, const ZipEntry*> entries_;
  std::map<std::string, ValueInfo> values_;
};

/// TensorFlow's types that are not ours.
std::string foreign_type(DType dtype) {
  constexpr int kComplex64 = 8, kComplex128 = 18, kVariant = 21;  // of its DataType
  switch (static_cast<int>(dtype)) {
    case kComplex64:
      return "complex64";
    case kComplex128:
      return "complex128";
    case kVariant:
      return "variant";
    default:
      return "number " + std::to_string(static_cast<int>(dtype)) + " of TensorFlow's DataType";
  }
}

class BundleValues : public ValueSource {
 public:
  explicit BundleValues(const std::filesystem::path& prefix) : prefix_(prefix), bundle_(prefix) {
    for (const auto& [name, entry] : bundle_.entries())
      if (entry.dtype == DType::String || dtype_size(entry.dtype) > 0)
        values_[name] = {entry.dtype, entry.shape};
      else  // the state of an iterator, say
        log_warning("'{}': '{}' is skipped: type {} is not supported", prefix.string(), name,
                    foreign_type(entry.dtype));
  }
  const std::map<std::string, ValueInfo>& values() const override { return values_; }
  std::vector<std::byte> read(const std::string& name) const override { return bundle_.read(name); }
  const char* kind() const override { return "tensorflow"; }
  std::filesystem::path path() const override { return prefix_; }

 private:
  std::filesystem::path prefix_;
  TensorBundleReader bundle_;
  std::map<std::string, ValueInfo> values_;
};

/// The prefix of the TensorFlow checkpoint that a directory is about: the newest of a Saver, whose file
/// "checkpoint" names it, or the variables of a SavedModel.
std::optional<std::filesystem::path> tensorflow_prefix(const std::filesystem::path& directory) {
  if (std::filesystem::exists(directory / "variables/variables.index"))
    return directory / "variables/variables";
  if (!std::filesystem::exists(directory / "checkpoint")) return std::nullopt;
  const std::string text = read_file(directory / "checkpoint");
  constexpr std::string_view kField = "model_checkpoint_path: \"";
  const std::size_t at = text.find(kField);
  const std::size_t end = at == std::string::npos ? at : text.find('"', at + kField.size());
  if (end == std::string::npos)
    throw DataLoss("'" + (directory / "checkpoint").string() + "': it names no model_checkpoint_path");
  const std::filesystem::path named = text.substr(at + kField.size(), end - at - kField.size());
  // A directory that was moved is still about the files beside that one.
  const std::filesystem::path beside = directory / named.filename();
  return named.is_absolute() && !std::filesystem::exists(beside.string() + ".index") ? named : beside;
}

}  // namespace

bool is_tensorflow_directory(const std::filesystem::path& directory) {
  return tensorflow_prefix(directory).has_value();
}

std::unique_ptr<ValueSource> ValueSource::open(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) {
    if (const auto prefix = tensorflow_prefix(path)) return std::make_unique<BundleValues>(*prefix);
    return open_checkpoint_values(path);
  }
  if (path.extension() == ".npz") return std::make_unique<NpzValues>(path);
  if (path.extension() == ".index" || std::filesystem::exists(path.string() + ".index"))
    return std::make_unique<BundleValues>(path);
  throw InvalidArgument(
      "'" + path.string() +
      "' is neither a checkpoint's directory, nor an .npz file, nor the prefix of a TensorFlow checkpoint");
}

std::optional<std::string> slot_owner(const std::string& name,
                                      const std::map<std::string, ValueInfo>& values) {
  const std::string plain = name.substr(0, name.find('@'));
  const std::size_t slash = plain.rfind('/');
  if (slash == std::string::npos) return std::nullopt;
  const std::string owner = plain.substr(0, slash), slot = plain.substr(slash + 1);
  if (!values.contains(owner) && !values.contains(owner + "@rows")) return std::nullopt;
  for (const OptimizerKind kind : kOptimizerKinds)
    for (const SlotSpec& spec : optimizer_slots({.kind = kind, .centered = true}))
      if (spec.name == slot) return owner;
  return std::nullopt;
}

}  // namespace braid::cli
