#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace ferry::virt {

// The latest receives that were posted to a QP or an SRQ, as many as its queue has room for. A device
// does not give back what waits in its queue. It consumes receives in the order of their posts, so
// those that were not consumed are the last ones of this ring.
class PostedReceives {
 public:
  struct Receive {
    std::uint64_t wr_id = 0;
    std::span<ibv_sge> elements;
  };

  // There is room for at least `count` receives of `max_elements` elements each. Throws std::bad_alloc.
  PostedReceives(std::uint32_t count, std::uint32_t max_elements)
      : mask_(mask_for(count)),
        stride_(1 + max_elements),
        cells_((mask_ + 1) * std::size_t{stride_}) {}
  // Makes room for at least `count` receives, and keeps the latest ones that fit. Throws std::bad_alloc.
  void resize(std::uint32_t count) {
    const std::uint64_t mask = mask_for(count);
    std::vector<ibv_sge> cells((mask + 1) * std::size_t{stride_});
    const std::uint64_t posted = posted_.load(std::memory_order_relaxed);
    const std::uint64_t latest = std::min({posted, mask_ + 1, mask + 1});
    for (std::uint64_t at = posted - latest; at < posted; ++at)
      std::copy_n(&cells_[(at & mask_) * stride_], stride_, &cells[(at & mask) * stride_]);
    mask_ = mask;
    first_ = posted - latest;
    former_ = std::exchange(cells_, std::move(cells));
  }

  // Data path. Notes a request that the queue has taken.
  void note(const ibv_recv_wr& request) {
    const std::uint64_t posted = posted_.load(std::memory_order_relaxed);
    ibv_sge* cell = &cells_[(posted & mask_) * stride_];
    cell[0] = {request.wr_id, static_cast<std::uint32_t>(request.num_sge), 0};
    for (int i = 0; i < request.num_sge; ++i) cell[1 + i] = request.sg_list[i];
    posted_.store(posted + 1, std::memory_order_release);
  }
  // The same for each request of a list before `end`.
  void note(const ibv_recv_wr* list, const ibv_recv_wr* end) {
    for (; list != end; list = list->next) note(*list);
  }
  // Gives one of the latest `count` receives; `index` counts them in the order of their posts: 0 is the
  // oldest. There is room for `count`.
  Receive latest(std::uint32_t count, std::uint32_t index) {
    const std::uint64_t posted = posted_.load(std::memory_order_relaxed);
    ibv_sge* cell = &cells_[((posted - count + index) & mask_) * stride_];
    return {cell[0].addr, {cell + 1, cell[0].length}};
  }
  // Gives how many receives stay noted.
  std::uint32_t room() const { return static_cast<std::uint32_t>(mask_ + 1); }
  // Gives how many receives were noted, modulo 2^32.
  std::uint32_t posted() const {
    return static_cast<std::uint32_t>(posted_.load(std::memory_order_acquire));
  }
  // Gives the receive before which `index` receives (modulo 2^32) were noted, to a thread that does not
  // post. std::nullopt: it is not noted yet, or a newer receive has its cell by now.
  std::optional<Receive> find(std::uint32_t index) {
    const std::uint32_t since = posted() - index;
    if (since == 0 || since > std::min(mask_ + 1, posted_.load(std::memory_order_relaxed) - first_))
      return std::nullopt;
    ibv_sge* cell = &cells_[(index & mask_) * stride_];
    return Receive{cell[0].addr, {cell + 1, cell[0].length}};
  }

 private:
  static std::uint64_t mask_for(std::uint32_t count) {
    return std::bit_ceil(std::max(count, 1u)) - 1;
  }

  std::uint64_t mask_;
  std::uint64_t first_ = 0;  // receive that is noted
  const std::uint64_t stride_;
  std::atomic<std::uint64_t> posted_{0};
  // Each receive has a cell in the form of an element, with its wr_id and the number of its elements, and
  // behind that the elements themselves.
  std::vector<ibv_sge> cells_;
  std::vector<ibv_sge> former_;  // cells that others may still look at
};

}  // namespace ferry::virt
