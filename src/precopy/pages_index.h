#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "precopy/page_ranges.h"

namespace ferry::precopy {

using PageDigest = std::array<std::byte, 16>;

// Which pages of a process are in its files of pages (pages_file.h), in which of them each is, and its digest. It
// is a file of the image, too:
//
//   ferry-index-PID = magic:32 version:32 layers:32 0:32 ranges:64 { start:64 end:64 layer:32 0:32 } digests
//                     little-endian; ranges: sorted, and disjoint; digests: of all their pages, one after the other
class PagesIndex {
 public:
  struct Page {
    std::uint32_t layer = 0;
    PageDigest digest{};
  };

  // Adds the page at this address, which is behind all that were added.
  void add(std::uint64_t address, const Page& page);
  // Nothing: it is not in the files.
  std::optional<Page> find(std::uint64_t address) const;
  // The pages of a layer.
  PageRanges of_layer(std::uint32_t layer) const;
  std::uint32_t layers() const { return layers_; }
  std::uint64_t bytes() const;  // of all pages

  std::vector<std::byte> file() const;
  // Throws std::runtime_error, which names `name`: this is no such file.
  static PagesIndex parse(std::span<const std::byte> file, const std::string& name);

 private:
  struct Range {
    std::uint64_t start, end;
    std::uint32_t layer;
    std::uint64_t first;  // index of the digest of its first page
  };

  std::vector<Range> ranges_;  // in order
  std::vector<PageDigest> digests_;
  std::uint32_t layers_ = 0;  // one more than the highest
};

std::string index_file(std::int32_t process);
// Nothing: the file of this name is another one.
std::optional<std::int32_t> process_of_index_file(const std::string& name);

}  // namespace ferry::precopy
