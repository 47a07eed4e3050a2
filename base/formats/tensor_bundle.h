// TensorFlow's V2 checkpoints, "tensor bundles": <prefix>.index, a LevelDB table of names and where their
// tensors are, and <prefix>.data-<shard>-of-<shards> with the elements. Read with every CRC checked, slices
// of partitioned variables put together; written as one shard. Format: tensorflow/core/util/tensor_bundle,
// protobuf/tensor_bundle.proto. Strings are laid out as in braid::Tensor: int64 offsets[n + 1], then the
// bytes. Thread rule: one object, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace braid {

struct BundleEntry {
  /// A box of a tensor: for each dimension where it begins and how long it is, -1 for all of it.
  struct Slice {
    std::vector<std::int64_t> begin, length;
  };
  DType dtype = DType::Invalid;
  std::vector<std::int64_t> shape = {};
  int shard = 0;
  std::uint64_t offset = 0, bytes = 0;
  std::uint32_t masked_crc = 0;
  std::vector<Slice> slices = {};  // of a partitioned variable; its elements are in entries of their own
};

class TensorBundleReader {
 public:
  /// `prefix` is what TensorFlow calls the checkpoint; the name of its .index file does as well. Throws:
  /// InvalidArgument (no such checkpoint; big-endian), DataLoss (damage: file, what).
  explicit TensorBundleReader(const std::filesystem::path& prefix);
  ~TensorBundleReader();

  /// Tensors by name, without the entries of slices.
  const std::map<std::string, BundleEntry>& entries() const { return entries_; }
  /// The elements, row-major. Throws: InvalidArgument (no such tensor; a shard is missing), DataLoss (a CRC:
  /// name, file).
  std::vector<std::byte> read(const std::string& name) const;

 private:
  struct Files;
  void add_entry(const std::string& name, const std::string& value);
  std::vector<std::byte> read_entry(const std::string& name, const BundleEntry& entry) const;
  std::vector<std::byte> join_slices(const std::string& name, const BundleEntry& entry) const;

  std::filesystem::path prefix_;
  int shards_ = 0;
  std::map<std::string, BundleEntry> entries_;
  std::map<std::string, BundleEntry> slice_entries_;  // by encoded name
  std::unique_ptr<Files> files_;
};

class TensorBundleWriter {
 public:
  /// Writes beside `prefix` under temporary names. Throws: Unavailable.
  explicit TensorBundleWriter(std::filesystem::path prefix);
  ~TensorBundleWriter();  // what was not finished is removed
  /// Throws: InvalidArgument (a name that is there already, bytes that do not fit the shape), Unavailable
  /// (disk).
  void add(const std::string& name, DType dtype, std::span<const std::int64_t> shape,
           std::span<const std::byte> data);
  /// Writes the index; both files get their names, the index last.
  void finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The name under which a slice's elements are kept. REQUIRES: slice.begin.size() == slice.length.size().
std::string bundle_slice_key(const std::string& name, const BundleEntry::Slice& slice);

}  // namespace braid
