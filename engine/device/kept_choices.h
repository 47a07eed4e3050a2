// Choices that were measured on a device, kept so that later starts make the same ones: which of several ways
// to do one thing is the fastest. The bits of a result may depend on the way, so the first choice for a key
// stays, on disk and in the process, whoever measures again.
//
// A file is named by a hash of its key, and is the key, a line with the choice, and nothing else. It comes
// about whole and once: who writes second takes what is there. The folder is $XDG_CACHE_HOME/braid/choices,
// or ~/.cache/braid/choices; without a home, or where it cannot be written, choices are kept in the process
// only. Thread rule: any thread; one measures a key, the others wait for it.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace braid {

class KeptChoices {
 public:
  /// `folder` empty: nothing is on disk.
  explicit KeptChoices(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// The choice among `ways` for `key`, whose text says everything that decides which one is fastest and what
  /// the ways are. A choice on disk that is none of the ways is measured anew. Throws what `measure` throws;
  /// nothing is kept then.
  int get(const std::string& key, int ways, const std::function<int()>& measure);

  /// The process's, in the default folder.
  static KeptChoices& process();
  static std::filesystem::path default_folder();

 private:
  const std::filesystem::path folder_;
  std::mutex mu_;
  std::map<std::string, int> known_;  // guarded by mu_
};

}  // namespace braid
