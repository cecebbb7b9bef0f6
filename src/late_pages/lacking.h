#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "late_pages/ranges.h"
#include "precopy/page_ranges.h"

namespace ferry::late_pages {

// The pages that a process has not got yet, by what the kernel tells of the memory of the process (userfaultfd(2)). The
// content of a page has the address that the page had when the process was restored.
//
// An operation of the program waits until its event is read. So what one thread does is told in the order in which it
// does it. What several threads do at the same time is told in any order: an event may be outstanding. settle() says
// that none is; until then ("epoch") this keeps what another order would need. What is doubtful in the end, the
// kernel knows: it fills in no page that is not there (ENOENT).
class Lacking {
 public:
  Lacking() = default;
  explicit Lacking(const precopy::PageRanges& pages);

  bool empty() const { return old_.empty() && fresh_.empty(); }
  std::optional<Range> find(std::uint64_t page) const;
  // The first range behind this address, else the first of all. Nothing: none is lacking.
  std::optional<Range> next(std::uint64_t address) const;
  // These pages are there.
  void filled(std::uint64_t start, std::uint64_t end);

  // Events.
  void removed(std::uint64_t start, std::uint64_t end);   // madvise()
  void unmapped(std::uint64_t start, std::uint64_t end);  // munmap(), and what mremap() unmaps
  // mremap(). `is_mapped`: whether this page is mapped, with the userfaultfd.
  using IsMapped = std::function<bool(std::uint64_t page)>;
  void moved(std::uint64_t from, std::uint64_t to, std::uint64_t length, const IsMapped& is_mapped);
  // What a child lacks that is made at some time of this epoch. `is_mapped`: in the child, as it was at the fork. An
  // operation of this epoch was before the fork, or after.
  Lacking forked(const IsMapped& is_mapped) const;
  // On what a child lacks: events of its parent, read after the fork in the same epoch.
  void parent_moved(std::uint64_t from, std::uint64_t to, std::uint64_t length,
                    const IsMapped& is_mapped);
  void parent_unmapped(std::uint64_t start, std::uint64_t end);
  // No event is outstanding.
  void settle();

 private:
  struct Move {
    std::uint64_t from = 0, to = 0, length = 0;
    bool is_over = false;  // what was at `to` was unmapped by the same mremap()
    std::vector<Range> taken, displaced;
    std::vector<Range> removed;  // since then, by the program
  };
  static bool is_end_of(const Move& move, std::uint64_t start, std::uint64_t end);
  void undo(const Move& move);

  Ranges old_;    // that were there when the epoch began
  Ranges fresh_;  // that moves of this epoch have brought
  // Of this epoch:
  Ranges
      overwritten_;  // where moves have brought something: it leaves, by an event that is outstanding
  Ranges unmapped_;            // what was there before
  std::vector<Range> unmaps_;  // the events
  std::vector<Move> moves_;
};

}  // namespace ferry::late_pages
