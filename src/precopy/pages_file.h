#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "precopy/page_sink.h"
#include "precopy/page_store.h"

// Pages of a process that CRIU has left out of its image, as a file beside those of the image. There may be several of
// a process, its layers: pages_index.h says which page is in which.
//
//   ferry-pages-PID-LAYER = magic:32 version:32 ranges:64 { start:64 end:64 } content    little-endian; ranges: sorted,
//                           and disjoint; content: the pages of all ranges, one after the other
namespace ferry::precopy {

inline constexpr std::uint32_t kPagesMagic = 0x47415046;  // "FPAG"
inline constexpr std::uint32_t kPagesVersion = 1;

struct Layer {
  std::int32_t process = 0;  // its pid in its own pid namespace
  std::uint32_t number = 0;

  auto operator<=>(const Layer&) const = default;
};
// The name of the file.
std::string pages_file(const Layer& layer);
// Whether it begins like that of such a file. No other file of an image has such a name.
bool has_name_of_pages(const std::string& name);
// Nothing: the file of this name is another one.
std::optional<Layer> layer_of_pages_file(const std::string& name);

// Gives the file with these pages, all of which are in the store, to `write`, piece by piece.
void write_pages(const PageStore& store, std::int32_t process, const PageRanges& pages,
                 const std::function<void(std::span<const std::byte>)>& write);

// Takes such a file piece by piece, and hands those of its pages on that are wanted.
class PagesReader {
 public:
  PagesReader(const Layer& layer, PageRanges wanted, PageSink& to)
      : layer_(layer), wanted_(std::move(wanted)), to_(to) {}

  // Throw std::runtime_error: it is no such file, or lacks pages. add() throws what the sink throws as well.
  void add(std::span<const std::byte> piece);
  void end() const;  // no piece follows

 private:
  bool read_head();
  bool read_range();
  bool send_frame();
  void send(const PageRanges& frame, std::span<const std::byte> content);

  const Layer layer_;
  PageRanges wanted_;  // and not handed on yet
  PageSink& to_;
  std::vector<std::byte> buffer_;
  std::size_t used_ = 0;  // of the buffer
  bool has_head_ = false;
  std::uint64_t ranges_to_come_ = 0;
  std::uint64_t last_ = 0;  // end of the last range
  PageRanges pages_;        // whose content is to come
};

}  // namespace ferry::precopy
