#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "transport/connected/connection.h"
#include "transport/host.h"

// An RNIC for tests: one memory of its own, queues, and packets handed to a function.
namespace ferry::transport::test {

inline constexpr std::uint32_t kRkey = 0x1234500;  // of the whole memory, all rights
inline constexpr std::uint32_t kLkey = 0x1234501;

// A packet as its bytes on the wire (no ICRC check: that is the RNIC's).
struct Datagram {
  port::Endpoint from, to;
  std::vector<std::byte> bytes;
};

class FakeHost : public Host {
 public:
  explicit FakeHost(std::size_t memory) : memory_(memory) {}

  // --- What a test sets
  // -----------------------------------------------------------------------------
  port::Endpoint local;
  std::function<void(Datagram)> send;
  std::function<bool()> port_is_full = [] { return false; };
  std::vector<port::Endpoint> sought;  // names
  std::function<std::uint64_t()> random_bits = [] { return 0x5EED; };
  std::int64_t window_bytes = 1 << 20;
  // Addresses whose access fails, as memory that its owner unmapped.
  std::set<std::uint64_t> faulty;
  bool refuse_local = false, refuse_region = false;
  std::set<std::uint32_t> invalidatable;  // keys that may be invalidated, once
  Status bind_status = Status::kSuccess;  // of every bind
  std::set<std::uint32_t> srqs;           // XRC SRQs of the QP's domain

  void post_receive(const ReceiveRequest& receive) { receives_.push_back(receive); }
  void post_receive_to(std::uint32_t srqn, const ReceiveRequest& receive) {
    srq_receives_[srqn].push_back(receive);
  }
  std::span<std::byte> memory() { return memory_; }

  // --- What a test looks at
  // -------------------------------------------------------------------------
  std::deque<SendCompletion> sent;
  std::deque<ReceiveCompletion> received;
  std::deque<Event> events;
  unsigned flushes = 0;
  unsigned hop_limit = 0;  // of the latest packet
  struct Invalidation {
    std::uint32_t rkey;
    bool remote;
  };
  std::deque<Invalidation> invalidations;  // asked for, whether allowed or not
  std::deque<WindowBinding> binds;
  std::deque<wire::Feth> memory_flushes;
  unsigned atomics = 0;  // carried out
  // The SRQs that were selected when remote keys were last checked, and read with.
  std::uint32_t checked_with_srq = 0, read_with_srq = 0;
  std::int64_t accounted() const;  // over all endpoints
  bool ever_negative() const { return ever_negative_; }

  // --- Host
  // -----------------------------------------------------------------------------------------
  EmitResult emit(const OutPacket& packet) override;
  bool take_receive(ReceiveRequest* out) override;
  bool place_towards(const port::Address& /*address*/, DatagramSource* out) const override {
    *out = {local.address, {local, 0}};
    return true;
  }
  std::uint32_t receives_posted() const override {
    return static_cast<std::uint32_t>(receives_.size());
  }
  MemoryResult scatter(std::span<const Sge> sges, std::uint64_t offset,
                       std::span<const std::byte> data) override;
  MemoryResult check_region(std::uint32_t rkey, std::uint64_t address, std::uint64_t length,
                            std::uint32_t access) override;
  MemoryResult write_region(std::uint32_t rkey, std::uint64_t address,
                            std::span<const std::byte> data) override;
  MemoryResult atomic(Operation operation, std::uint32_t rkey, std::uint64_t address,
                      std::uint64_t compare_add, std::uint64_t swap,
                      std::uint64_t* original) override;
  MemoryResult write_atomic(std::uint32_t rkey, std::uint64_t address,
                            std::span<const std::byte, 8> data) override;
  MemoryResult flush_region(const wire::Feth& what, std::uint32_t rkey, std::uint64_t address,
                            std::uint64_t length) override;
  bool invalidate(std::uint32_t rkey, bool remote) override;
  Status bind_window(const WindowBinding& binding) override;
  SrqResult take_receive_of(std::uint32_t srqn, ReceiveRequest* out) override;
  bool select_srq(std::uint32_t srqn) override;
  void complete_send(const SendCompletion& completion) override { sent.push_back(completion); }
  void complete_receive(const ReceiveCompletion& completion) override {
    received.push_back(completion);
  }
  void flush_receives() override;
  void raise(Event event) override { events.push_back(event); }
  std::uint64_t random() override { return random_bits(); }
  void seek(const port::Endpoint& name) override {
    if (sought.empty() || sought.back() != name) sought.push_back(name);
  }
  std::int64_t window(const port::Endpoint& to) const override;
  void account(const port::Endpoint& to, std::int64_t bytes) override;

 private:
  MemoryResult access(std::uint64_t address, std::uint64_t length) const;

  std::vector<std::byte> memory_;
  std::uint32_t selected_srq_ = 0;
  std::deque<ReceiveRequest> receives_;
  std::map<std::uint32_t, std::deque<ReceiveRequest>> srq_receives_;
  std::map<port::Endpoint, std::int64_t> accounts_;
  bool ever_negative_ = false;
};

}  // namespace ferry::transport::test
