#include "ps/table_set.h"

#include <fmt/format.h>

#include <bit>
#include <set>

#include "base/error.h"

namespace braid::ps {
namespace {

class Canonical {
 public:
  void integer(std::uint64_t value) {
    for (int i = 0; i < 8; ++i) bytes_.push_back(static_cast<char>(value >> (8 * i)));
  }
  void real(float value) { integer(std::bit_cast<std::uint32_t>(value)); }
  void text(std::string_view value) {
    integer(value.size());
    bytes_.append(value);
  }
  void optimizer(const OptimizerSpec& o) {
    integer(static_cast<std::uint64_t>(o.kind));
    integer(o.nesterov ? 1 : 0);
    integer(o.centered ? 1 : 0);
    for (float value :
         {o.momentum, o.beta1, o.beta2, o.epsilon, o.initial_accumulator, o.weight_decay, o.rho,
          o.learning_rate_power, o.l2_shrinkage, o.l1, o.l2, o.clip_value, o.learning_rate_factor})
      real(value);
    if (o.adagrad_epsilon != 0) real(o.adagrad_epsilon);  // the fingerprints of other jobs are what they were
    if (o.row_wise) text("row_wise");
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace

std::string_view consistency_name(Consistency consistency) {
  switch (consistency) {
    case Consistency::Bsp:
      return "BSP";
    case Consistency::Asp:
      return "ASP";
    case Consistency::Ssp:
      return "SSP";
    case Consistency::Timed:
      return "TIMED";
  }
  return "unknown";
}

void check_table_set(const TableSet& set) {
  if (set.consistency < Consistency::Bsp || set.consistency > Consistency::Timed)
    throw InvalidArgument(
        fmt::format("[ps] consistency {} is none that is known", static_cast<int>(set.consistency)));
  if (set.consistency == Consistency::Ssp && set.staleness == 0)
    throw InvalidArgument("[ps] SSP with a staleness of 0 is BSP");
  if (set.consistency == Consistency::Timed && (set.timed.quorum < 1 || set.timed.quorum > set.workers))
    throw InvalidArgument(
        fmt::format("[ps] TIMED: a quorum of {} workers of {}", set.timed.quorum, set.workers));
  if (set.consistency == Consistency::Timed && set.cached)
    throw InvalidArgument("[ps] TIMED: workers that keep rows would not know what became of their gradients");
  if (set.workers < 1) throw InvalidArgument(fmt::format("[ps] workers must be >= 1, got {}", set.workers));
  std::set<std::string_view> names;
  auto check_group = [&](const std::string& name, int group) {
    if (group < 0 || group > std::ssize(set.groups))
      throw InvalidArgument(fmt::format("[ps] table '{}': there is no optimizer group {} of {}", name, group,
                                        set.groups.size()));
  };
  auto check_name = [&](const std::string& name) {
    if (name.empty()) throw InvalidArgument("[ps] a table has no name");
    if (!names.insert(name).second)
      throw InvalidArgument(fmt::format("[ps] two tables are named '{}'", name));
  };
  for (int group = 0; group <= std::ssize(set.groups); ++group)
    if (const OptimizerSpec& spec = set.optimizer_of(group);
        spec.row_wise && spec.kind != OptimizerKind::Adagrad)
      throw InvalidArgument(fmt::format("[ps] row-wise is ADAGRAD, not {}", optimizer_name(spec.kind)));
  for (const auto& table : set.dense) {
    check_name(table.name);
    if (table.elements < 1)
      throw InvalidArgument(
          fmt::format("[ps] table '{}': elements must be >= 1, got {}", table.name, table.elements));
    check_group(table.name, table.group);
  }
  for (const auto& table : set.sparse) {
    check_name(table.name);
    if (table.dim < 1)
      throw InvalidArgument(fmt::format("[ps] table '{}': dim must be >= 1, got {}", table.name, table.dim));
    check_group(table.name, table.group);
  }
}

std::uint64_t table_set_hash(const TableSet& set) {
  Canonical out;
  out.integer(set.dense.size());
  for (const auto& table : set.dense) {
    out.text(table.name);
    out.integer(static_cast<std::uint64_t>(table.elements));
    out.integer(static_cast<std::uint64_t>(table.group));
  }
  out.integer(set.sparse.size());
  for (const auto& table : set.sparse) {
    out.text(table.name);
    out.integer(static_cast<std::uint64_t>(table.dim));
    out.integer(static_cast<std::uint64_t>(table.init.kind));
    out.real(table.init.a);
    out.real(table.init.b);
    out.integer(table.key.value);
    out.integer(static_cast<std::uint64_t>(table.group));
  }
  out.optimizer(set.optimizer);
  out.integer(set.groups.size());
  for (const OptimizerSpec& group : set.groups) out.optimizer(group);
  out.integer(static_cast<std::uint64_t>(set.consistency));
  out.integer(static_cast<std::uint64_t>(set.workers));
  out.integer(set.staleness);
  out.integer(set.timed.timeout_ms);
  out.integer(static_cast<std::uint64_t>(set.timed.quorum));
  out.integer(static_cast<std::uint64_t>(set.timed.late));
  out.real(set.timed.late_scale);
  out.real(static_cast<float>(set.timed.max_late_share));
  out.integer(set.timed.rounds);
  out.integer(set.cached ? 1 : 0);
  return stable_hash(out.bytes());
}

}  // namespace braid::ps
