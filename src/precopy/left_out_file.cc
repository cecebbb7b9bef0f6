#include "precopy/left_out_file.h"

#include <fstream>
#include <stdexcept>
#include <utility>

namespace ferry::precopy {
namespace {

struct LeftOutHead {
  std::uint32_t magic, version;
  std::uint64_t processes;
};
struct ProcessHead {
  std::int32_t process;
  std::uint32_t reserved;
  std::uint64_t ranges;
};
struct LeftOutRange {
  std::uint64_t start, end;
};

template <typename T>
void put(std::ofstream& file, const T& value) {
  file.write(reinterpret_cast<const char*>(&value), sizeof value);
}

[[noreturn]] void malformed_left_out(const std::string& path) {
  throw std::runtime_error(path + " does not say which pages were copied ahead");
}

template <typename T>
T take(std::ifstream& file, const std::string& path) {
  T value{};
  if (!file.read(reinterpret_cast<char*>(&value), sizeof value)) malformed_left_out(path);
  return value;
}

}  // namespace

void write_left_out(const std::string& directory, const std::map<std::int32_t, PageRanges>& pages) {
  const std::string path = directory + "/" + kLeftOutFile;
  std::ofstream file(path, std::ios::binary);
  put(file, LeftOutHead{kLeftOutMagic, kLeftOutVersion, pages.size()});
  for (const auto& [process, ranges] : pages) {
    put(file, ProcessHead{process, 0, ranges.count()});
    for (const auto& [start, end] : ranges) put(file, LeftOutRange{start, end});
  }
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path);
}

std::map<std::int32_t, PageRanges> read_left_out(const std::string& directory, std::uint64_t most) {
  const std::string path = directory + "/" + kLeftOutFile;
  std::ifstream file(path, std::ios::binary);
  const LeftOutHead head = take<LeftOutHead>(file, path);
  if (head.magic != kLeftOutMagic || head.version != kLeftOutVersion) malformed_left_out(path);
  std::map<std::int32_t, PageRanges> all;
  std::int32_t last_process = 0;
  for (std::uint64_t i = 0; i < head.processes; ++i) {
    const auto process = take<ProcessHead>(file, path);
    if (process.process <= last_process) malformed_left_out(path);
    last_process = process.process;
    PageRanges pages;
    std::uint64_t last = 0;
    for (std::uint64_t k = 0; k < process.ranges; ++k) {
      const auto range = take<LeftOutRange>(file, path);
      const bool is_next = range.start >= last && range.start < range.end &&
                           range.end <= kAddressEnd && range.start % kPage == 0 &&
                           range.end % kPage == 0;
      if (!is_next) malformed_left_out(path);
      const std::uint64_t bytes = range.end - range.start;
      if (bytes > most) throw std::runtime_error(path + " names more pages than were copied ahead");
      most -= bytes;
      pages.add(range.start, range.end);
      last = range.end;
    }
    all.emplace(process.process, std::move(pages));
  }
  if (file.peek() != std::ifstream::traits_type::eof()) malformed_left_out(path);
  return all;
}

}  // namespace ferry::precopy
