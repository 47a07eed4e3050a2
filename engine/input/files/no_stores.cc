// Stand-in for programs without Apache Arrow.
#include "base/error.h"
#include "engine/input/files/remote_files.h"
#include "engine/input/files/store.h"

namespace braid {

Store& arrow_store() {
  throw InvalidArgument(
      "this program reads no files of stores (s3://, gs://, hdfs://). The Python module never does: use "
      "`braid train`. For the binary: pip install -r "
      "cmake/arrow-requirements.txt, and "
      "configure again with -DPython_EXECUTABLE=... or -DBRAID_ARROW_ROOT=.../site-packages/pyarrow");
}

void close_stores() {}

}  // namespace braid
