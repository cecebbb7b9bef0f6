#include "host/timeline/criu_log.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/failure.h"

namespace ferry::host {
namespace {

using std::chrono::microseconds;

constexpr microseconds kShortest{100};
constexpr std::size_t kMostSpans = 2000, kLongestLine = 160;

struct Line {
  microseconds at;
  std::string text;
};

// Nothing: it has no time, and goes on with what the last one says.
std::optional<Line> parse(const std::string& line) {
  if (!line.starts_with('(')) return std::nullopt;
  char* rest = nullptr;
  const double seconds = std::strtod(line.c_str() + 1, &rest);
  if (*rest != ')' || !(seconds >= 0 && seconds < 1e6)) return std::nullopt;
  const auto first =
      line.find_first_not_of(" \t", static_cast<std::size_t>(rest + 1 - line.c_str()));
  if (first == line.npos) return std::nullopt;
  std::string text = line.substr(first, kLongestLine);
  std::replace(text.begin(), text.end(), '\t', ' ');
  return Line{microseconds(static_cast<std::int64_t>(seconds * 1e6 + 0.5)), printable(text)};
}

}  // namespace

void add_log(std::istream& log, const std::string& script, std::vector<Timeline::Span>* spans) {
  const auto ran = std::find_if(spans->begin(), spans->end(), [&](const Timeline::Span& span) {
    return span.lane == kScriptLane && span.name == script;
  });
  if (ran == spans->end()) return;
  const auto began = ran->begin;
  const std::string anchor = "Running " + script + " scripts";
  std::optional<microseconds> anchored;
  std::vector<std::pair<Line, microseconds>> long_ones;  // with their ends
  std::optional<Line> last;
  for (std::string text; std::getline(log, text) && long_ones.size() < kMostSpans;) {
    auto line = parse(text);
    if (!line) continue;
    if (!anchored && line->text.find(anchor) != std::string::npos) anchored = line->at;
    const auto at = line->at;
    if (last && at - last->at >= kShortest) long_ones.emplace_back(std::move(*last), at);
    last = std::move(line);
  }
  if (!anchored) return;
  for (auto& [line, end] : long_ones) {
    spans->push_back(
        {kLogLane, std::move(line.text), began + (line.at - *anchored), began + (end - *anchored)});
  }
}

}  // namespace ferry::host
