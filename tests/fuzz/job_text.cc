// The text of a job file -> a checked job, defaults filled in.
#include "proto/job.pb.h"
#include "tests/fuzz/target.h"
#include "worker/job/job.h"

namespace braid::fuzz {

std::vector<std::string> seeds() {
  return {
      R"(name: "clicks" seed: 7 steps: 100
model { name: "dlrm" embedding_dim: 16 hidden: 64 hidden: 32 dropout: 0.1 }
input { format: CSV train_files: "part-*.csv" test_files: "test.csv" global_batch_size: 256
  csv { header: true columns { name: "age" kind: NUMERIC shift: 38 scale: 14 }
    columns { name: "city" kind: CATEGORICAL buckets: 100 } columns { name: "clicked" kind: LABEL } } }
strategy { kind: PS } optimizer { kind: ADAM learning_rate: 0.001 clip_norm: 1 }
streams { count: 4 policy: AUTO } staging { capacity: 2 num_threads: 3 } runtime { intra_op_threads: 2 }
checkpoint { directory: "/d" every_steps: 10 keep: 3 } evaluation { metric: AUC batch_size: 64 })",
      R"(name: "line" steps: 1 model { name: "linear_regression" }
input { format: SYNTHETIC global_batch_size: 8 } optimizer { kind: SGD learning_rate: 0.01 })",
      "", "#"};
}

}  // namespace braid::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace braid;
  const std::filesystem::path file = fuzz::as_file("job.pbtxt", data, size);
  fuzz::expect_accepted_or_refused(fuzz::NoMemory::IsAFault, [&] { worker::load_job(file, {}); });
  return 0;
}
