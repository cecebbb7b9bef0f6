#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>

#include "input.h"
#include "precopy/left_out_file.h"
#include "precopy/page_sink.h"
#include "precopy/pagemap_image.h"
#include "precopy/pages_file.h"
#include "precopy/pages_index.h"

// The files of an image that say what is in a program's memory. A host takes them from another host, or from a store.
//
//   input = kind:8 size:8 file[]
//     kind & 3 = 0   ferry-left-out
//                1   ferry-pages-PID-LAYER, in pieces of 16 * size + 1 bytes; every other page is wanted
//                2   ferry-index-PID
//                3   pagemap-PID.img, of CRIU's
namespace ferry::fuzz {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kMost = 1 << 20;  // bytes of pages that were copied ahead
constexpr std::uint64_t kWanted = 8;      // the first pages of a process: every other one is wanted
constexpr std::int32_t kProcess = 7;

class Folder {
 public:
  Folder() {
    char path[] = "/tmp/ferry-memory-XXXXXX";
    require(::mkdtemp(path) != nullptr, "a folder can be made");
    path_ = path;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

  void write(const std::string& name, const Bytes& bytes) const {
    std::ofstream file(path_ + "/" + name, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
  }
  std::string read(const std::string& name) const {
    std::ifstream file(path_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

 private:
  std::string path_;
};

// False: it was refused.
template <typename Step>
bool is_taken(Step step) {
  try {
    step();
  } catch (const std::runtime_error&) {
    return false;
  }
  return true;
}

void read_left_out(const Folder& folder, const Bytes& file) {
  folder.write(precopy::kLeftOutFile, file);
  std::map<std::int32_t, precopy::PageRanges> pages;
  if (!is_taken([&] { pages = precopy::read_left_out(folder.path(), kMost); })) return;
  std::uint64_t bytes = 0;
  for (const auto& [process, ranges] : pages) bytes += ranges.bytes();
  require(bytes <= kMost, "no more pages are left out than were copied ahead");
  precopy::write_left_out(folder.path(), pages);
  require(precopy::read_left_out(folder.path(), bytes) == pages,
          "what is left out is read as it was written");
}

struct Sink : precopy::PageSink {
  void send_pages(std::int32_t process, const precopy::PageRanges& ranges,
                  std::span<const std::byte> content) override {
    require(process == kProcess, "the pages are of the process");
    require(content.size() == ranges.bytes() && content.size() <= kMostPages * precopy::kPage,
            "all pages have their content");
    for (const auto& [start, end] : ranges) {
      require(wanted.contains(start, end),
              "only wanted pages are handed on, and each of them once");
      wanted.remove(start, end);
    }
  }
  void send_kept(std::int32_t, const precopy::PageRanges&) override {
    require(false, "nothing is forgotten");
  }
  void set_floor(double) override { require(false, "nobody waits"); }
  std::chrono::nanoseconds end_round() override {
    require(false, "there are no rounds");
    return {};
  }

  precopy::PageRanges wanted;
};

void read_pages(const Bytes& file, std::size_t piece) {
  Sink sink;
  for (std::uint64_t page = 0; page < kWanted; page += 2) {
    sink.wanted.add(page * precopy::kPage, (page + 1) * precopy::kPage);
  }
  precopy::PagesReader reader({kProcess, 0}, sink.wanted, sink);
  const bool is_whole = is_taken([&] {
    for (std::size_t at = 0; at < file.size(); at += piece) {
      reader.add(std::span(file).subspan(at, std::min(piece, file.size() - at)));
    }
    reader.end();
  });
  require(!is_whole || sink.wanted.empty(), "a whole file has all wanted pages");
}

void read_index(const Bytes& file) {
  precopy::PagesIndex index;
  if (!is_taken([&] { index = precopy::PagesIndex::parse(file, "the index"); })) return;
  std::uint64_t bytes = 0;
  // An index can claim four thousand million layers.
  for (std::uint32_t layer = 0; layer < std::min(index.layers(), 16u); ++layer) {
    const auto pages = index.of_layer(layer);
    bytes += pages.bytes();
    for (const auto& [start, end] : pages) {
      const auto page = index.find(end - precopy::kPage);
      require(page && page->layer == layer, "each page is found where it is");
    }
  }
  require(index.layers() > 16 || bytes == index.bytes(), "each page is in a layer");
  require(precopy::PagesIndex::parse(index.file(), "the index").file() == index.file(),
          "an index is read as it was written");
}

void read_pagemap(const Folder& folder, const Bytes& file) {
  constexpr char kName[] = "pagemap-7.img";
  folder.write(kName, file);
  if (!is_taken([&] { precopy::let_criu_restore(folder.path()); })) return;
  const std::string changed = folder.read(kName);
  require(changed.size() == file.size(), "the image keeps its size");
  require(is_taken([&] { precopy::let_criu_restore(folder.path()); }),
          "what was changed is an image");
  require(folder.read(kName) == changed, "CRIU leaves no page to the server any more");
}

void run(Input input) {
  static const Folder folder;
  const unsigned kind = input.byte() & 3;
  const std::size_t piece = 16 * std::size_t{input.byte()} + 1;
  const Bytes file = input.rest();
  switch (kind) {
    case 0: return read_left_out(folder, file);
    case 1: return read_pages(file, piece);
    case 2: return read_index(file);
    default: return read_pagemap(folder, file);
  }
}

}  // namespace
}  // namespace ferry::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ferry::fuzz::run({data, size});
  return 0;
}
