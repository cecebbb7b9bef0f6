#include "precopy/page_keeper.h"

#include <algorithm>

namespace ferry::precopy {

void PageKeeper::send_pages(std::int32_t process, const PageRanges& ranges,
                            std::span<const std::byte> content) {
  for (const auto& [start, end] : ranges) {
    for (std::uint64_t at = start; at < end;) {
      const auto place = store_.put(process, at, end);
      std::copy_n(content.begin(), place.size(), place.begin());
      content = content.subspan(place.size());
      at += place.size();
    }
  }
}

}  // namespace ferry::precopy
