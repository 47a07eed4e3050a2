// TensorFlow's V2 checkpoints in graphs (base/formats/tensor_bundle.h):
//   SaveV2(prefix, names [n], slices [n], tensors...): writes the tensors under their names
//   RestoreV2(prefix, names [n], slices [n]), attribute dtypes: the tensors; prefix and names must be
//     known before the program runs, because the file says what shapes they have
//   MergeV2Checkpoints(prefixes [n], destination), attribute delete_old_dirs: one checkpoint of several
// A slice says which part of a partitioned variable a tensor is, "4 3 0,2:-" for the first two rows of [4,
// 3]; empty: all of it. Parts are restored, but not saved.
#include <fmt/format.h>

#include <charconv>
#include <cstring>

#include "base/files.h"
#include "base/formats/tensor_bundle.h"
#include "engine/ops/common/box_copy.h"
#include "engine/ops/common/kernel_util.h"
#include "engine/ops/common/shape_rules.h"
#include "engine/ops/common/strings.h"

namespace braid {
namespace {

/// A box of a tensor of shape `whole`.
struct Part {
  Shape whole;
  std::vector<std::int64_t> begin;
  Shape shape;
};

/// "4 3 0,2:-": the sizes, then for each axis its begin and length, or '-' for all of it. Throws:
/// InvalidArgument.
Part parse_part(std::string_view text) {
  const auto refuse = [&] { throw InvalidArgument(fmt::format("'{}' does not say a slice", text)); };
  const auto number = [&](std::string_view digits) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (error != std::errc() || end != digits.data() + digits.size() || value < 0) refuse();
    return value;
  };
  const std::size_t last = text.rfind(' ');
  if (last == std::string_view::npos) refuse();
  std::vector<std::int64_t> whole, begin, length;
  for (std::string_view sizes = text.substr(0, last); !sizes.empty();) {
    const std::size_t space = std::min(sizes.find(' '), sizes.size());
    whole.push_back(number(sizes.substr(0, space)));
    sizes.remove_prefix(std::min(space + 1, sizes.size()));
  }
  for (std::string_view axes = text.substr(last + 1); !axes.empty() && begin.size() < whole.size();) {
    const std::size_t colon = std::min(axes.find(':'), axes.size());
    const std::string_view axis = axes.substr(0, colon);
    const std::size_t comma = axis.find(',');
    if (axis != "-" && comma == std::string_view::npos) refuse();
    begin.push_back(axis == "-" ? 0 : number(axis.substr(0, comma)));
    length.push_back(axis == "-" ? whole[begin.size() - 1] : number(axis.substr(comma + 1)));
    if (begin.back() + length.back() > whole[begin.size() - 1]) refuse();
    axes.remove_prefix(std::min(colon + 1, axes.size()));
  }
  if (begin.size() != whole.size()) refuse();
  return {Shape(std::move(whole)), std::move(begin), Shape(std::move(length))};
}

void require_names(InferContext& c) {
  for (int i = 0; i < 3; ++i) {
    require_dtype(c, i, {DType::String});
    c.require_rank(i, i == 0 ? 0 : 1);
  }
  merged_shape(c, 1, 2);
}

// ------------------------------------------------------------------------------------------------- restore

void infer_restore(InferContext& c) {
  require_names(c);
  const auto dtypes = c.node().attrs.require<std::vector<DType>>("dtypes");
  const std::string prefix = c.value(0) ? std::string(c.value(0)->string_at(0)) : "";
  // A graph names where its checkpoint would be, which need not be there yet.
  const bool is_there = !prefix.empty() && std::filesystem::exists(prefix + ".index");
  if (!is_there || !c.value(1) || !c.value(2)) {
    for (const DType dtype : dtypes) c.output(dtype, Shape::unknown_rank());
    return;
  }
  const TensorBundleReader reader(prefix);
  if (static_cast<std::size_t>(c.value(1)->elements()) != dtypes.size())
    c.fail(fmt::format("{} names, {} types", c.value(1)->elements(), dtypes.size()));
  for (std::size_t i = 0; i < dtypes.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const std::string name(c.value(1)->string_at(at));
    const auto entry = reader.entries().find(name);
    if (entry == reader.entries().end())
      c.fail(fmt::format("checkpoint '{}' has no tensor '{}'", prefix, name));
    if (entry->second.dtype != dtypes[i])
      c.fail(fmt::format("'{}' in checkpoint '{}' is {}, not {}", name, prefix,
                         dtype_name(entry->second.dtype), dtype_name(dtypes[i])));
    const std::string_view slice = c.value(2)->string_at(at);
    const Shape stored(entry->second.shape);
    if (slice.empty()) {
      c.output(dtypes[i], stored);
      continue;
    }
    Part part = parse_part(slice);
    if (part.whole != stored)
      c.fail(fmt::format("'{}' has shape {}, not {}", name, stored.to_string(), part.whole.to_string()));
    c.output(dtypes[i], std::move(part.shape));
  }
}

void copy_part(const Part& part, std::size_t element_bytes, const std::byte* whole, void* out,
               ThreadPool& pool) {
  const auto from = row_major_strides(part.whole), to = row_major_strides(part.shape);
  std::vector<BoxAxis> axes;
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < from.size(); ++i) {
    axes.push_back({part.shape[static_cast<int>(i)], from[i], to[i]});
    offset += part.begin[i] * from[i];
  }
  BoxCopy(axes, offset, 0, element_bytes).run(pool, whole, out);
}

PreparedKernel prepare_restore(const PrepareContext& c) {
  for (int i = 0; i < 3; ++i)
    if (!c.values[static_cast<std::size_t>(i)])
      c.fail("prefix, names and slices must be known before the program runs");
  struct Item {
    std::string name, slice;
    std::size_t element_bytes;
  };
  std::vector<Item> items;
  for (std::size_t i = 0; i < c.outputs.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    items.push_back({std::string(c.values[1]->string_at(at)), std::string(c.values[2]->string_at(at)),
                     dtype_size(c.outputs[i].dtype)});
  }
  return serial_kernel(
      [items, prefix = std::string(c.values[0]->string_at(0)), pool = &c.pool](const KernelArgs& a) {
        const TensorBundleReader reader(prefix);
        for (std::size_t i = 0; i < items.size(); ++i) {
          const std::vector<std::byte> data = reader.read(items[i].name);
          if (!items[i].slice.empty())
            copy_part(parse_part(items[i].slice), items[i].element_bytes, data.data(), a.outputs[i], *pool);
          else if (!data.empty())
            std::memcpy(a.outputs[i], data.data(), data.size());
        }
      });
}

// ---------------------------------------------------------------------------------------------------- save

void infer_save(InferContext& c) {
  require_names(c);
  const std::int64_t names = c.shape(1).has_rank() ? c.shape(1)[0] : Shape::kUnknown;
  if (names != Shape::kUnknown && names != c.inputs() - 3)
    c.fail(fmt::format("{} names, {} tensors", names, c.inputs() - 3));
  if (c.value(2))
    for (std::int64_t i = 0; i < c.value(2)->elements(); ++i)
      if (!c.value(2)->string_at(i).empty()) c.fail("parts of partitioned variables are not saved");
}

PreparedKernel prepare_save(const PrepareContext& c) {
  const std::vector<OutputInfo> inputs(c.inputs.begin(), c.inputs.end());
  return serial_kernel([inputs](const KernelArgs& a) {
    const std::filesystem::path prefix(StringsView(a.inputs[0], 1)[0]);
    if (prefix.has_parent_path()) make_directories(prefix.parent_path());
    TensorBundleWriter writer(prefix);
    const StringsView names(a.inputs[1], static_cast<std::int64_t>(inputs.size()) - 3);
    for (std::size_t i = 3; i < inputs.size(); ++i) {
      const std::int64_t elements = inputs[i].shape.elements();
      const std::size_t bytes = inputs[i].dtype == DType::String
                                    ? StringsView(a.inputs[i], elements).total_bytes()
                                    : static_cast<std::size_t>(elements) * dtype_size(inputs[i].dtype);
      writer.add(std::string(names[static_cast<std::int64_t>(i) - 3]), inputs[i].dtype,
                 inputs[i].shape.dims(), {static_cast<const std::byte*>(a.inputs[i]), bytes});
    }
    writer.finish();
  });
}

void infer_merge(InferContext& c) {
  for (const int i : {0, 1}) {
    require_dtype(c, i, {DType::String});
    c.require_rank(i, 1 - i);
  }
}

PreparedKernel prepare_merge(const PrepareContext& c) {
  const std::int64_t count = c.inputs[0].shape[0];
  return serial_kernel([count, deletes = c.attr("delete_old_dirs", true)](const KernelArgs& a) {
    const StringsView prefixes(a.inputs[0], count);
    const std::filesystem::path destination(StringsView(a.inputs[1], 1)[0]);
    if (destination.has_parent_path()) make_directories(destination.parent_path());
    TensorBundleWriter writer(destination);
    for (std::int64_t i = 0; i < count; ++i) {
      const TensorBundleReader reader{std::filesystem::path(prefixes[i])};
      for (const auto& [name, entry] : reader.entries())
        writer.add(name, entry.dtype, entry.shape, reader.read(name));
    }
    writer.finish();
    for (std::int64_t i = 0; i < count && deletes; ++i) {
      const std::filesystem::path prefix(prefixes[i]);
      const std::string stem = prefix.filename().string() + ".";
      for (const auto& file : list_directory(prefix.parent_path().empty() ? "." : prefix.parent_path()))
        if (file.filename().string().starts_with(stem)) remove_tree(prefix.parent_path() / file.filename());
    }
  });
}

OpDef file_op(std::string name, int min_inputs, int max_inputs, void (*infer)(InferContext&), PrepareFn cpu) {
  return {.name = std::move(name),
          .traits = updates(),
          .min_inputs = min_inputs,
          .max_inputs = max_inputs,
          .infer = infer,
          .no_gradient_reason = "it reads or writes a file",
          .cpu = std::move(cpu),
          .stateful = true};
}

}  // namespace

void register_save_restore(OpRegistry& registry) {
  OpDef restore = file_op("RestoreV2", 3, 3, infer_restore, prepare_restore);
  restore.traits = computes().output_list();
  restore.shape_values = {0, 1, 2};
  registry.add(std::move(restore));
  OpDef save = file_op("SaveV2", 3, -1, infer_save, prepare_save);
  save.side_effect = true;
  registry.add(std::move(save));
  OpDef merge = file_op("MergeV2Checkpoints", 2, 2, infer_merge, prepare_merge);
  merge.side_effect = true;
  registry.add(std::move(merge));
}

}  // namespace braid
