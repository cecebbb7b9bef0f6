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

// The UD QPs whose programs have moved, for the datagrams of a context: a datagram to such a QP goes where
// the QP is now, and a datagram from such a QP gets the GID and the QPN by which the application knows the
// QP. Any thread may call any function.
class Datagrams {
 public:
  using Name = device::Letter::End;

  // The AHs, the UD QPs and the MRs of the context, as the application knows them.
  void add(Ah& ah);
  void remove(const Ah& ah);
  bool has_ah(std::uint32_t handle) const;
  void add(Qp& qp);
  void remove(const Qp& qp);
  // The receive queue of the UD QP is empty, after `posted` receives have been posted to it.
  void empty(std::uint32_t qpn, std::uint32_t posted) { taken_.set(qpn, posted); }
  // Is called again when the memory of the MR has changed.
  void add(const Mr& mr);
  void remove(const Mr& mr);

  // Replaces the names of other contexts' moved UD QPs. Throws std::bad_alloc, and nothing is changed.
  void set_others(const std::vector<device::DatagramQps>& qps);
  // Replaces the names of this context's UD QPs, if it has moved. Throws std::bad_alloc, and nothing is
  // changed.
  void set_own(const device::DatagramQps& qps);
  // Whether names have ever been set. Else requests need no address(), and completions no arrived().
  bool are_used() const { return are_used_.load(std::memory_order_acquire); }
  // Whether a moved UD QP of another context is known by this name.
  bool has(const Name& known) const;
  // The GIDs, other than `known`, of the places of UD QPs that are known under the GID `known`.
  std::vector<port::Address> places_of(const port::Address& known) const;
  // Gives the AH one more object behind, for datagrams that go to `gid`.
  void add_way(Ah& ah, const port::Address& gid, device::Ah& object);
  // Gives the objects of add_way() to the caller, who destroys them.
  std::vector<device::Ah*> take_ways(Ah& ah);
  // The AH has been made anew as `object`.
  void enter_device(Ah& ah, device::Ah& object);

  // --- Data path

  // Gives a UD request the AH and the QPN of the place to which it goes. False: the application has no
  // such AH.
  bool address(ibv_send_wr* request) const;
  // Counts the datagrams that have come. The completion has the QPN that the application knows.
  void count(const ibv_wc& completion) {
    if (completion.status != IBV_WC_SUCCESS || (completion.opcode & IBV_WC_RECV) == 0) return;
    if (taken_.has_index_of(completion.qp_num))
      taken_.set(completion.qp_num, taken_[completion.qp_num] + 1);
  }
  // Is called before count(). Gives the completion, and the GRH at the beginning of the receive's memory,
  // the names by which the application knows the datagram's sender and receiver.
  void arrived(ibv_wc* completion) const;

 private:
  using Names = std::map<Name, Name>;
  using Clock = std::chrono::steady_clock;
  struct Ways {
    Names real;   // real names by known ones
    Names known;  // known names by real ones
  };

  static Ways ways_of(const std::vector<device::DatagramQps>& qps);
  const Name* real_of(const Name& known) const;
  const Name* known_of(const Name& real) const;
  // Gives where the first `length` bytes of an element are. Null: they are in no MR of the program.
  std::byte* memory_of(const ibv_sge& element, std::size_t length) const;

  std::atomic<bool> are_used_{false};
  NumberTable taken_{0};             // by QPN: how many receives the QP has consumed so far
  mutable std::shared_mutex mutex_;  // guards what follows
  std::unordered_map<std::uint32_t, Ah*> ahs_;
  std::unordered_map<std::uint32_t, Qp*> qps_;
  struct Region {
    const Mr* mr = nullptr;
    void* address = nullptr;
    std::uint64_t iova = 0;  // the address as requests name it
    std::size_t length = 0;
  };
  std::unordered_map<std::uint32_t, Region> regions_;  // by lkey
  Ways others_, own_;
  // others_.known before the last change: for a while, datagrams from those places may still wait in CQs.
  Names formerly_known_;
  Clock::time_point changed_at_{};
  std::map<port::Address, port::Address> own_gids_;  // known GIDs by real ones
};

}  // namespace ferry::virt
