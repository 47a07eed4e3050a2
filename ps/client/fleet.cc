#include "ps/client/fleet.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/table_row.h"

namespace braid::ps {

void Outstanding::begin() {
  std::lock_guard lock(mutex_);
  ++count_;
}

void Outstanding::end() {
  std::lock_guard lock(mutex_);
  if (--count_ == 0) none_.notify_all();
}

void Outstanding::wait_none(const WaitContext& wait, std::string_view what) {
  std::unique_lock lock(mutex_);
  wait_on(none_, lock, wait, what, [&] { return count_ == 0; });
}

void Fleet::require_tables() const {
  if (!set) throw InvalidArgument("[ps] create_tables comes before pulls and pushes");
}

ErrorPtr Fleet::with_silent_servers(ErrorPtr error) const {
  if (!error || (error->code != ErrorCode::DeadlineExceeded && error->code != ErrorCode::Cancelled))
    return error;
  std::vector<std::string> silent;
  for (const auto& link : links)
    if (std::string text = link->describe_silence(); !text.empty()) silent.push_back(std::move(text));
  if (silent.empty()) return error;
  return make_error(error->code == ErrorCode::Cancelled ? ErrorCode::Cancelled : ErrorCode::Unavailable,
                    fmt::format("[ps] {}; {}", fmt::join(silent, ", "), error->message));
}

std::size_t check_ordered(const Fleet& fleet, const OrderedKeys& keys, const char* what) {
  const auto& tables = fleet.set->sparse;
  for (const int table : keys.tables) {
    if (table < 0 || table >= static_cast<int>(tables.size()))
      throw InvalidArgument(fmt::format("[ps] {}: there is no sparse table {}", what, table));
    const auto &spec = tables[static_cast<std::size_t>(table)],
               &first = tables[static_cast<std::size_t>(keys.tables[0])];
    if (spec.dim != first.dim)
      throw InvalidArgument(fmt::format("[ps] {}: tables '{}' and '{}' have rows of {} and {} elements", what,
                                        first.name, spec.name, first.dim, spec.dim));
  }
  if (keys.tables.empty() || keys.counts.size() != keys.tables.size() * fleet.links.size())
    throw InvalidArgument(fmt::format("[ps] {}: {} counts for {} tables on {} servers", what,
                                      keys.counts.size(), keys.tables.size(), fleet.links.size()));
  for (const std::int64_t count : keys.counts)
    if (count < 0) throw InvalidArgument(fmt::format("[ps] {}: a table has {} keys", what, count));
  return static_cast<std::size_t>(tables[static_cast<std::size_t>(keys.tables[0])].dim);
}

std::size_t row_width_of(const Fleet& fleet, const OrderedKeys& keys) {
  const auto its = [&](int table) {
    const SparseTableSpec& spec = fleet.set->sparse[static_cast<std::size_t>(table)];
    return static_cast<std::size_t>(table_row_width(fleet.set->optimizer_of(spec.group), spec.dim));
  };
  for (const int table : keys.tables)
    if (its(table) != its(keys.tables[0]))
      throw InvalidArgument("[ps] pull: rows with slots are of tables that have as many");
  return its(keys.tables[0]);
}

Join::Join(Fleet& fleet, std::size_t calls, const WaitContext& wait, PsClient::Done done)
    : fleet_(fleet), deadline_(wait.deadline), done_(std::move(done)), remaining_(calls) {
  fleet_.requests.begin();
  if (wait.stop.stop_possible()) on_caller_stop_.emplace(wait.stop, [this] { stop_.request_stop(); });
}

void Join::ended(ErrorPtr error) {
  bool first_error = false;
  bool last = false;
  {
    std::lock_guard lock(mutex_);
    first_error = error && !error_;
    if (first_error) error_ = std::move(error);
    last = --remaining_ == 0;
  }
  if (!last) {
    if (first_error) stop_.request_stop();
    return;
  }
  on_caller_stop_.reset();
  done_(fleet_.with_silent_servers(std::move(error_)));
  done_ = nullptr;
  fleet_.requests.end();
}

}  // namespace braid::ps
