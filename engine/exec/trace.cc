#include "engine/exec/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <ostream>

#include "engine/exec/json_text.h"

namespace braid {

TraceTrack::TraceTrack(std::string name, std::size_t capacity, const std::atomic<bool>& recording)
    : name_(std::move(name)), capacity_(capacity), recording_(recording) {}

void TraceTrack::add(const TraceSlice& slice) {
  if (!recording()) return;
  std::lock_guard lock(mu_);
  if (ring_.empty()) ring_.resize(capacity_);
  ring_[next_++ % ring_.size()] = slice;
}

std::vector<TraceSlice> TraceTrack::slices() const {
  std::lock_guard lock(mu_);
  std::vector<TraceSlice> result;
  const std::uint64_t kept = std::min<std::uint64_t>(next_, ring_.size());
  for (std::uint64_t i = next_ - kept; i < next_; ++i) result.push_back(ring_[i % ring_.size()]);
  return result;
}

Trace::Trace(std::size_t slices_per_track, bool recording)
    : capacity_(std::max<std::size_t>(slices_per_track, 1)), recording_(recording) {}

Trace::Trace(Trace& whole, std::string prefix)
    : whole_(&whole), prefix_(std::move(prefix)), recording_(false) {}

TraceTrack& Trace::track(const std::string& name) {
  if (whole_) return whole_->track(prefix_ + name);
  std::lock_guard lock(mu_);
  for (TraceTrack& track : tracks_)
    if (track.name() == name) return track;
  return tracks_.emplace_back(name, capacity_, recording_);
}

const char* Trace::intern(std::string_view name) {
  if (whole_) return whole_->intern(name);
  std::lock_guard lock(mu_);
  const auto found = names_.find(name);
  return (found != names_.end() ? found : names_.emplace(name).first)->c_str();
}

void Trace::describe(const char* name, std::string nodes) {
  if (nodes.empty()) return;
  if (whole_) return whole_->describe(name, std::move(nodes));
  std::lock_guard lock(mu_);
  nodes_[name] = std::move(nodes);
}

namespace {

const char* category(TraceSlice::Kind kind) {
  switch (kind) {
    case TraceSlice::Kind::Work:
      return "work";
    case TraceSlice::Kind::Wait:
      return "wait";
    case TraceSlice::Kind::Async:
      return "async";
  }
  return "";
}

/// The rows of one track: each slice on the first row that is free at its begin.
std::vector<int> rows_of(const std::vector<TraceSlice>& slices) {
  std::vector<int> rows(slices.size(), 0);
  std::vector<TraceTime> free_at;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    auto row =
        std::find_if(free_at.begin(), free_at.end(), [&](TraceTime t) { return t <= slices[i].begin; });
    if (row == free_at.end()) row = free_at.insert(free_at.end(), slices[i].begin);
    *row = slices[i].end;
    rows[i] = static_cast<int>(row - free_at.begin());
  }
  return rows;
}

class Writer {
 public:
  Writer(std::ostream& out, TraceTime epoch) : out_(out), epoch_(epoch) {}

  double us(TraceTime t) const { return std::chrono::duration<double, std::micro>(t - epoch_).count(); }
  void event(const std::string& json) {
    out_ << (first_ ? "\n" : ",\n") << json;
    first_ = false;
  }
  void thread_name(int tid, const std::string& name) {
    event(fmt::format(R"({{"ph":"M","pid":1,"tid":{},"name":"thread_name","args":{{"name":{}}}}})", tid,
                      json_text(name)));
    event(fmt::format(
        R"({{"ph":"M","pid":1,"tid":{0},"name":"thread_sort_index","args":{{"sort_index":{0}}}}})", tid));
  }
  void slice(int tid, const TraceSlice& s, const std::string* nodes) {
    event(fmt::format(
        R"({{"ph":"X","pid":1,"tid":{},"ts":{:.3f},"dur":{:.3f},"cat":"{}","name":{},"args":{{"step":{}{}}}}})",
        tid, us(s.begin), us(s.end) - us(s.begin), category(s.kind), json_text(s.name), s.step,
        nodes ? ",\"nodes\":" + json_text(*nodes) : ""));
  }
  void flow(char phase, std::uint64_t id, int tid, TraceTime at) {
    event(fmt::format(R"({{"ph":"{}","pid":1,"tid":{},"ts":{:.3f},"cat":"event","name":"event","id":{}{}}})",
                      phase, tid, us(at), id, phase == 'f' ? R"(,"bp":"e")" : ""));
  }

 private:
  std::ostream& out_;
  const TraceTime epoch_;
  bool first_ = true;
};

/// From the slices that signal events to those that wait for them.
class Arrows {
 public:
  void add(const TraceSlice& slice, int tid) {
    if (slice.flow == 0) return;
    if (slice.kind == TraceSlice::Kind::Wait)
      targets_.push_back({slice.flow, {tid, slice.end}});
    else
      sources_[slice.flow] = {tid, slice.end};
  }

  void write(Writer& writer) const {
    // An arrow begins inside the slice that it leaves, so a nanosecond before its end.
    std::uint64_t arrow = 0;
    for (const auto& [flow, target] : targets_) {
      const auto source = sources_.find(flow);
      if (source == sources_.end()) continue;  // overwritten since
      ++arrow;
      writer.flow('s', arrow, source->second.tid, source->second.time - std::chrono::nanoseconds(1));
      writer.flow('f', arrow, target.tid, target.time - std::chrono::nanoseconds(1));
    }
  }

 private:
  struct End {
    int tid;
    TraceTime time;
  };
  std::map<std::uint64_t, End> sources_;
  std::vector<std::pair<std::uint64_t, End>> targets_;
};

}  // namespace

void Trace::write(std::ostream& out, const std::string& process) const { write(out, process, Window{}); }

void Trace::write(std::ostream& out, const std::string& process, const Window& window) const {
  if (whole_) return whole_->write(out, process, window);
  std::vector<const TraceTrack*> tracks;
  std::map<const void*, std::string> nodes;
  {
    std::lock_guard lock(mu_);
    nodes = nodes_;
    for (const TraceTrack& track : tracks_) tracks.push_back(&track);
  }
  // A sampled device's slices have no step: they say 0.
  const auto outside = [&](const TraceSlice& slice) {
    return slice.begin < window.begin || slice.end > window.end ||
           (slice.step != 0 && (slice.step < window.first_step || slice.step > window.last_step));
  };
  out << fmt::format(
      R"({{"displayTimeUnit":"ms","braid":{{"process":{},"steady_epoch_us":{:.3f}}},"traceEvents":[)",
      json_text(process), std::chrono::duration<double, std::micro>(epoch_.time_since_epoch()).count());
  Writer writer(out, epoch_);
  writer.event(
      fmt::format(R"({{"ph":"M","pid":1,"name":"process_name","args":{{"name":{}}}}})", json_text(process)));

  Arrows arrows;
  int next_tid = 1;
  for (const TraceTrack* track : tracks) {
    std::vector<TraceSlice> slices = track->slices();
    std::erase_if(slices, outside);
    std::stable_sort(slices.begin(), slices.end(),
                     [](const TraceSlice& a, const TraceSlice& b) { return a.begin < b.begin; });
    const std::vector<int> rows = rows_of(slices);
    const int row_count = rows.empty() ? 1 : *std::max_element(rows.begin(), rows.end()) + 1;
    for (int row = 0; row < row_count; ++row)
      writer.thread_name(next_tid + row,
                         row == 0 ? track->name() : fmt::format("{} #{}", track->name(), row + 1));
    for (std::size_t i = 0; i < slices.size(); ++i) {
      const int tid = next_tid + rows[i];
      const auto described = nodes.find(slices[i].name);
      writer.slice(tid, slices[i], described == nodes.end() ? nullptr : &described->second);
      arrows.add(slices[i], tid);
    }
    next_tid += row_count;
  }
  arrows.write(writer);
  out << "\n]}\n";
}

}  // namespace braid
