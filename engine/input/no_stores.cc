// Stand-in where the build has no Apache Arrow.
#include "base/error.h"
#include "engine/input/store.h"

namespace braid {

Store& arrow_store() {
  throw InvalidArgument(
      "this build reads no files of stores (s3://, gs://, hdfs://): pip install -r "
      "cmake/arrow-requirements.txt, and "
      "configure again with -DPython_EXECUTABLE=... or -DBRAID_ARROW_ROOT=.../site-packages/pyarrow");
}

}  // namespace braid
