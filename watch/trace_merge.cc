#include "watch/trace_merge.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>

#include "base/error.h"

namespace braid::watch {
namespace {

using TraceJson = nlohmann::ordered_json;

constexpr double kInsideUs = 0.001;  // an arrow's end lies inside of its slice

struct Slice {
  std::size_t process;
  int tid;
  std::string name;
  std::uint64_t step;
  double begin, end;
};

class Merger {
 public:
  explicit Merger(const std::vector<ProcessTrace>& traces) : traces_(traces) {}

  MergedTrace merge() {
    std::vector<TraceJson> all;
    for (const ProcessTrace& each : traces_) all.push_back(parse(each));
    double first = 1e300;
    for (std::size_t p = 0; p < all.size(); ++p) {
      const double base = epoch_of(all[p], p);
      for (const TraceJson& event : all[p]["traceEvents"])
        if (event.value("ph", "") == "X") first = std::min(first, base + event.value("ts", 0.0));
    }
    if (first == 1e300) first = 0;
    for (std::size_t p = 0; p < all.size(); ++p) add(all[p], p, epoch_of(all[p], p) - first);
    draw_collectives();
    if (std::all_of(traces_.begin(), traces_.end(), [](const ProcessTrace& t) { return t.synchronous; }))
      draw_rounds();
    TraceJson out{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events_)}};
    merged_.json = out.dump(-1, ' ', false, TraceJson::error_handler_t::replace);
    return std::move(merged_);
  }

 private:
  static TraceJson parse(const ProcessTrace& from) {
    TraceJson json = TraceJson::parse(from.json, nullptr, false);
    if (!json.is_object() || !json.contains("traceEvents") || !json["traceEvents"].is_array())
      throw InvalidArgument("[trace] what " + from.task + " sent is no trace");
    return json;
  }

  double epoch_of(const TraceJson& json, std::size_t process) const {
    double epoch = 0;
    if (json.contains("braid") && json["braid"].is_object())
      epoch = json["braid"].value("steady_epoch_us", 0.0);
    return epoch + traces_[process].clock_us;
  }

  void add(TraceJson& json, std::size_t process, double shift) {
    const int pid = static_cast<int>(process) + 1;
    std::map<int, std::string> tracks;
    for (const TraceJson& event : json["traceEvents"])
      if (event.value("ph", "") == "M" && event.value("name", "") == "thread_name" && event.contains("args"))
        tracks[event.value("tid", 0)] = event["args"].value("name", "");
    for (TraceJson& event : json["traceEvents"]) {
      if (!event.is_object()) continue;
      event["pid"] = pid;
      const std::string kind = event.value("ph", "");
      if (kind == "M" && event.value("name", "") == "process_name")
        event["args"] = {{"name", traces_[process].task}};
      if (event.contains("ts")) event["ts"] = event.value("ts", 0.0) + shift;
      if ((kind == "s" || kind == "f") && event.contains("id"))
        event["id"] = event.value("id", std::uint64_t{0}) + (static_cast<std::uint64_t>(pid) << 40);
      if (kind == "X") note(event, process, tracks[event.value("tid", 0)]);
      events_.push_back(std::move(event));
    }
    events_.push_back(
        {{"ph", "M"}, {"pid", pid}, {"name", "process_sort_index"}, {"args", {{"sort_index", pid}}}});
  }

  void note(const TraceJson& event, std::size_t process, const std::string& track) {
    ++merged_.slices;
    if (event.value("cat", "") == "wait") return;
    std::uint64_t step = 0;
    if (event.contains("args")) step = event["args"].value("step", std::uint64_t{0});
    const double begin = event.value("ts", 0.0);
    Slice slice{process, event.value("tid", 0),          event.value("name", ""), step,
                begin,   begin + event.value("dur", 0.0)};
    std::string lane = track.substr(0, track.find(" #"));
    lane = lane.substr(lane.rfind(' ') + 1);
    if (lane == "comm")
      (step > 0 || track.rfind(' ') == std::string::npos ? comm_ : device_comm_).push_back(slice);
    if (lane == "pull") pulls_.push_back(slice);
    if (lane == "push") pushes_.push_back(slice);
  }

  void arrow(const Slice& from, const Slice& to, const char* name) {
    const double begin = from.begin, end = std::max(to.end - kInsideUs, to.begin);
    if (end < begin) {
      merged_.worst_us = std::max(merged_.worst_us, begin - end);
      return;
    }
    const std::uint64_t id = (std::uint64_t{1} << 60) + ++merged_.arrows;
    const auto one = [&](const char* kind, const Slice& at, double ts) {
      TraceJson event{{"ph", kind},   {"pid", at.process + 1}, {"tid", at.tid}, {"ts", ts},
                      {"cat", "job"}, {"name", name},          {"id", id}};
      if (*kind == 'f') event["bp"] = "e";
      events_.push_back(std::move(event));
    };
    one("s", from, begin);
    one("f", to, end);
  }

  void draw_group(const std::vector<const Slice*>& group) {
    const Slice* latest = *std::max_element(
        group.begin(), group.end(), [](const Slice* a, const Slice* b) { return a->begin < b->begin; });
    for (const Slice* each : group)
      if (each->process != latest->process) arrow(*latest, *each, "collective");
  }

  void draw_collectives() {
    std::map<std::pair<std::string, std::uint64_t>, std::vector<const Slice*>> groups;
    for (const Slice& slice : comm_) groups[{slice.name, slice.step}].push_back(&slice);
    for (const auto& [key, group] : groups)
      if (group.size() == traces_.size() && group.size() > 1) draw_group(group);
    // A device's slices have no steps: those of one collective overlap in time.
    for (const Slice& slice : device_comm_) {
      if (slice.process != 0) continue;
      std::vector<const Slice*> group{&slice};
      for (std::size_t p = 1; p < traces_.size(); ++p) {
        const auto other = std::find_if(device_comm_.begin(), device_comm_.end(), [&](const Slice& each) {
          return each.process == p && each.name == slice.name && each.begin < slice.end &&
                 slice.begin < each.end;
        });
        if (other != device_comm_.end()) group.push_back(&*other);
      }
      if (group.size() == traces_.size() && group.size() > 1) draw_group(group);
    }
  }

  /// The latest slice of each (process, step).
  static std::map<std::pair<std::uint64_t, std::size_t>, const Slice*> latest(
      const std::vector<Slice>& slices) {
    std::map<std::pair<std::uint64_t, std::size_t>, const Slice*> found;
    for (const Slice& slice : slices) {
      const Slice*& at = found[{slice.step, slice.process}];
      if (!at || at->end < slice.end) at = &slice;
    }
    return found;
  }

  void draw_rounds() {
    const auto pulls = latest(pulls_);
    for (const auto& [key, push] : latest(pushes_))
      for (const auto& [where, pull] : pulls)
        if (where.first == key.first + 1 && where.second != key.second) arrow(*push, *pull, "push to pull");
  }

  const std::vector<ProcessTrace>& traces_;
  TraceJson events_ = TraceJson::array();
  std::vector<Slice> comm_, device_comm_, pulls_, pushes_;
  MergedTrace merged_;
};

}  // namespace

MergedTrace merge_traces(const std::vector<ProcessTrace>& traces) {
  try {
    return Merger(traces).merge();
  } catch (const TraceJson::exception& error) {
    throw InvalidArgument(std::string("[trace] not the trace of a process of Braid: ") + error.what());
  }
}

}  // namespace braid::watch
