#include "host/metrics/exposition.h"

#include <fmt/core.h>

namespace ferry::host {
namespace {

const char* name_of(Exposition::Type type) {
  switch (type) {
    case Exposition::Type::kCounter: return "counter";
    case Exposition::Type::kGauge: return "gauge";
    default: return "histogram";
  }
}

std::string escaped(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') text += '\\';
    text += c;
  }
  return text;
}

}  // namespace

void Exposition::family(std::string name, Type type, std::string_view help) {
  name_ = std::move(name);
  text_ += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name_, help, name_of(type));
}

void Exposition::add(std::string_view suffix, const Labels& labels, double value) {
  text_.append(name_).append(suffix);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    text_ +=
        fmt::format("{}{}=\"{}\"", i == 0 ? "{" : ",", labels[i].first, escaped(labels[i].second));
  }
  text_ += fmt::format("{} {}\n", labels.empty() ? "" : "}", value);
}

void Exposition::histogram(const std::vector<std::pair<double, std::uint64_t>>& classes,
                           std::uint64_t count, double sum) {
  std::uint64_t so_far = 0;
  for (const auto& [end, values] : classes) {
    so_far += values;
    add("_bucket", {{"le", fmt::format("{}", end)}}, static_cast<double>(so_far));
  }
  add("_bucket", {{"le", "+Inf"}}, static_cast<double>(count));
  add("_sum", {}, sum);
  add("_count", {}, static_cast<double>(count));
}

}  // namespace ferry::host
