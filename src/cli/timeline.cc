#include "cli/timeline.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "cli/files.h"
#include "ferry.pb.h"

namespace ferry::cli {
namespace {

using nlohmann::ordered_json;

constexpr mode_t kMode = 0644;

// How a viewer calls a process, or a thread.
ordered_json name_of(const char* what, int process, int thread, const std::string& name) {
  return {
      {"name", what}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

}  // namespace

std::string trace_of(const Timeline& timeline) {
  auto events = ordered_json::array();
  auto first = std::numeric_limits<std::int64_t>::max();
  for (const auto& span : timeline) first = std::min(first, span.begin_us());
  std::map<std::string, int> hosts;
  std::map<std::pair<std::string, std::string>, int> lanes;
  for (const auto& span : timeline) {
    const auto [host, is_new_host] = hosts.emplace(span.host(), static_cast<int>(hosts.size()) + 1);
    if (is_new_host) events.push_back(name_of("process_name", host->second, 0, span.host()));
    const auto [lane, is_new_lane] =
        lanes.emplace(std::pair(span.host(), span.lane()), static_cast<int>(lanes.size()) + 1);
    if (is_new_lane) {
      events.push_back(name_of("thread_name", host->second, lane->second, span.lane()));
    }
    events.push_back({{"name", span.name()},
                      {"ph", "X"},
                      {"pid", host->second},
                      {"tid", lane->second},
                      {"ts", span.begin_us() - first},
                      {"dur", span.end_us() - span.begin_us()}});
  }
  return ordered_json{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}}.dump(1) + "\n";
}

void need_place_for_timeline(const std::string& path) {
  const auto folder = std::filesystem::absolute(path).parent_path();
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    throw cannot("cannot write into " + folder.string());
  if (std::filesystem::exists(path) && !std::filesystem::is_regular_file(path)) {
    throw Failure(path + " is no ordinary file; name another");
  }
}

void write_timeline(const std::string& path, const Timeline& timeline) {
  write_file(path, trace_of(timeline), kMode);
}

}  // namespace ferry::cli
