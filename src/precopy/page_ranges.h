#pragma once

#include <cstdint>
#include <map>

namespace ferry::precopy {

inline constexpr std::uint64_t kPage = 4096;
// Addresses of user space end here, also for programs that ask for 5-level page tables: higher
// addresses are refused.
inline constexpr std::uint64_t kAddressEnd = 1ull << 47;

// A set of addresses as disjoint ranges [start, end) that do not touch, in order.
class PageRanges {
 public:
  using Map = std::map<std::uint64_t, std::uint64_t>;  // start → end

  void add(std::uint64_t start, std::uint64_t end);
  void remove(std::uint64_t start, std::uint64_t end);
  void add(const PageRanges& other);
  void remove(const PageRanges& other);

  bool contains(std::uint64_t start, std::uint64_t end) const;
  std::uint64_t bytes() const { return bytes_; }
  bool empty() const { return ranges_.empty(); }
  std::size_t count() const { return ranges_.size(); }
  Map::const_iterator begin() const { return ranges_.begin(); }
  Map::const_iterator end() const { return ranges_.end(); }
  bool operator==(const PageRanges&) const = default;

  // The addresses that are in both.
  PageRanges within(const PageRanges& other) const;

 private:
  Map ranges_;
  std::uint64_t bytes_ = 0;
};

}  // namespace ferry::precopy
