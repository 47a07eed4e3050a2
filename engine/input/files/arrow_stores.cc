// Stores by Arrow's file systems. Of S3 the credentials are those of AWS's own tools: AWS_ACCESS_KEY_ID and
// AWS_SECRET_ACCESS_KEY, ~/.aws (AWS_PROFILE), the machine's role; another server is named by
// AWS_ENDPOINT_URL. Of Google's store they are those of its tools (GOOGLE_APPLICATION_CREDENTIALS, gcloud's
// files, the machine's account); STORAGE_EMULATOR_HOST names a server that asks for none.
#include <arrow/filesystem/filesystem.h>
#include <arrow/filesystem/gcsfs.h>
#include <arrow/filesystem/s3fs.h>
#include <arrow/io/interfaces.h>
#include <arrow/result.h>
#include <arrow/status.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "engine/input/files/remote_files.h"
#include "engine/input/files/store.h"

namespace braid {
namespace {

bool says(const std::string& text, std::initializer_list<const char*> any) {
  return std::any_of(any.begin(), any.end(),
                     [&](const char* each) { return text.find(each) != std::string::npos; });
}

/// What went wrong, without what a server may repeat of a request.
[[noreturn]] void fail(const std::string& name, const arrow::Status& status) {
  const std::string text = status.ToString();
  if (says(text, {"ACCESS_DENIED", "HTTP status 403", "HTTP status 401", "INVALID_ACCESS_KEY_ID", "SIGNATURE",
                  "INVALID_CLIENT_TOKEN", "UNRECOGNIZED_CLIENT", "EXPIRED_TOKEN", "PERMISSION_DENIED",
                  "UNAUTHENTICATED"}))
    throw InvalidArgument(
        "'" + name + "': access denied: the credentials are wrong, or may not read it; " +
        (scheme_of(name) == "s3"
             ? "they come from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, from ~/.aws "
               "(AWS_PROFILE) or from the machine's role"
             : "they come from the store's own tools, of gs:// GOOGLE_APPLICATION_CREDENTIALS"));
  if (says(text, {"Could not create a OAuth2 access token"}))
    throw Unavailable(
        "there are no credentials, or who gives them does not answer: GOOGLE_APPLICATION_CREDENTIALS names a "
        "file of them, `gcloud auth application-default login` makes one, machines of the cloud have an "
        "account");
  if (says(text, {"NO_SUCH_BUCKET", "NO_SUCH_KEY", "RESOURCE_NOT_FOUND", "HTTP status 404"}) ||
      status.IsKeyError())
    throw InvalidArgument("'" + name + "': No such file, or no such bucket");
  if (status.IsInvalid() || status.IsNotImplemented() || status.IsTypeError())
    throw InvalidArgument("'" + name + "': " + text);
  throw Unavailable(text);
}

template <class T>
T checked(const std::string& name, arrow::Result<T> result) {
  if (!result.ok()) fail(name, result.status());
  return std::move(result).ValueUnsafe();
}

/// A name without its scheme and options, and these.
struct Parts {
  std::string scheme, host, path, options;
};
Parts parts_of(const std::string& name) {
  Parts parts;
  parts.scheme = scheme_of(name);
  parts.path = name.substr(parts.scheme.size() + 3);
  if (const std::size_t query = parts.path.find('?');
      query != std::string::npos && parts.path.find('=', query) != std::string::npos) {
    parts.options = parts.path.substr(query);
    parts.path.resize(query);
  }
  parts.host = parts.path.substr(0, parts.path.find('/'));
  return parts;
}

class ArrowStoreFile : public StoreFile {
 public:
  ArrowStoreFile(std::string name, FileStamp stamp, std::shared_ptr<arrow::io::RandomAccessFile> file)
      : name_(std::move(name)), stamp_(stamp), file_(std::move(file)) {}
  FileStamp stamp() const override { return stamp_; }
  void read_at(std::uint64_t offset, std::span<std::byte> out) override {
    const std::int64_t got = checked(name_, file_->ReadAt(static_cast<std::int64_t>(offset),
                                                          static_cast<std::int64_t>(out.size()), out.data()));
    if (got != static_cast<std::int64_t>(out.size()))
      throw Unavailable(fmt::format("{} bytes came of {} at {}", got, out.size(), offset));
  }

 private:
  const std::string name_;
  const FileStamp stamp_;
  const std::shared_ptr<arrow::io::RandomAccessFile> file_;
};

class ArrowStore : public Store {
 public:
  std::unique_ptr<StoreFile> open(const std::string& name) override {
    const Parts parts = parts_of(name);
    const auto system = system_of(name, parts);
    const arrow::fs::FileInfo info = checked(name, system->GetFileInfo(path_in(parts)));
    if (info.type() == arrow::fs::FileType::NotFound) throw InvalidArgument("'" + name + "': No such file");
    if (info.type() == arrow::fs::FileType::Directory)
      throw InvalidArgument("'" + name + "': is a directory");
    const FileStamp stamp{
        static_cast<std::uint64_t>(info.size()),
        std::chrono::duration_cast<std::chrono::nanoseconds>(info.mtime().time_since_epoch()).count()};
    return std::make_unique<ArrowStoreFile>(name, stamp, checked(name, system->OpenInputFile(info)));
  }

  std::vector<StoreEntry> list(const std::string& directory) override {
    const Parts parts = parts_of(directory);
    arrow::fs::FileSelector selector;
    selector.base_dir = path_in(parts);
    while (selector.base_dir.ends_with('/')) selector.base_dir.pop_back();
    selector.allow_not_found = true;
    std::vector<StoreEntry> entries;
    const std::string before = parts.scheme + "://" + (parts.scheme == "hdfs" ? parts.host : "");
    const auto system = system_of(directory, parts);
    // What is a file has nothing in it.
    const arrow::fs::FileInfo info = checked(directory, system->GetFileInfo(selector.base_dir));
    if (info.type() != arrow::fs::FileType::Directory) return entries;
    for (const arrow::fs::FileInfo& each : checked(directory, system->GetFileInfo(selector)))
      entries.push_back({before + each.path() + parts.options, each.type() == arrow::fs::FileType::File});
    return entries;
  }

  void close() {
    std::lock_guard lock(mu_);
    systems_.clear();
    if (const arrow::Status status = arrow::fs::EnsureS3Finalized(); !status.ok())
      log_warning("s3: {}", status.ToString());
  }

 private:
  static std::string path_in(const Parts& parts) {
    return parts.scheme == "hdfs" ? parts.path.substr(parts.host.size()) : parts.path;
  }

  std::shared_ptr<arrow::fs::FileSystem> system_of(const std::string& name, const Parts& parts) {
    const std::string key =
        parts.scheme + "://" + parts.host + parts.options + (parts.scheme == "gs" ? emulator() : "");
    std::lock_guard lock(mu_);
    if (const auto found = systems_.find(key); found != systems_.end()) return found->second;
    std::shared_ptr<arrow::fs::FileSystem> system;
    if (parts.scheme == "s3")
      system = make_s3(name, parts);
    else if (parts.scheme == "gs")
      system = make_gcs(name, parts);
    else
      system = checked(name,
                       arrow::fs::FileSystemFromUri(parts.scheme + "://" + parts.host + "/" + parts.options));
    systems_.emplace(key, system);
    return system;
  }

  static std::string emulator() {
    const char* const named = std::getenv("STORAGE_EMULATOR_HOST");
    return named ? named : "";
  }

  static std::shared_ptr<arrow::fs::FileSystem> make_gcs(const std::string& name, const Parts& parts) {
    std::string path;
    arrow::fs::GcsOptions options =
        checked(name, arrow::fs::GcsOptions::FromUri("gs://" + parts.host + "/" + parts.options, &path));
    if (const std::string url = emulator(); !url.empty()) {
      const std::size_t scheme = url.find("://");
      options = arrow::fs::GcsOptions::Anonymous();
      options.scheme = scheme == std::string::npos ? "http" : url.substr(0, scheme);
      options.endpoint_override = scheme == std::string::npos ? url : url.substr(scheme + 3);
    }
    // Of one try, the look for credentials included; a store's reads are tried again until the deadline.
    options.retry_limit_seconds = std::min(5.0, std::chrono::duration<double>(io_deadline()).count());
    return checked(name, arrow::fs::GcsFileSystem::Make(options));
  }

  static std::shared_ptr<arrow::fs::FileSystem> make_s3(const std::string& name, const Parts& parts) {
    if (const arrow::Status status = arrow::fs::EnsureS3Initialized(); !status.ok()) fail(name, status);
    arrow::fs::S3Options options =
        checked(name, arrow::fs::S3Options::FromUri("s3://" + parts.host + "/" + parts.options));
    if (const char* endpoint = std::getenv("AWS_ENDPOINT_URL");
        endpoint && *endpoint && options.endpoint_override.empty()) {
      const std::string url = endpoint;
      const std::size_t scheme = url.find("://");
      if (scheme != std::string::npos) options.scheme = url.substr(0, scheme);
      options.endpoint_override = scheme == std::string::npos ? url : url.substr(scheme + 3);
      if (options.region.empty()) options.region = "us-east-1";
    }
    const double most = std::chrono::duration<double>(io_deadline()).count();
    options.connect_timeout = std::min(5.0, most);
    options.request_timeout = std::min(20.0, most);
    options.retry_strategy = arrow::fs::S3RetryStrategy::GetAwsStandardRetryStrategy(2);
    return checked(name, arrow::fs::S3FileSystem::Make(options));
  }

  std::mutex mu_;
  std::map<std::string, std::shared_ptr<arrow::fs::FileSystem>> systems_;  // guarded by mu_
};

ArrowStore& the_store() {
  static ArrowStore* const store = new ArrowStore;  // for threads that end after the program's statics
  return *store;
}

}  // namespace

Store& arrow_store() { return the_store(); }

void close_stores() { the_store().close(); }

}  // namespace braid
