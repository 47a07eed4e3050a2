// A certificate authority and certificates made by the openssl command in a temporary directory.
#pragma once

#include <fmt/core.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "comm/transport/transport.h"

namespace braid::comm {

class TlsFiles {
 public:
  TlsFiles()
      : directory_(std::filesystem::temp_directory_path() /
                   fmt::format("braid-tls-{}-{}", getpid(), count_++)) {
    std::filesystem::create_directories(directory_);
    run("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=test-ca "
        "-keyout ca.key -out ca.pem");
    run("openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=task -keyout task.key -out "
        "task.csr");
    run("openssl x509 -req -in task.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out task.pem");
  }
  ~TlsFiles() { std::filesystem::remove_all(directory_); }
  TlsFiles(const TlsFiles&) = delete;
  TlsFiles& operator=(const TlsFiles&) = delete;

  TlsOptions options() const { return {path("task.pem"), path("task.key"), path("ca.pem")}; }
  std::string path(const std::string& file) const { return (directory_ / file).string(); }

 private:
  void run(const std::string& command) {
    auto line = fmt::format("cd '{}' && {} > openssl.log 2>&1", directory_.string(), command);
    if (std::system(line.c_str()) != 0) throw Internal("failed: " + line);
  }

  static inline int count_ = 0;
  std::filesystem::path directory_;
};

}  // namespace braid::comm
