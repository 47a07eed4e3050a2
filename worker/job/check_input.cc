#include "worker/job/check_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "engine/input/files/kafka.h"
#include "proto/job.pb.h"
#include "worker/job/field_reasons.h"
#include "worker/job/job.h"
#include "worker/job/job_checker.h"

namespace braid::worker {
namespace {

/// input.shard DYNAMIC is of use where workers need not wait for each other.
void check_dynamic_shard(const proto::Job& job, const JobChecker& check) {
  if (job.input().shard() != proto::Input::DYNAMIC) return;
  const proto::Strategy& strategy = job.strategy();
  const bool alone = strategy.kind() == proto::Strategy::LOCAL;
  const std::string kind = proto::Strategy::Kind_Name(strategy.kind());
  check.require(
      alone || strategy.kind() == proto::Strategy::PS,
      "input.shard DYNAMIC gives fast workers more batches than slow ones, but under strategy.kind " + kind +
          " all workers make each step together: use PS with consistency ASP");
  check.require(
      alone || strategy.consistency() == proto::Strategy::ASP,
      "input.shard DYNAMIC gives fast workers more batches than slow ones, but under strategy.consistency " +
          proto::Strategy::Consistency_Name(strategy.consistency()) +
          " workers wait for each other: use ASP");
  check.require(!job.input().carry_remainder(),
                "input.shard DYNAMIC ends each epoch with a whole batch: it takes no input.carry_remainder");
  check.require(!job.input().has_follow(),
                "input.shard DYNAMIC is for files that are all there: it takes no input.follow");
}

void check_kafka(const proto::Job& job, const JobChecker& check) {
  const proto::Input& input = job.input();
  const proto::Input::Format format = input.format();
  for (const std::string& name : input.test_files())
    check.require(!is_kafka(name), "input.test_files: kafka:// has no end: take test rows from files");
  const bool any = std::ranges::any_of(input.train_files(), is_kafka);
  check.require(any || (input.follow().begin() == proto::Follow::EARLIEST && input.follow().records() == 0),
                "input.follow.begin and records are for kafka:// in train_files");
  if (!any) return;
  for (const std::string& name : input.train_files()) {
    try {
      kafka_name(name);
    } catch (const InvalidArgument& error) {
      check.require(false, "input.train_files: " + error.message());
    }
  }
  check.require(input.has_follow(), "input.train_files: kafka:// needs input.follow { }");
  check.require(
      format == proto::Input::CSV || format == proto::Input::CRITEO || format == proto::Input::TFRECORD ||
          format == proto::Input::TEXT,
      "input.train_files: values of kafka:// are CSV, CRITEO, TEXT or TFRECORD (a tf.train.Example)");
  check.require(!input.csv().header(),
                "input.csv.header: values of kafka:// are records, whose fields are in the schema's order");
}

}  // namespace

bool can_stream(const proto::Input& input) {
  const proto::Input::Format format = input.format();
  return format == proto::Input::CSV || format == proto::Input::CRITEO || format == proto::Input::TFRECORD ||
         format == proto::Input::PARQUET || format == proto::Input::TEXT ||
         format == proto::Input::MLPERF_DLRM;
}

void check_input(const proto::Job& job, const JobChecker& check) {
  const proto::Input& input = job.input();
  for (const proto::Column* column : columns_of(job)) {
    check.fields_of_column(*column);
    check.require(!column->has_scale() || (std::isfinite(column->scale()) && column->scale() != 0),
                  fmt::format("input.columns: scale of column '{}' must be finite and not 0, got {}",
                              column->name(), column->scale()));
  }
  check.require(input.shard() != proto::Input::FILES || job.steps() > 0,
                "input.shard FILES needs steps: the workers' files may differ in length");
  check_dynamic_shard(job, check);
  check_kafka(job, check);
  check.require(input.shard() == proto::Input::ALL || input.shard() == proto::Input::DYNAMIC ||
                    (input.format() != proto::Input::IDX && input.format() != proto::Input::SYNTHETIC &&
                     input.format() != proto::Input::GENERATOR),
                "input.shard is for CSV, CRITEO, NPY, TFRECORD, PARQUET, TEXT and MLPERF_DLRM");
  check.require(input.read() != proto::Input::STREAM || input.shard() != proto::Input::ROWS,
                "input.shard ROWS is for rows in memory: with input.read STREAM workers share "
                "input.stream.virtual_shards");
  if (input.has_follow()) {
    check.require(
        job.steps() > 0,
        "input.follow needs steps, the most that the job may have: nobody knows how many rows will come");
    check.require(can_stream(input),
                  "input.follow is for CSV, CRITEO, TFRECORD, PARQUET, TEXT and MLPERF_DLRM");
    check.require(input.train_files_size() == 1,
                  "input.follow takes one name in train_files: a directory, a pattern in one, or kafka://");
    check.require(input.read() != proto::Input::MEMORY && input.shard() == proto::Input::ALL &&
                      input.shuffle_buffer() == 0 && !input.carry_remainder(),
                  "input.follow streams its rows to all workers: it takes no input.read MEMORY, shard, "
                  "shuffle_buffer and carry_remainder");
    check.require(
        !has_servers(job),
        "input.follow is not for strategy.kind PS and PS_ALLREDUCE, whose workers may start again one "
        "by one, and would then disagree on the files");
  }
  check.require(input.read() != proto::Input::STREAM || can_stream(input),
                "input.read STREAM is for CSV, CRITEO, TFRECORD, PARQUET, TEXT and MLPERF_DLRM, not " +
                    proto::Input::Format_Name(input.format()));
}

}  // namespace braid::worker
