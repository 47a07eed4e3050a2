// `braid ckpt export`: variables as .npz for NumPy, or as a TensorFlow V2 checkpoint.
#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include "base/error.h"
#include "base/formats/npy.h"
#include "base/formats/tensor_bundle.h"
#include "base/formats/zip.h"
#include "cli/ckpt_tools.h"

namespace braid::cli {
namespace {

struct CkptExportOptions {
  std::string source, out, format;
  bool slots = false;
};

std::vector<std::string> chosen(const ValueSource& source, bool slots) {
  std::vector<std::string> names;
  for (const auto& [name, info] : source.values()) {
    if (!slots && (slot_owner(name, source.values()) || name.ends_with("@last_use"))) continue;
    names.push_back(name);
  }
  if (names.empty()) throw InvalidArgument("there are no variables to export");
  return names;
}

template <class Writer>
Writer create(const std::string& out) {
  try {
    return Writer(std::filesystem::path(out));
  } catch (const Unavailable& e) {
    throw InvalidArgument("--out '" + out + "': " + e.message());
  }
}

void write_npz(const ValueSource& source, const std::vector<std::string>& names, const std::string& out) {
  auto zip = create<ZipWriter>(out);
  for (const std::string& name : names) {
    const ValueInfo& info = source.values().at(name);
    const std::vector<std::byte> data = source.read(name);
    if (info.dtype == DType::String) {
      const std::string text = format_npy(info.dtype, info.shape, data);
      const std::span<const std::byte> parts[]{std::as_bytes(std::span(text))};
      zip.add(name + ".npy", parts);
    } else {
      const std::string header = npy_header(info.dtype, info.shape);
      const std::span<const std::byte> parts[]{std::as_bytes(std::span(header)), data};
      zip.add(name + ".npy", parts);
    }
  }
  zip.finish();
}

void write_bundle(const ValueSource& source, const std::vector<std::string>& names, const std::string& out) {
  auto bundle = create<TensorBundleWriter>(out);
  for (const std::string& name : names) {
    const ValueInfo& info = source.values().at(name);
    bundle.add(name, info.dtype, info.shape, source.read(name));
  }
  bundle.finish();
}

int run_export(const CkptExportOptions& options) {
  const auto source = ValueSource::open(options.source);
  const std::vector<std::string> names = chosen(*source, options.slots);
  const bool npz = options.format == "npz" || (options.format.empty() && options.out.ends_with(".npz"));
  if (!npz && options.format.empty())
    throw InvalidArgument("--out '" + options.out +
                          "' does not end in .npz; --format tensorflow takes it as a prefix");
  if (npz)
    write_npz(*source, names, options.out);
  else
    write_bundle(*source, names, options.out);
  fmt::print("{}: {} arrays\n", options.out, names.size());
  return kExitSuccess;
}

}  // namespace

void add_ckpt_export(CLI::App& ckpt, Action& action) {
  auto options = std::make_shared<CkptExportOptions>();
  CLI::App* sub =
      ckpt.add_subcommand("export", "Write the variables of a checkpoint as .npz, or for TensorFlow");
  sub->add_option("SRC", options->source,
                  "A step-... directory, a directory of them (the newest counts), an .npz file, or a "
                  "TensorFlow V2 checkpoint")
      ->required();
  sub->add_option("--out", options->out,
                  "FILE.npz, or with --format tensorflow the prefix of .index and .data-...")
      ->required();
  sub->add_option("--format", options->format, "npz or tensorflow; default: npz for .npz")
      ->check(CLI::IsMember({"npz", "tensorflow"}));
  sub->add_flag("--slots", options->slots, "The optimizer's slots too");
  sub->callback([options, &action] { action = [options] { return run_export(*options); }; });
}

}  // namespace braid::cli
