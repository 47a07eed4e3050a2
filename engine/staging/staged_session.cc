#include "engine/staging/staged_session.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "engine/exec/trace.h"
#include "engine/staging/stage_pools.h"
#include "engine/staging/staged_step.h"

namespace braid {
namespace {

std::vector<std::string> names_of(const Graph& graph, const std::vector<ValueRef>& values) {
  std::vector<std::string> names;
  for (const ValueRef value : values) names.push_back(graph.value_name(value));
  return names;
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::set<std::string> placeholders_of(const std::vector<RecordSource>& sources) {
  std::set<std::string> names;
  for (const RecordSource& source : sources)
    names.insert(source.placeholders.begin(), source.placeholders.end());
  return names;
}

WaitContext record_wait(const StageOptions& options, std::stop_token stop) {
  const bool forever = options.on_timeout == TimeoutPolicy::Wait;
  return WaitContext::with_timeout(forever ? std::chrono::hours(24 * 365) : options.timeout_millis,
                                   std::move(stop));
}

/// Slices of a stage's threads, on tracks of their own.
Stage::Observer draw_into(Trace* trace, const std::string& stage) {
  if (!trace) return {};
  return [trace, stage](int thread, const StageInterval& interval) {
    trace->track(stage + std::to_string(thread))
        .add({"make batch", interval.begin, interval.end, interval.ticket});
  };
}

}  // namespace

struct StagedSession::Impl {
  /// How one producer of a stage makes its batches.
  struct Maker {
    std::size_t stage = 0;
    std::vector<int> upstream;  // taken from, in this order
    const RecordSource* source = nullptr;
    std::vector<std::string>
        record;                    // names of what `read` brings: of upstream stages, the source, fed values
    std::vector<std::string> fed;  // placeholders that the feed values go to
    std::unique_ptr<SubgraphRunner> feeding;  // null: no feeds
    std::unique_ptr<SubgraphRunner> body;
    std::shared_ptr<BlockPool> blocks;
    bool hands_through = false;  // nothing is computed: the record's memory goes on as it is

    // Of who reads. Batches of some upstream stages stay here until the others have one for the same record.
    std::map<int, Batch> taken;
    std::stop_token life;  // of the stage, in which they were taken
  };

  Impl(Graph g, std::vector<GraphStage> stages, const std::vector<std::string>& f, std::vector<std::string> t,
       std::vector<RecordSource> s, StagedSessionOptions o, Runtime& r)
      : graph(std::move(g)),
        cut(cut_graph(graph, std::move(stages), f, t)),
        sources(checked(std::move(s))),
        options(std::move(o)),
        runtime(r),
        step(graph, f, std::move(t), placeholders_of(sources), options.compile, runtime) {
    for (std::size_t i = 0; i < cut.stages.size(); ++i) {
      const GraphStage& stage = cut.stages[i];
      check_stage_options(stage.options, options.stages);
      makers.push_back(make_maker(i, stage.outputs, cut.parts[i].body));
      for (std::size_t j = 0; j < stage.joined.size(); ++j)
        makers.push_back(make_maker(i, stage.joined[j], cut.parts[i].joined[j]));
    }
    check_sources();
    for (std::size_t i = 0; i < cut.stages.size(); ++i) {
      std::vector<StageProducer> producers;
      for (const auto& maker : makers)
        if (maker->stage == i) producers.push_back(producer(*maker));
      this->stages.push_back(std::make_unique<Stage>(cut.stages[i].options, std::move(producers),
                                                     options.stages,
                                                     draw_into(runtime.trace(), cut.stages[i].options.name)));
    }
  }

  static std::vector<RecordSource> checked(std::vector<RecordSource> sources);
  std::unique_ptr<Maker> make_maker(std::size_t index, const std::vector<ValueRef>& outputs,
                                    const GraphPart& body) const;
  std::unique_ptr<SubgraphRunner> make_runner(std::size_t index, const std::vector<ValueRef>& values) const;
  const RecordSource* source_of(std::size_t index, const std::vector<std::string>& placeholders) const;
  void check_sources() const;
  StageProducer producer(Maker& maker);
  void await(Maker& maker, const StageCall& call);
  Batch read(Maker& maker, const StageCall& call);
  Batch make(const Maker& maker, const StageCall& call, Batch record) const;
  void end();

  // Set once.
  const Graph graph;
  const StagedGraph cut;
  const std::vector<RecordSource> sources;
  const StagedSessionOptions options;
  Runtime& runtime;
  std::vector<std::unique_ptr<Maker>> makers;  // in the order of the stages

  StagedStep step;
  std::map<int, Batch> taken;  // of stages, until all have one for the step
  std::string cursor;
  std::vector<std::unique_ptr<Stage>> stages;  // last: their threads use the rest
};

// ----------------------------------------------------------------------------------------------- set-up

std::unique_ptr<SubgraphRunner> StagedSession::Impl::make_runner(std::size_t index,
                                                                 const std::vector<ValueRef>& values) const {
  SubgraphSettings settings = stage_settings(cut.stages[index].options, options.stages, runtime);
  settings.variables = cut.parts[index].variables;
  settings.seed = options.seed;
  return std::make_unique<SubgraphRunner>(graph, names_of(graph, values), std::move(settings), runtime);
}

std::vector<RecordSource> StagedSession::Impl::checked(std::vector<RecordSource> sources) {
  std::set<std::string> known;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].placeholders.empty())
      throw InvalidArgument("source " + std::to_string(i) + " has no placeholders");
    if (!sources[i].read)
      throw InvalidArgument("the source of '" + sources[i].placeholders[0] + "' has no function that reads");
    for (const std::string& name : sources[i].placeholders)
      if (!known.insert(name).second)
        throw InvalidArgument("placeholder '" + name + "' is named twice by the sources: one reads it, once");
  }
  return sources;
}

/// The source of a stage's placeholders.
const RecordSource* StagedSession::Impl::source_of(std::size_t index,
                                                   const std::vector<std::string>& placeholders) const {
  const RecordSource* found = nullptr;
  const std::string stage = "stage '" + cut.stages[index].options.name + "'";
  for (const std::string& name : placeholders) {
    const auto at = std::find_if(sources.begin(), sources.end(),
                                 [&](const RecordSource& s) { return contains(s.placeholders, name); });
    if (at == sources.end())
      throw InvalidArgument(stage + " needs placeholder '" + name +
                            "', which neither a source nor its feed_dict feeds");
    if (found && found != &*at)
      throw InvalidArgument(stage + " needs records of two sources ('" + found->placeholders[0] + "' and '" +
                            name + "'): put a stage around one of them first");
    found = &*at;
  }
  return found;
}

std::unique_ptr<StagedSession::Impl::Maker> StagedSession::Impl::make_maker(
    std::size_t index, const std::vector<ValueRef>& outputs, const GraphPart& body) const {
  const GraphStage& stage = cut.stages[index];
  const StagePart& part = cut.parts[index];
  auto maker = std::make_unique<Maker>();
  maker->stage = index;
  maker->upstream = part.upstream;
  std::vector<ValueRef> fed, evaluated, taken;
  for (const auto& [placeholder, value] : stage.feeds) {
    fed.push_back(placeholder);
    evaluated.push_back(value);
  }
  maker->fed = names_of(graph, fed);
  std::vector<std::string> placeholders;
  for (const GraphPart* p : {&part.feeding, &body})
    for (const std::string& name : names_of(graph, p->placeholders))
      if (!contains(placeholders, name) && !contains(maker->fed, name)) placeholders.push_back(name);
  maker->source = source_of(index, placeholders);

  for (const int from : maker->upstream)
    for (const std::string& name : names_of(graph, cut.stages[static_cast<std::size_t>(from)].outputs))
      maker->record.push_back(name);
  if (maker->source)
    maker->record.insert(maker->record.end(), maker->source->placeholders.begin(),
                         maker->source->placeholders.end());
  if (!stage.feeds.empty()) maker->feeding = make_runner(index, evaluated);
  maker->body = make_runner(index, outputs);
  maker->blocks = BlockPool::make(options.allocate_block);
  const auto names = names_of(graph, outputs);
  maker->hands_through = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return contains(maker->record, name) || contains(maker->fed, name);
  });
  return maker;
}

void StagedSession::Impl::check_sources() const {
  const auto of_step = names_of(graph, cut.step.placeholders);
  for (const RecordSource& source : sources) {
    std::string reader;
    for (const auto& maker : makers) {
      if (maker->source != &source) continue;
      const std::string& stage = cut.stages[maker->stage].options.name;
      if (!reader.empty())
        throw InvalidArgument("the records of '" + source.placeholders[0] + "' are read by stage '" + reader +
                              "' and by " +
                              (reader == stage ? "another producer of it" : "stage '" + stage + "'") +
                              ": a record goes to one of them");
      reader = stage;
    }
    for (const std::string& name : source.placeholders)
      if (contains(of_step, name))
        throw InvalidArgument(
            "placeholder '" + name +
            "' comes with records, but the step uses it directly: hand it on through stage '" + reader + "'");
    if (reader.empty())
      throw InvalidArgument("no stage reads the records of '" + source.placeholders[0] + "'");
  }
}

// ---------------------------------------------------------------------------------------------- records

StageProducer StagedSession::Impl::producer(Maker& maker) {
  StageProducer producer;
  if (!maker.upstream.empty()) producer.await = [this, &maker](const StageCall& call) { await(maker, call); };
  producer.read = [this, &maker](const StageCall& call) { return read(maker, call); };
  producer.make = [this, &maker](const StageCall& call, Batch record) {
    return make(maker, call, std::move(record));
  };
  return producer;
}

/// A batch of each upstream stage. What was taken before another stage was late is for the next record.
void StagedSession::Impl::await(Maker& maker, const StageCall& call) {
  if (maker.life != call.stop) maker.taken.clear();
  maker.life = call.stop;
  const WaitContext wait = record_wait(cut.stages[maker.stage].options, call.stop);
  for (const int from : maker.upstream)
    if (!maker.taken.contains(from))
      maker.taken.emplace(from, stages[static_cast<std::size_t>(from)]->take(wait));
}

/// What the record of a ticket consists of: read and evaluated here, so in the order of tickets. An error on
/// the way leaves no record at all.
Batch StagedSession::Impl::read(Maker& maker, const StageCall& call) {
  const StageOptions& stage = cut.stages[maker.stage].options;
  const WaitContext wait = record_wait(stage, call.stop);
  Batch record;
  const auto append = [&](Batch part, std::size_t expected, const char* what) {
    if (part.tensors.size() != expected)
      throw InvalidArgument("stage '" + stage.name + "': " + what + " brings " +
                            std::to_string(part.tensors.size()) + " tensors, not " +
                            std::to_string(expected));
    for (Tensor& tensor : part.tensors) record.tensors.push_back(std::move(tensor));
    record.rows = std::max(record.rows, part.rows);
    if (!part.cursor.empty()) record.cursor = std::move(part.cursor);
  };
  std::map<int, Batch> taken = std::exchange(maker.taken, {});
  for (const int from : maker.upstream)
    append(std::move(taken.at(from)), cut.stages[static_cast<std::size_t>(from)].outputs.size(),
           "a stage above");
  if (maker.source) append(maker.source->read(call.ticket), maker.source->placeholders.size(), "its source");
  if (maker.feeding) {
    SubgraphRunner::Values values;
    for (std::size_t i = 0; i < record.tensors.size(); ++i)
      values.emplace_back(maker.record[i], record.tensors[i]);
    for (Tensor& tensor : maker.feeding->run(call.thread, call.ticket, values, wait))
      record.tensors.push_back(std::move(tensor));
  }
  return record;
}

Batch StagedSession::Impl::make(const Maker& maker, const StageCall& call, Batch record) const {
  SubgraphRunner::Values values;
  for (std::size_t i = 0; i < record.tensors.size(); ++i)
    values.emplace_back(i < maker.record.size() ? maker.record[i] : maker.fed[i - maker.record.size()],
                        record.tensors[i]);
  const WaitContext wait = record_wait(cut.stages[maker.stage].options, call.stop);
  auto tensors = maker.body->run(call.thread, call.ticket, values, wait);
  Batch batch;
  if (maker.hands_through)
    batch.tensors = std::move(tensors);
  else
    batch = pack_batch(tensors, *maker.blocks);
  batch.rows = record.rows;
  batch.cursor = std::move(record.cursor);
  return batch;
}

// -------------------------------------------------------------------------------------------- interface

StagedSession::StagedSession(Graph graph, std::vector<GraphStage> stages,
                             const std::vector<std::string>& fetches, std::vector<std::string> targets,
                             std::vector<RecordSource> sources, StagedSessionOptions options,
                             Runtime& runtime)
    : impl_(std::make_unique<Impl>(std::move(graph), std::move(stages), fetches, std::move(targets),
                                   std::move(sources), std::move(options), runtime)) {}

StagedSession::~StagedSession() { impl_->end(); }

/// When it returns no thread is inside of a stage, its own or another's.
void StagedSession::Impl::end() {
  for (const auto& stage : stages) stage->cancel();
  for (const auto& stage : stages) stage->stop();
}

void StagedSession::start(std::uint64_t first_ticket) {
  impl_->taken.clear();
  // All have to stand still first: a thread of the old life would take what a stage above makes in the new.
  if (std::none_of(impl_->stages.begin(), impl_->stages.end(), [](const auto& s) { return s->running(); }))
    impl_->end();
  for (const int stage : impl_->cut.order)
    impl_->stages[static_cast<std::size_t>(stage)]->start(first_ticket);
}

void StagedSession::stop() { impl_->end(); }

void StagedSession::cancel() {
  for (const auto& stage : impl_->stages) stage->cancel();
}

void StagedSession::close() {
  for (const int index : impl_->cut.order) {
    const auto s = static_cast<std::size_t>(index);
    const auto& ends = impl_->cut.stages[s].options.closed_exception_types;
    const bool ends_with_those_above =
        !impl_->cut.parts[s].upstream.empty() &&
        std::find(ends.begin(), ends.end(), ErrorCode::OutOfRange) != ends.end();
    if (!ends_with_those_above) impl_->stages[s]->close();
  }
}

StepResult StagedSession::run(const StepParams& params, const SubgraphRunner::Values& feeds,
                              const WaitContext& wait) {
  impl_->step.check_fed(feeds);
  // A step that is late with one stage keeps what it has of the others: records stay together.
  for (const int index : impl_->cut.step_stages)
    if (!impl_->taken.contains(index))
      impl_->taken.emplace(index, impl_->stages[static_cast<std::size_t>(index)]->take(wait));
  TextNodes::Known known;
  std::string cursor;
  for (auto& [index, batch] : std::exchange(impl_->taken, {})) {
    const auto& outputs = impl_->cut.stages[static_cast<std::size_t>(index)].outputs;
    for (std::size_t i = 0; i < outputs.size(); ++i) known.emplace(outputs[i], std::move(batch.tensors[i]));
    if (!batch.cursor.empty()) cursor = std::move(batch.cursor);
  }
  for (const auto& [name, value] : feeds) known.emplace(impl_->graph.parse_value(name), value);
  StepResult result = impl_->step.run(params, std::move(known), wait);
  impl_->cursor = std::move(cursor);
  return result;
}

Stage& StagedSession::stage(std::size_t index) { return *impl_->stages.at(index); }
const StagedGraph& StagedSession::cut() const { return impl_->cut; }
const std::string& StagedSession::cursor() const { return impl_->cursor; }

PrefetchHook::PrefetchHook(StagedSession& session, std::uint64_t first_ticket, std::stop_token stop)
    : session_(session), on_stop_(stop, [&session] { session.cancel(); }) {
  session_.start(first_ticket);
  if (stop.stop_requested()) session_.cancel();  // before it had begun
}

PrefetchHook::~PrefetchHook() { session_.cancel(); }

}  // namespace braid
