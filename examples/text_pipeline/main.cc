// text_pipeline FILE [--steps N] [--stage none|hand|auto]
//
// Prints the target of each step for the lines of FILE, two at a time, from the beginning again at its end.
// All three ways print the same.
#include <fmt/core.h>

#include <cstring>
#include <optional>

#include "base/error.h"
#include "engine/input/formats/readers.h"
#include "engine/ops/state/variable_init.h"
#include "engine/staging/auto_stage.h"
#include "engine/staging/stage_marks.h"
#include "engine/staging/staged_session.h"
#include "examples/text_pipeline/pipeline.h"

namespace braid {
namespace {

constexpr std::int64_t kBatch = 2;
constexpr std::uint64_t kSeed = 1;

std::vector<std::string> read_lines(const std::string& file) {
  const std::string text = read_text_file(file);
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (lines.empty()) throw InvalidArgument(file + " has no lines");
  return lines;
}

Tensor batch_of(const std::vector<std::string>& lines, std::uint64_t ticket) {
  std::vector<std::string> batch;
  for (std::uint64_t i = 0; i < kBatch; ++i) batch.push_back(lines[(ticket * kBatch + i) % lines.size()]);
  return Tensor::strings({kBatch}, batch);
}

void print(const StepResult& result) {
  const Tensor& target = result.fetches[0];
  std::string text;
  for (std::int64_t i = 0; i < target.elements(); ++i)
    text += std::string(i == 0                       ? ""
                        : i % target.shape()[1] == 0 ? " | "
                                                     : " ") +
            std::string(target.string_at(i));
  fmt::print("step {}: {}\n", result.step, text);
}

int run(const std::string& file, std::uint64_t steps, const std::string& way) {
  const std::vector<std::string> lines = read_lines(file);
  const TextPipeline pipeline = make_text_pipeline(kBatch, way == "hand");
  std::vector<GraphStage> stages = stages_of(pipeline.graph);
  if (way == "auto") {
    const AutoStageResult found = auto_stage(pipeline.graph, {.records = {TextPipeline::kLines},
                                                              .keep = {TextPipeline::kWords},
                                                              .fetches = {TextPipeline::kTarget},
                                                              .targets = {TextPipeline::kUpdate}});
    fmt::print(stderr, "{}\n", found.report);
    if (found.stage) stages.push_back(*found.stage);
  }

  Runtime runtime({});
  for (const VariableInfo& variable : list_variables(pipeline.graph))
    initialize_variable(pipeline.graph.node(variable.handle), kSeed,
                        runtime.variables().get_or_create(variable.name, variable.dtype, variable.shape));
  std::vector<RecordSource> sources;
  if (!stages.empty())
    sources.push_back({{TextPipeline::kLines}, [&lines](std::uint64_t ticket) {
                         Batch batch;
                         batch.tensors = {batch_of(lines, ticket)};
                         return batch;
                       }});
  StagedSession session(pipeline.graph, stages, {TextPipeline::kTarget}, {TextPipeline::kUpdate}, sources,
                        {.compile = {}, .seed = kSeed}, runtime);
  const PrefetchHook hook(session);
  for (std::uint64_t step = 0; step < steps; ++step) {
    StepParams params;
    params.step = step;
    params.seed = kSeed;
    SubgraphRunner::Values feeds;
    if (stages.empty()) feeds.emplace_back(TextPipeline::kLines, batch_of(lines, step));
    print(session.run(params, feeds, WaitContext::with_timeout(std::chrono::seconds(60))));
  }
  return 0;
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  std::string file, way = "hand";
  std::uint64_t steps = 5;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--steps") == 0 && i + 1 < argc)
      steps = std::strtoull(argv[++i], nullptr, 10);
    else if (std::strcmp(argv[i], "--stage") == 0 && i + 1 < argc)
      way = argv[++i];
    else
      file = argv[i];
  }
  if (file.empty() || file.starts_with("--") || (way != "none" && way != "hand" && way != "auto")) {
    fmt::print(stderr, "usage: text_pipeline FILE [--steps N] [--stage none|hand|auto]\n");
    return braid::kExitBadInput;
  }
  try {
    return braid::run(file, steps, way);
  } catch (const braid::Error& e) {
    fmt::print(stderr, "{}: {}\n", braid::error_code_name(e.code()), e.message());
    return braid::exit_code_for(e.code());
  }
}
