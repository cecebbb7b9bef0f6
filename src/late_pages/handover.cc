#include "late_pages/handover.h"

#include <cstring>
#include <stdexcept>

namespace ferry::late_pages {
namespace {

struct Head {
  std::uint32_t magic, version;
};
struct ProcessHead {
  std::uint32_t pid, zero;
  std::uint64_t ranges;
};
struct RangeInFile {
  std::uint64_t start, end;
};

template <typename Part>
void append(std::vector<std::byte>& to, const Part& part) {
  const auto bytes = std::as_bytes(std::span(&part, 1));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

template <typename Part>
Part cut(std::span<const std::byte>& from) {
  Part part;
  if (from.size() < sizeof part)
    throw std::runtime_error("the description of the pages is cut off");
  std::memcpy(&part, from.data(), sizeof part);
  from = from.subspan(sizeof part);
  return part;
}

bool is_range(const RangeInFile& range) {
  return range.start < range.end && range.end <= precopy::kAddressEnd &&
         (range.start | range.end) % precopy::kPage == 0;
}

}  // namespace

std::vector<std::byte> describe(const std::vector<Described>& processes) {
  std::vector<std::byte> description;
  append(description, Head{kMagic, kVersion});
  for (const auto& [pid, pages] : processes) {
    append(description, ProcessHead{static_cast<std::uint32_t>(pid), 0, pages.count()});
    for (const auto& [start, end] : pages) append(description, RangeInFile{start, end});
  }
  return description;
}

std::vector<Described> parse_description(std::span<const std::byte> description) {
  const auto head = cut<Head>(description);
  if (head.magic != kMagic || head.version != kVersion) {
    throw std::runtime_error("the description of the pages is of another version");
  }
  std::vector<Described> processes;
  while (!description.empty()) {
    const auto process = cut<ProcessHead>(description);
    auto& described = processes.emplace_back(Described{static_cast<pid_t>(process.pid), {}});
    for (std::uint64_t i = 0; i < process.ranges; ++i) {
      const auto range = cut<RangeInFile>(description);
      if (!is_range(range)) throw std::runtime_error("the description of the pages has no pages");
      described.pages.add(range.start, range.end);
    }
  }
  return processes;
}

}  // namespace ferry::late_pages
