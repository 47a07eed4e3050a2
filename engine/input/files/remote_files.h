// Files in stores: s3://, gs:// and hdfs:// through Arrow's file systems, http:// and https:// for reading.
// A read that fails for a reason that may pass is tried again, with a back-off that doubles, until a deadline
// (BRAID_IO_DEADLINE, default 2m). Credentials come from where each store's own tools look for them,
// and never stand in messages. Thread rule: any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/input/files/data_file.h"

namespace braid {

/// Throws: InvalidArgument (an unknown scheme, no such object, no permission: with what to do), Unavailable
/// (no answer until the deadline), InvalidArgument with what to install, where this build lacks Arrow.
std::shared_ptr<DataFile> open_remote_file(const std::string& name);
FileStamp remote_stamp(const std::string& name);
/// The names of the files that match a pattern (*, ?, [...] in the part behind the last '/'), or that lie in
/// the directory where it is one, sorted; of a file itself. Empty where there is none.
std::vector<std::string> list_remote(const std::string& pattern);

/// Ends what stores keep for the process. REQUIRES: none of their files is open, and none is opened later.
/// Programs call it before main returns: at exit it is too late for the library of S3.
void close_stores();

}  // namespace braid
