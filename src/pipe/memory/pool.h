#pragma once

#include <atomic>
#include <cstddef>
#include <memory>

#include "base/unique_fd.h"

namespace ferry::pipe {

// How much memory somebody may have, a container or all of them.
class Account {
 public:
  explicit Account(std::size_t limit) : limit_(limit) {}

  bool take(std::size_t size);
  void give_back(std::size_t size) { used_ -= size; }
  std::size_t used() const { return used_; }

 private:
  const std::size_t limit_;
  std::atomic<std::size_t> used_{0};
};

// A memory object of its own: a memfd that nobody can shrink or grow, mapped in the driver. Who has
// the descriptor can map this ring and nothing else. A program may keep its mapping after the driver
// has let go of the ring: so a ring is never used twice.
class Ring {
 public:
  Ring(UniqueFd memory, std::byte* base, std::size_t size, std::shared_ptr<Account> all,
       std::shared_ptr<Account> container);
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  int descriptor() const { return memory_.get(); }
  std::byte* base() const { return base_; }
  std::size_t size() const { return size_; }

 private:
  UniqueFd memory_;
  std::byte* const base_;
  const std::size_t size_;
  const std::shared_ptr<Account> all_, container_;
};

inline constexpr std::size_t kHugePage = 2 << 20;

// Where rings come from: huge pages as long as the kernel has some, ordinary pages else.
class Pool {
 public:
  struct Settings {
    std::size_t limit = std::size_t{4} << 30;  // of all rings
    bool huge_pages = true;
  };

  explicit Pool(Settings settings);

  // `size` is rounded up to huge pages. Null: `error` is errno, ENOBUFS where a limit is reached.
  std::shared_ptr<Ring> make(std::size_t size, const std::shared_ptr<Account>& container,
                             int* error);
  std::size_t used() const { return all_->used(); }

 private:
  const bool huge_pages_;
  const std::shared_ptr<Account> all_;
};

// A memfd of `size` zeroes, sealed against shrinking and growing. `flags` as of memfd_create(2).
UniqueFd sealed_memory(const char* name, std::size_t size, unsigned flags);

// Reserves huge pages until the kernel has `size` of them. Needs root. False: it has fewer.
bool reserve_huge_pages(std::size_t size);

}  // namespace ferry::pipe
