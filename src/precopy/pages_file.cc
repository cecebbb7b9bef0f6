#include "precopy/pages_file.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace ferry::precopy {
namespace {

constexpr std::string_view kPagesPrefix = "ferry-pages-";

struct PagesHead {
  std::uint32_t magic, version;
  std::uint64_t ranges;
};
struct PagesRange {
  std::uint64_t start, end;
};

}  // namespace

std::string pages_file(const Layer& layer) {
  return std::string(kPagesPrefix) + std::to_string(layer.process) + '-' +
         std::to_string(layer.number);
}

bool has_name_of_pages(const std::string& name) {
  return name.starts_with(kPagesPrefix);
}

std::optional<Layer> layer_of_pages_file(const std::string& name) {
  if (!has_name_of_pages(name)) return std::nullopt;
  const char* last = name.data() + name.size();
  Layer layer;
  const auto [dash, error] =
      std::from_chars(name.data() + kPagesPrefix.size(), last, layer.process);
  if (error != std::errc() || dash == last || *dash != '-') return std::nullopt;
  std::from_chars(dash + 1, last, layer.number);
  if (layer.process <= 0 || name != pages_file(layer)) return std::nullopt;
  return layer;
}

void write_pages(const PageStore& store, std::int32_t process, const PageRanges& pages,
                 const std::function<void(std::span<const std::byte>)>& write) {
  const PagesHead head{kPagesMagic, kPagesVersion, pages.count()};
  write(std::as_bytes(std::span(&head, 1)));
  std::vector<PagesRange> ranges;
  ranges.reserve(pages.count());
  for (const auto& [start, end] : pages) ranges.push_back({start, end});
  write(std::as_bytes(std::span(ranges)));
  for (const auto& [start, end] : pages) {
    for (std::uint64_t at = start; at < end;) {
      const auto content = store.get(process, at, std::min(end, at + PageSink::kMostPages * kPage));
      write(content);
      at += content.size();
    }
  }
}

bool PagesReader::read_head() {
  PagesHead head;
  if (has_head_ || buffer_.size() - used_ < sizeof head) return false;
  std::memcpy(&head, buffer_.data() + used_, sizeof head);
  used_ += sizeof head;
  if (head.magic != kPagesMagic || head.version != kPagesVersion) {
    throw std::runtime_error(pages_file(layer_) + " is no file of pages that this Ferry reads");
  }
  ranges_to_come_ = head.ranges;
  has_head_ = true;
  return true;
}

bool PagesReader::read_range() {
  PagesRange range;
  if (ranges_to_come_ == 0 || buffer_.size() - used_ < sizeof range) return false;
  std::memcpy(&range, buffer_.data() + used_, sizeof range);
  used_ += sizeof range;
  if (range.start < last_ || range.start >= range.end || range.end > kAddressEnd ||
      range.start % kPage != 0 || range.end % kPage != 0) {
    throw std::runtime_error(pages_file(layer_) + " has a malformed range of pages");
  }
  pages_.add(range.start, range.end);
  last_ = range.end;
  --ranges_to_come_;
  return true;
}

// Hands on as many pages as may go together, if their content has come.
bool PagesReader::send_frame() {
  if (!has_head_ || ranges_to_come_ > 0 || pages_.empty()) return false;
  const std::uint64_t wanted =
      std::min<std::uint64_t>(pages_.bytes(), PageSink::kMostPages * kPage);
  if (buffer_.size() - used_ < wanted) return false;
  PageRanges frame;
  for (const auto& [start, end] : pages_) {
    if (frame.bytes() == wanted) break;
    frame.add(start, std::min(end, start + (wanted - frame.bytes())));
  }
  send(frame, std::span(buffer_).subspan(used_, wanted));
  used_ += wanted;
  pages_.remove(frame);
  return true;
}

// `content`: of all pages of the frame.
void PagesReader::send(const PageRanges& frame, std::span<const std::byte> content) {
  const PageRanges pages = frame.within(wanted_);
  if (pages.empty()) return;
  wanted_.remove(pages);
  if (pages == frame) return to_.send_pages(layer_.process, pages, content);
  std::vector<std::byte> some;
  some.reserve(pages.bytes());
  auto range = frame.begin();
  std::uint64_t offset = 0;  // of the range in `content`
  for (const auto& [start, end] : pages) {
    for (; range->second <= start; ++range) offset += range->second - range->first;
    const auto piece = content.subspan(offset + start - range->first, end - start);
    some.insert(some.end(), piece.begin(), piece.end());
  }
  to_.send_pages(layer_.process, pages, some);
}

void PagesReader::add(std::span<const std::byte> piece) {
  buffer_.insert(buffer_.end(), piece.begin(), piece.end());
  while (read_head() || read_range() || send_frame()) {
  }
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(used_));
  used_ = 0;
  if (has_head_ && ranges_to_come_ == 0 && pages_.empty() && !buffer_.empty()) {
    throw std::runtime_error(pages_file(layer_) + " has more than its pages");
  }
}

void PagesReader::end() const {
  if (!has_head_ || ranges_to_come_ > 0 || !pages_.empty()) {
    throw std::runtime_error(pages_file(layer_) + " ends too early");
  }
  if (!wanted_.empty()) {
    throw std::runtime_error(pages_file(layer_) + " lacks pages that should be in it");
  }
}

}  // namespace ferry::precopy
