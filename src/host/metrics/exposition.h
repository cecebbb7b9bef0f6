#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// Prometheus' text format, version 0.0.4: families of metrics, each with its samples behind it. This is our own code,
// because Debian's prometheus-cpp would bring along a web server and libcurl.
namespace ferry::host {

class Exposition {
 public:
  enum class Type : std::uint8_t { kCounter, kGauge, kHistogram };
  using Labels = std::vector<std::pair<std::string_view, std::string>>;

  // Begins a family: the samples that are added next are its samples.
  void family(std::string name, Type type, std::string_view help);
  void sample(const Labels& labels, double value) { add({}, labels, value); }
  void sample(double value) { add({}, {}, value); }
  // A family of one sample, without labels.
  void single(std::string name, Type type, std::string_view help, std::uint64_t value) {
    family(std::move(name), type, help);
    sample(static_cast<double>(value));
  }
  // Adds the samples of a histogram. `classes`: upper ends, and how many values are in each class alone.
  void histogram(const std::vector<std::pair<double, std::uint64_t>>& classes, std::uint64_t count,
                 double sum);

  const std::string& text() const { return text_; }

 private:
  void add(std::string_view suffix, const Labels& labels, double value);

  std::string name_, text_;
};

}  // namespace ferry::host
