#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "port/random.h"
#include "rnic/context.h"

// One end of a connection in the simulation: an application that posts random requests and checks
// everything that comes of them.
namespace ferry::rnic::testing {

// Receive WQEs that several endpoints of a process share, in an SRQ.
class SharedReceives {
 public:
  static constexpr unsigned kSlots = 16;

  device::Srq* srq = nullptr;
  device::Mr* mr = nullptr;

  std::byte* memory() { return memory_.data(); }
  std::size_t memory_size() const { return memory_.size(); }
  // 0 also when all are posted already.
  int post();
  // The memory of a WQE that completed, which is free from now on; null: it was not posted.
  const std::byte* take(std::uint64_t id);

 private:
  static constexpr std::uint32_t kSlotBytes = 5000;
  std::vector<std::byte> memory_ = std::vector<std::byte>(kSlots * kSlotBytes);
  std::map<std::uint64_t, unsigned> posted_;  // slots, by id
  std::uint64_t next_id_ = 0;
};

class Endpoint {
 public:
  static constexpr std::uint32_t kSlotBytes = 5000;  // the longest message
  static constexpr unsigned kSlots = 16;             // of each kind
  static constexpr unsigned kMaxOutstanding = 16;
  static constexpr unsigned kMaxReceives = 8;

  // `errors` collects what went wrong, shared by all ends.
  Endpoint(std::string name, std::uint64_t seed, std::vector<std::string>* errors);

  // Where its memory lies, to be registered as one region.
  std::byte* memory() { return memory_.data(); }
  std::size_t memory_size() const { return memory_.size(); }
  static ibv_qp_cap capabilities() { return {kMaxOutstanding, kMaxReceives, 3, 3, 64}; }

  // Objects of the RNIC it is on now; they change with a move.
  device::Qp* qp = nullptr;
  device::Mr* mr = nullptr;
  Endpoint* peer = nullptr;
  SharedReceives* shared = nullptr;  // may be: where its receives come from

  // Posts a request, if its queue has room for one. `last`: signalled, so that everything before it
  // is known to be done.
  void post_request(bool last);
  void post_receive();
  void completed(const ibv_wc& wc);

  std::size_t requests_posted() const { return requests_posted_; }
  bool idle() const { return posted_.empty(); }
  std::size_t receives_waiting() const { return receives_.size(); }
  std::size_t messages_expected() const { return expected_.size(); }
  // At the end: what the peer wrote here is what it meant to.
  void check_memory();
  std::string describe() const;

 private:
  enum class Kind : std::uint8_t { kSend, kWrite, kWriteImm, kRead, kFetchAdd };
  struct Posted {
    std::uint64_t id;
    Kind kind;
    bool signaled;
    std::uint32_t length;
    unsigned peer_slot;   // of WRITE and READ
    bool checks_content;  // of READ
    std::vector<std::byte> content;
  };
  // What the other side will receive next.
  struct Expected {
    Kind kind;
    std::uint32_t length;
    bool has_immediate;
    std::uint32_t immediate;
    unsigned slot;
    std::vector<std::byte> content;
  };
  struct Receive {
    std::uint64_t id;
    unsigned slot;
  };
  enum Area : unsigned { kSource, kLanding, kReceive, kRegion, kConstant, kCounter, kAreas };

  std::byte* slot(Area area, unsigned index) {
    return memory_.data() + (std::size_t{area} * kSlots + index) * kSlotBytes;
  }
  const std::byte* slot(Area area, unsigned index) const {
    return const_cast<Endpoint*>(this)->slot(area, index);
  }
  std::vector<ibv_sge> split(const std::byte* data, std::uint32_t length);
  std::vector<std::byte> fresh(std::uint32_t length);
  unsigned unlocked_slot();
  void retire(const Posted& posted);
  void error(const std::string& what);

  const std::string name_;
  port::SplitMix64 random_;
  std::vector<std::string>* errors_;
  std::vector<std::byte> memory_;
  std::vector<std::vector<std::byte>> meant_;  // what the peer's writes make of kRegion
  std::vector<unsigned> locks_;                // of kRegion: somebody will compare its content

  std::uint64_t counted_ = 0;  // what the peer's atomics make of kCounter

  std::deque<Posted> posted_;
  std::deque<Receive> receives_;
  std::deque<Expected> expected_;
  std::uint64_t next_id_ = 1;
  std::uint64_t next_receive_ = 1;
  std::size_t requests_posted_ = 0;
};

}  // namespace ferry::rnic::testing
