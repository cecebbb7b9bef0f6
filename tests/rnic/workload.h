#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "party.h"
#include "port/random.h"

// One end of an RC connection in the simulation. Beside its region it gives its peer a memory
// window of type 2, which it binds and either side invalidates, again and again.
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

class Endpoint final : public Party {
 public:
  static constexpr std::uint32_t kSlotBytes = 5000;  // the longest message
  static constexpr unsigned kSlots = 16;             // of each kind
  static constexpr unsigned kMaxOutstanding = 16;
  static constexpr unsigned kMaxReceives = 8;

  // `errors` collects what went wrong, shared by all ends.
  Endpoint(std::string name, std::uint64_t seed, std::vector<std::string>* errors);

  std::byte* memory() override { return memory_.data(); }
  std::size_t memory_size() const override { return memory_.size(); }
  static ibv_qp_cap capabilities() { return {kMaxOutstanding, kMaxReceives, 3, 3, 64}; }

  device::Mw* window = nullptr;  // may be: what it gives its peer
  Endpoint* peer = nullptr;
  SharedReceives* shared = nullptr;  // may be: where its receives come from
  // Of XRC: the target by which it receives from an XRC SRQ, while it sends by `qp`.
  device::Qp* target = nullptr;

  void moved(std::uint32_t qpn, const MovedObjects& objects) override;
  void post_request(bool last) override;
  void post_receive() override;
  void completed(const ibv_wc& wc) override;

  std::size_t requests_posted() const override { return requests_posted_; }
  bool done() const override { return posted_.empty() && expected_.empty(); }
  // What the peer wrote here is what it meant to.
  void check() override;
  std::string describe() const override;

  // At the end of a run: writes through the peer's window, which was bound once and is not any
  // more. False: there is no such window. was_refused(): with the right status, and nothing was
  // written (check()).
  bool try_ended_window();
  bool was_refused() const { return refusal_ == Refusal::kSeen; }

  std::uint64_t window_writes() const { return window_writes_; }
  std::uint64_t window_endings() const { return window_endings_; }

 private:
  enum class Kind : std::uint8_t {
    kSend,
    kWrite,
    kWriteImm,
    kRead,
    kFetchAdd,
    kWindowWrite,   // through the peer's window
    kWindowBind,    // of its own
    kWindowLocal,   // LOCAL_INV of its own
    kWindowRemote,  // SEND with invalidate of the peer's
  };
  enum class Window : std::uint8_t { kUnbound, kBinding, kBound, kEnding };
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
    std::uint32_t invalidated = 0;
  };
  struct Receive {
    std::uint64_t id;
    unsigned slot;
  };
  enum Area : unsigned {
    kSource,
    kLanding,
    kReceive,
    kRegion,
    kConstant,
    kCounter,
    kWindow,
    kAreas
  };

  std::byte* slot(Area area, unsigned index) {
    return memory_.data() + (std::size_t{area} * kSlots + index) * kSlotBytes;
  }
  const std::byte* slot(Area area, unsigned index) const {
    return const_cast<Endpoint*>(this)->slot(area, index);
  }
  std::vector<ibv_sge> split(const std::byte* data, std::uint32_t length);
  std::vector<std::byte> fresh(std::uint32_t length);
  unsigned unlocked_slot();
  bool make_window_request(Posted* posted, ibv_send_wr* wr, ibv_mw* mw, ibv_mr* beneath);
  void retire(const Posted& posted);
  void error(const std::string& what);

  const std::string name_;
  port::SplitMix64 random_;
  std::vector<std::string>* errors_;
  std::vector<std::byte> memory_;
  std::vector<std::vector<std::byte>> meant_;  // what the peer's writes make of kRegion
  std::vector<unsigned> locks_;                // of kRegion: somebody will compare its content

  std::uint64_t counted_ = 0;  // what the peer's atomics make of kCounter

  enum class Refusal : std::uint8_t { kNone, kWanted, kSeen } refusal_ = Refusal::kNone;
  Window window_ = Window::kUnbound;
  std::uint32_t window_key_ = 0;
  unsigned writes_under_way_ = 0;          // the peer's, through the window
  std::vector<std::byte> window_content_;  // what they make of it
  std::uint64_t window_writes_ = 0, window_endings_ = 0;

  std::deque<Posted> posted_;
  std::deque<Receive> receives_;
  std::deque<Expected> expected_;
  std::uint64_t next_id_ = 1;
  std::uint64_t next_receive_ = 1;
  std::size_t requests_posted_ = 0;
};

}  // namespace ferry::rnic::testing
