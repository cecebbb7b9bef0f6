#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/unique_fd.h"

namespace ferry::pipe {

// How much memory somebody may have: a container, a user, or all of them.
class Account {
 public:
  explicit Account(std::size_t limit) : limit_(limit) {}

  bool take(std::size_t size);
  void keep(std::size_t size) { used_ += size; }
  void give_back(std::size_t size) { used_ -= size; }
  std::size_t used() const { return used_; }
  std::size_t limit() const { return limit_; }
  // What is taken already stays taken, also where it is more.
  void set_limit(std::size_t limit) { limit_ = limit; }

 private:
  std::atomic<std::size_t> limit_;
  std::atomic<std::size_t> used_{0};
};

using Accounts = std::vector<std::shared_ptr<Account>>;

// Memory that counts for all of some accounts, as long as this exists.
class Share {
 public:
  // Nothing: one of them has not so much left.
  static std::optional<Share> take(Accounts accounts, std::size_t size);
  // Memory that somebody has already: it counts also where that is more than a limit.
  static Share keep(Accounts accounts, std::size_t size);
  Share(Share&& other) noexcept = default;
  Share& operator=(Share&&) = delete;
  ~Share();
  std::size_t size() const { return size_; }

 private:
  Share(Accounts accounts, std::size_t size) : accounts_(std::move(accounts)), size_(size) {}

  Accounts accounts_;
  const std::size_t size_;
};

// A memory object of its own: a memfd that nobody can shrink or grow, mapped in the driver. Who has
// the descriptor can map this ring and nothing else. A program may keep its mapping after the driver
// has let go of the ring: so a ring is never used twice.
class Ring {
 public:
  Ring(UniqueFd memory, std::byte* base, std::size_t size, Share share);
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
  const Share share_;
};

inline constexpr std::size_t kHugePage = 2 << 20;
inline constexpr std::size_t kLargestRing = std::size_t{1} << 30;

// Where rings come from: huge pages as long as the kernel has some, ordinary pages else, and for rings above 64 MiB.
class Pool {
 public:
  struct Settings {
    std::size_t limit = std::size_t{4} << 30;  // of all rings
    bool huge_pages = true;
  };

  explicit Pool(Settings settings);

  // `size` is rounded up to huge pages. Null: `error` is errno, ENOBUFS where a limit is reached. It counts for
  // `owners`, and for all.
  std::shared_ptr<Ring> make(std::size_t size, const Accounts& owners, int* error);
  // A ring that a program has of another driver's make(); it says so, and may give any descriptor. `kept`: keep() of
  // one of its size, or null.
  std::shared_ptr<Ring> adopt(int memory, const Accounts& owners, std::optional<Share>* kept,
                              int* error);
  // For other memory that programs have by the driver. One that is `kept` for it is taken, if it has the size.
  std::optional<Share> share(std::size_t size, Accounts owners,
                             std::optional<Share>* kept = nullptr);
  // For memory that programs have by a driver before this one, until they come again.
  Share keep(std::size_t size, Accounts owners);
  std::size_t used() const { return all_->used(); }
  std::size_t limit() const { return all_->limit(); }

 private:
  const bool huge_pages_;
  const std::shared_ptr<Account> all_;
};

// A memfd of `size` zeroes, sealed against shrinking and growing. `flags` as of memfd_create(2).
UniqueFd sealed_memory(const char* name, std::size_t size, unsigned flags);

// Of a memory that is sealed as that of sealed_memory(); 0: of another one, or of something else.
std::size_t size_of_sealed(int memory);

// Empty: there are too many descriptors.
UniqueFd copy_of(int descriptor);

// Reserves huge pages until the kernel has `size` of them. Needs root. False: it has fewer.
bool reserve_huge_pages(std::size_t size);

}  // namespace ferry::pipe
