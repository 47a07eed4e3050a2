#include "engine/exec/program_cache.h"

#include <algorithm>

#include "base/error.h"
#include "engine/compile/compile.h"

namespace braid {
namespace {

bool same_signature(const std::vector<FeedSpec>& a, const std::vector<FeedSpec>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const FeedSpec& x, const FeedSpec& y) {
    return x.dtype == y.dtype && x.shape == y.shape && x.name == y.name;
  });
}

}  // namespace

std::shared_ptr<const Program> compile_to_fit(const Graph& graph, const CompileRequest& request,
                                              CompileOptions options, VariableStore& store) {
  auto program = compile(graph, request, options);
  const auto fits = [&](const ProgramVariable& variable) {
    return variable.members.empty() || store.has_room_for_slab(variable.name, variable.members);
  };
  if (!std::all_of(program->variables.begin(), program->variables.end(), fits)) {
    options.batch_siblings = BatchSiblings::Off;
    return compile(graph, request, options);
  }
  for (const ProgramVariable& variable : program->variables)
    if (!variable.members.empty())
      store.get_or_create_slab(variable.name, variable.dtype, variable.shape, variable.members,
                               program->buffers[static_cast<std::size_t>(variable.buffer)].domain);
  return program;
}

ProgramCache::ProgramCache(Graph graph, std::vector<std::string> fetches, std::vector<std::string> targets,
                           CompileOptions options, Runtime& runtime, std::size_t capacity,
                           InstanceOptions instance_options)
    : graph_(std::move(graph)),
      fetches_(std::move(fetches)),
      targets_(std::move(targets)),
      options_(options),
      runtime_(runtime),
      capacity_(capacity),
      instance_options_(std::move(instance_options)) {
  if (capacity_ == 0) throw InvalidArgument("a program cache needs room for at least one program");
}

std::shared_ptr<Instance> ProgramCache::instance(const std::vector<FeedSpec>& feeds) {
  const auto found = std::find_if(entries_.begin(), entries_.end(),
                                  [&](const Entry& e) { return same_signature(e.feeds, feeds); });
  if (found != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, found);
    return entries_.front().instance;
  }
  auto program = compile_to_fit(graph_, {feeds, fetches_, targets_}, options_, runtime_.variables());
  entries_.push_front({feeds, std::make_shared<Instance>(std::move(program), runtime_, instance_options_)});
  ++compiled_;
  if (entries_.size() > capacity_) entries_.pop_back();
  return entries_.front().instance;
}

}  // namespace braid
