#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "device/movable.h"
#include "virtual/shadows/number_table.h"

namespace ferry::virt {

class Ah;
class Mr;
class Qp;

// The UD QPs whose programs have moved, for the datagrams of a context: a datagram to one of them goes
// where that QP is now, and one from it comes from the GID and the QPN by which the application knows
// it. Any thread may call any function.
class Datagrams {
 public:
  using Name = device::Letter::End;

  // The AHs, the UD QPs and the MRs of the context, as the application knows them.
  void add(Ah& ah);
  void remove(const Ah& ah);
  bool has_ah(std::uint32_t handle) const;
  void add(Qp& qp);
  void remove(const Qp& qp);
  // The receive queue of the UD QP is empty; so many receives have been posted to it before.
  void empty(std::uint32_t qpn, std::uint32_t posted) { taken_.set(qpn, posted); }
  // Also again, when its memory has changed.
  void add(const Mr& mr);
  void remove(const Mr& mr);

  // Those of other contexts, all of them. Throws std::bad_alloc, and nothing is changed.
  void set_others(const std::vector<device::DatagramQps>& qps);
  // Those of this context, which has moved. Throws std::bad_alloc, and nothing is changed.
  void set_own(const device::DatagramQps& qps);
  // Whether there have ever been some. Else requests need no address(), and completions no arrived().
  bool are_used() const { return are_used_.load(std::memory_order_acquire); }
  // Whether a QP of another place is known by this name.
  bool has(const Name& known) const;
  // The GIDs other than `known` to which datagrams to this one go.
  std::vector<port::Address> places_of(const port::Address& known) const;
  // The AH gets another object behind for datagrams that go to `gid`.
  void add_way(Ah& ah, const port::Address& gid, device::Ah& object);
  // Gives those objects to the caller, who destroys them.
  std::vector<device::Ah*> take_ways(Ah& ah);
  // The AH has another object behind.
  void enter_device(Ah& ah, device::Ah& object);

  // --- Data path

  // A UD request gets the AH and the QPN of where it goes. False: the application has no such AH.
  bool address(ibv_send_wr* request) const;
  // A completion with the QPN that the application knows: counts the datagrams that have come.
  void count(const ibv_wc& completion) {
    if (completion.status != IBV_WC_SUCCESS || (completion.opcode & IBV_WC_RECV) == 0) return;
    if (taken_.has_index_of(completion.qp_num))
      taken_.set(completion.qp_num, taken_[completion.qp_num] + 1);
  }
  // Before count(): the datagram comes from whom the application knows. Its GRH is where the receive
  // begins.
  void arrived(ibv_wc* completion) const;

 private:
  using Names = std::map<Name, Name>;
  using Clock = std::chrono::steady_clock;
  struct Ways {
    Names real;   // of known names
    Names known;  // of real ones
  };

  static Ways ways_of(const std::vector<device::DatagramQps>& qps);
  const Name* real_of(const Name& known) const;
  const Name* known_of(const Name& real) const;
  // Null: it is in no MR that the program has.
  std::byte* memory_of(const ibv_sge& element, std::size_t length) const;

  std::atomic<bool> are_used_{false};
  NumberTable taken_{0};             // by QPN: how many receives have been consumed, of all
  mutable std::shared_mutex mutex_;  // guards what follows
  std::unordered_map<std::uint32_t, Ah*> ahs_;
  std::unordered_map<std::uint32_t, Qp*> qps_;
  struct Region {
    const Mr* mr = nullptr;
    void* address = nullptr;
    std::uint64_t iova = 0;  // by which requests name the address
    std::size_t length = 0;
  };
  std::unordered_map<std::uint32_t, Region> regions_;  // by lkey
  Ways others_, own_;
  // Those of others_ before the last change: for a while datagrams may still wait in CQs.
  Names formerly_known_;
  Clock::time_point changed_at_{};
  std::map<port::Address, port::Address> own_gids_;  // known ones by real ones
};

}  // namespace ferry::virt
