#pragma once

#include <array>
#include <deque>
#include <map>
#include <vector>

#include "party.h"
#include "port/random.h"
#include "transport/types.h"

// The applications of the simulation that use UC and UD. What they may lose is what the link drops
// and what is sent while its receiver moves; nothing is ever doubled, corrupted, or (UC) delivered
// in part or in another order. The links of such a simulation neither double nor reorder packets:
// these services do not hide that.
namespace ferry::rnic::testing {

// When a process was stopped, until everybody could know where it went on.
struct Absence {
  transport::Time from{0}, to = transport::kNever;
};

// What the parties of one simulation share.
struct UnreliableWorld {
  std::vector<std::string>* errors = nullptr;
  std::function<transport::Time()> now;
  bool lossy = false;  // the link drops packets
  std::uint64_t delivered = 0, lost = 0;
};

class UnreliableParty : public Party {
 public:
  static constexpr std::uint32_t kSlotBytes = 5000;
  static constexpr unsigned kSlots = 16;
  static constexpr unsigned kMaxOutstanding = 8;
  static constexpr unsigned kMaxReceives = 16;
  static constexpr std::uint32_t kGrh = 40;
  static constexpr std::uint32_t kQkey = 0x1B1B;

  UnreliableParty(std::string name, bool datagrams, std::uint64_t seed, UnreliableWorld* world);

  std::byte* memory() override { return memory_.data(); }
  std::size_t memory_size() const override { return memory_.size(); }
  static ibv_qp_cap capabilities() { return {kMaxOutstanding, kMaxReceives, 3, 3, 64}; }

  // Whom it sends to; with UD there may be several, with UC there is one. The AH is null for UC.
  void add_peer(UnreliableParty* peer, device::Ah* ah);
  void set_name(std::uint32_t qpn, const ibv_gid& gid) { qpn_ = qpn, gid_ = gid; }
  void set_mtu(std::uint32_t bytes) { mtu_ = bytes; }  // of the port: no datagram is longer
  void stopped();
  void resumed(transport::Time slack);

  void moved(std::uint32_t qpn, const MovedObjects& objects) override;
  void post_request(bool last) override;
  void post_receive() override;
  void completed(const ibv_wc& wc) override;
  std::size_t requests_posted() const override { return posted_total_; }
  bool done() const override;
  void check() override;
  std::string describe() const override;

 private:
  struct Sent {  // a message that may still arrive
    std::uint64_t id;
    UnreliableParty* to;
    std::vector<std::byte> content;
    bool write;
    unsigned slot;
    std::uint32_t immediate;
    bool has_immediate;
    transport::Time posted, completed = transport::kNever;
  };
  struct Peer {
    UnreliableParty* party;
    device::Ah* ah;
  };
  enum Area : unsigned { kSource, kReceive, kRegion, kAreas };

  std::byte* slot(Area area, unsigned index) {
    return memory_.data() + (std::size_t{area} * kSlots + index) * kSlotBytes;
  }
  void arrive(UnreliableParty& from, std::uint64_t id, const ibv_wc& wc, const std::byte* data);
  bool may_be_lost(const Sent& message) const;
  void error(const std::string& what);

  const std::string name_;
  const bool datagrams_;
  port::SplitMix64 random_;
  UnreliableWorld* world_;
  std::uint32_t mtu_ = kSlotBytes;
  std::uint32_t qpn_ = 0;
  ibv_gid gid_{};
  std::vector<std::byte> memory_;
  std::vector<Peer> peers_;
  std::vector<Absence> absences_;

  std::deque<std::pair<std::uint64_t, bool>> outstanding_;  // wr_id, signalled
  std::map<std::uint64_t, Sent> sent_;                      // not delivered, by id
  std::array<std::uint64_t, kSlots> written_{};  // the message last written to each region slot
  std::deque<std::pair<std::uint64_t, unsigned>> receives_;
  std::uint64_t next_id_ = 1, next_receive_ = 1;
  std::uint64_t last_arrived_ = 0;  // UC
  // Receive WQEs that no message was sent for: a sender without one would lose for want of it.
  unsigned credit_ = 0;
  transport::Time last_use_{0};
  std::size_t posted_total_ = 0;
};

}  // namespace ferry::rnic::testing
