// Job files: text protobuf (proto/job.proto) plus `--set a.b=value` overrides -> a checked proto::Job with
// defaults filled in. Throws: InvalidArgument with file, line and column; an unknown field or enum value
// names the nearest known one.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "comm/transport/transport.h"
#include "engine/compile/compile.h"

namespace braid::proto {
class Input;
class Job;
class Model;
}  // namespace braid::proto

namespace braid::worker {

/// Reads, overrides (in order), fills defaults, checks. The file's fields go over those of `settings`
/// (worker/job/settings.h), which are assignments as overrides are; a list in the file takes the place of
/// theirs.
proto::Job load_job(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                    const std::vector<std::string>& settings = {});

/// The same of a text; `source` stands in front of errors.
proto::Job load_job_text(const std::string& text, const std::string& source,
                         const std::vector<std::string>& overrides,
                         const std::vector<std::string>& settings = {});

/// Parses text only. `source` stands in front of errors.
proto::Job parse_job(std::string_view text, std::string_view source);

/// One override "a.b=value" or "a.b[2].c=value"; repeated scalars take "1,2,3". `value` is text protobuf,
/// quotes optional.
void set_job_field(proto::Job& job, const std::string& assignment);

void fill_job_defaults(proto::Job& job);  // those that proto/job.proto names, of absent fields and zeros
void check_job(const proto::Job& job);    // REQUIRES: defaults are filled. Throws: InvalidArgument by field
void check_execution(const proto::Job& job);  // the same of streams and runtime alone

/// Whether rows of the input's format can be read while they are used.
bool can_stream(const proto::Input& input);

/// Whether its workers exchange among each other: ALLREDUCE, MIRRORED, HYBRID, PS_ALLREDUCE, PIPELINE,
/// TENSOR and EXPERTS.
bool has_communicator(const proto::Job& job);
/// Whether every worker holds all variables and gradients are summed: ALLREDUCE, and among replicas MIRRORED.
bool is_all_reduce(const proto::Job& job);
/// Whether it has parameter servers: PS and PS_ALLREDUCE.
bool has_servers(const proto::Job& job);
/// A queue at a server gives out the batches (input.shard DYNAMIC); alone a worker takes them in their order.
bool takes_batches(const proto::Job& job);

/// What texts call the model: its name, or that of the graph's file.
std::string model_text(const proto::Model& model);

/// AUTO on one stream is NONE: streams that the model's scopes name mean nothing then.
StreamOptions stream_options(const proto::Job& job);
/// What runtime.visible_device_list names, in its order; empty: all. Throws: InvalidArgument for a list that
/// is not one of different numbers.
std::vector<int> visible_devices(const proto::Job& job);
BatchSiblings batch_siblings_of(const proto::Job& job);
/// What runtime.precision says of programs; nothing where products read float32.
PrecisionOptions precision_of(const proto::Job& job);
/// Whether products of float32 may round their inputs to TF32 on a GPU: as runtime.precision says, else
/// runtime.tf32.
bool uses_tf32(const proto::Job& job);
comm::TlsOptions tls_options(const proto::Job& job);

}  // namespace braid::worker
