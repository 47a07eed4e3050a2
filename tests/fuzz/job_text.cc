// The text of a job file -> a checked job, defaults filled in.
#include "proto/job.pb.h"
#include "tests/fuzz/target.h"
#include "worker/job/job.h"

namespace braid::fuzz {

std::vector<std::string> seeds() {
  return {
      R"(name: "clicks" model { name: "dlrm" embedding_dim: 16 hidden: 64 hidden: 32 }
input { format: CSV train_files: "part-*.csv" global_batch_size: 256 csv { header: true }
  columns { name: "age" kind: NUMERIC shift: 38 scale: 14 } columns { name: "city" kind: CATEGORICAL buckets: 100 }
  columns { name: "clicked" kind: LABEL } }
optimizer { name: "adam" learning_rate: 0.001 } strategy: PS checkpoint { directory: "/d" every_steps: 10 keep: 3 }
streams { count: 4 policy: AUTO } runtime { intra_op_threads: 2 } max_steps: 100 seed: 7)",
      R"(model { name: "linear_regression" } input { format: GENERATED global_batch_size: 8 } max_steps: 1)",
      R"(strategy: ALLREDUCE evaluation { every_steps: 5 metric: "auc" } staging { capacity: 2 threads: 3 })",
      "", "#"};
}

}  // namespace braid::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace braid;
  const std::filesystem::path file = fuzz::as_file("job.pbtxt", data, size);
  fuzz::expect_accepted_or_refused(fuzz::NoMemory::IsAFault, [&] { worker::load_job(file, {}); });
  return 0;
}
