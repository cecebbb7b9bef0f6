#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace ferry::late_pages {

// Pages whose content is known, but not there: [start, end). The content has the places from `content` on.
struct Range {
  std::uint64_t start = 0, end = 0;
  std::uint64_t content = 0;
  bool is_doubtful = false;  // perhaps there is no such page any more

  bool operator==(const Range&) const = default;
};

// Disjoint ranges, in order.
class Ranges {
 public:
  bool empty() const { return ranges_.empty(); }
  void clear() { ranges_.clear(); }

  // The range from this page on, or what is left of it; nothing: the page is in none.
  std::optional<Range> find(std::uint64_t page) const;
  // The first one that ends behind this address, from there on; nothing: none does.
  std::optional<Range> behind(std::uint64_t address) const;
  // Parts of them that are between these addresses.
  std::vector<Range> within(std::uint64_t start, std::uint64_t end) const;
  std::vector<Range> all() const { return within(0, UINT64_MAX); }

  // In the place of what is there.
  void put(const Range& range);
  // Where nothing is.
  void add(const Range& range);
  // Takes out what is between these addresses, and gives it.
  std::vector<Range> cut(std::uint64_t start, std::uint64_t end);

 private:
  struct Rest {
    std::uint64_t end, content;
    bool is_doubtful;
  };
  void split(std::uint64_t address);

  std::map<std::uint64_t, Rest> ranges_;  // by start
};

}  // namespace ferry::late_pages
