#include "worker/input/input_files.h"

#include <system_error>

#include "base/error.h"
#include "base/files.h"
#include "engine/input/files/remote_files.h"
#include "proto/job.pb.h"

namespace braid::worker {
namespace {

using Path = std::filesystem::path;

/// What lies in a directory of data, without marks such as _SUCCESS and what belongs to files.
std::vector<Path> files_in(const Path& directory) {
  std::vector<Path> files;
  for (const Path& each : list_directory(directory)) {
    const std::string name = each.string();
    if (name.starts_with('.') || name.starts_with('_') || name.ends_with(".braid_index")) continue;
    if (std::filesystem::is_regular_file(directory / each)) files.push_back(directory / each);
  }
  return files;
}

/// Names relative to `root`, or of stores, or "-". A name may be a directory, and one that is no file a
/// pattern for several. `field` names who asks, and `relative` what names are relative to.
std::vector<Path> paths(const std::string& field, const std::vector<std::string>& files, const Path& root,
                        const std::string& relative) {
  std::vector<Path> result;
  for (const auto& file : files) {
    if (file == "-") {
      result.emplace_back(file);
      continue;
    }
    if (!scheme_of(file).empty()) {
      const std::vector<std::string> found = list_remote(file);
      if (found.empty()) throw InvalidArgument(field + ": no file matches '" + file + "'");
      result.insert(result.end(), found.begin(), found.end());
      continue;
    }
    const Path path = root / file;
    std::error_code unreadable;  // is for the reader to tell
    if (std::filesystem::is_directory(path, unreadable)) {
      const std::vector<Path> found = files_in(path);
      if (found.empty()) throw InvalidArgument(field + ": directory '" + path.string() + "' has no files");
      result.insert(result.end(), found.begin(), found.end());
      continue;
    }
    if (std::filesystem::exists(path, unreadable) || unreadable) {
      result.push_back(path);
      continue;
    }
    const bool pattern = file.find_first_of("*?[") != std::string::npos;
    std::vector<Path> found = pattern ? glob(path.string()) : std::vector<Path>{};
    std::erase_if(found, [](const Path& each) { return each.extension() == ".braid_index"; });
    if (found.empty())
      throw InvalidArgument(field + ": " +
                            (pattern ? "no file matches '" + path.string() + "'"
                                     : "'" + path.string() + "': No such file or directory") +
                            relative);
    result.insert(result.end(), found.begin(), found.end());
  }
  return result;
}

std::vector<Path> paths_of_job(const std::string& field,
                               const google::protobuf::RepeatedPtrField<std::string>& files,
                               const Path& root) {
  return paths("input." + field, {files.begin(), files.end()}, root,
               "; names are relative to --data-dir, which is '" + root.string() + "'");
}

}  // namespace

bool reads_files(const proto::Job& job) {
  return job.input().format() != proto::Input::SYNTHETIC && job.input().format() != proto::Input::GENERATOR;
}

std::vector<Path> train_files(const proto::Job& job, const Path& data_dir) {
  return paths_of_job("train_files", job.input().train_files(), data_dir);
}

std::vector<Path> test_files(const proto::Job& job, const Path& data_dir) {
  if (job.input().test_files().empty())
    throw InvalidArgument("job '" + job.name() + "': input.test_files is missing; set it, or give --in FILE");
  return paths_of_job("test_files", job.input().test_files(), data_dir);
}

std::vector<Path> files_of_option(const std::string& option, const std::vector<Path>& names) {
  std::vector<std::string> texts;
  for (const Path& name : names) texts.push_back(name.string());
  return paths(option, texts, {}, {});
}

}  // namespace braid::worker
