#include "precopy/pages_index.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace ferry::precopy {
namespace {

constexpr std::string_view kIndexPrefix = "ferry-index-";
constexpr std::uint32_t kIndexMagic = 0x58444946;  // "FIDX"
constexpr std::uint32_t kIndexVersion = 1;

struct IndexHead {
  std::uint32_t magic, version, layers, zero;
  std::uint64_t ranges;
};
struct IndexRange {
  std::uint64_t start, end;
  std::uint32_t layer, zero;
};

// Takes what has the layout of the file from its begin.
template <typename Each>
bool take(std::span<const std::byte>* file, Each* out) {
  if (file->size() < sizeof *out) return false;
  std::memcpy(out, file->data(), sizeof *out);
  *file = file->subspan(sizeof *out);
  return true;
}

template <typename Each>
void put(std::vector<std::byte>* file, std::span<const Each> all) {
  const auto bytes = std::as_bytes(all);
  file->insert(file->end(), bytes.begin(), bytes.end());
}

}  // namespace

void PagesIndex::add(std::uint64_t address, const Page& page) {
  layers_ = std::max(layers_, page.layer + 1);
  if (!ranges_.empty() && ranges_.back().end == address && ranges_.back().layer == page.layer) {
    ranges_.back().end += kPage;
  } else {
    ranges_.push_back({address, address + kPage, page.layer, digests_.size()});
  }
  digests_.push_back(page.digest);
}

std::optional<PagesIndex::Page> PagesIndex::find(std::uint64_t address) const {
  const auto behind =
      std::upper_bound(ranges_.begin(), ranges_.end(), address,
                       [](std::uint64_t at, const Range& range) { return at < range.end; });
  if (behind == ranges_.end() || address < behind->start) return std::nullopt;
  return Page{behind->layer, digests_[behind->first + (address - behind->start) / kPage]};
}

PageRanges PagesIndex::of_layer(std::uint32_t layer) const {
  PageRanges pages;
  for (const auto& range : ranges_) {
    if (range.layer == layer) pages.add(range.start, range.end);
  }
  return pages;
}

std::uint64_t PagesIndex::bytes() const {
  return digests_.size() * kPage;
}

std::vector<std::byte> PagesIndex::file() const {
  const IndexHead head{kIndexMagic, kIndexVersion, layers_, 0, ranges_.size()};
  std::vector<IndexRange> ranges;
  for (const auto& range : ranges_) ranges.push_back({range.start, range.end, range.layer, 0});
  std::vector<std::byte> file;
  put(&file, std::span(&head, 1));
  put(&file, std::span(std::as_const(ranges)));
  put(&file, std::span(digests_));
  return file;
}

PagesIndex PagesIndex::parse(std::span<const std::byte> file, const std::string& name) {
  const auto malformed = [&] { return std::runtime_error(name + " is no index of pages"); };
  IndexHead head{};
  if (!take(&file, &head) || head.magic != kIndexMagic || head.version != kIndexVersion ||
      head.ranges > file.size() / sizeof(IndexRange)) {
    throw malformed();
  }
  PagesIndex index;
  std::uint64_t last = 0, pages = 0;
  for (std::uint64_t i = 0; i < head.ranges; ++i) {
    IndexRange range{};
    take(&file, &range);
    if (range.start < last || range.start >= range.end || range.end > kAddressEnd ||
        range.start % kPage != 0 || range.end % kPage != 0 || range.layer >= head.layers) {
      throw malformed();
    }
    index.ranges_.push_back({range.start, range.end, range.layer, pages});
    pages += (range.end - range.start) / kPage;
    last = range.end;
  }
  if (file.size() % sizeof(PageDigest) != 0 || file.size() / sizeof(PageDigest) != pages) {
    throw malformed();
  }
  index.digests_.resize(pages);
  if (pages > 0) std::memcpy(index.digests_.data(), file.data(), file.size());
  index.layers_ = head.layers;
  return index;
}

std::string index_file(std::int32_t process) {
  return std::string(kIndexPrefix) + std::to_string(process);
}

std::optional<std::int32_t> process_of_index_file(const std::string& name) {
  if (!name.starts_with(kIndexPrefix)) return std::nullopt;
  std::int32_t process = 0;
  std::from_chars(name.data() + kIndexPrefix.size(), name.data() + name.size(), process);
  if (process <= 0 || name != index_file(process)) return std::nullopt;
  return process;
}

}  // namespace ferry::precopy
