#pragma once

#include <cstdint>

#include "device/objects.h"
#include "rnic/engine/completion_queue.h"
#include "rnic/engine/requests/receive_queue.h"
#include "rnic/memory/memory.h"
#include "wire/bytes.h"

// Shared receive queues, plain and XRC, and XRC domains (IBTA vol. 1 clauses 10.2.9 and 10.2.10,
// annex A14).
namespace ferry::rnic {

class Engine;

class XrcDomain final : public device::Xrcd {
 public:
  explicit XrcDomain(Handle number) : handle(number) {}
  const Handle handle;
  std::uint32_t users = 0;  // XRC SRQs and XRC target QPs
};

class SharedReceiveQueue final : public device::Srq {
 public:
  static constexpr std::uint32_t kMaxWr = 32768;
  static constexpr std::uint32_t kMaxSge = 30;

  // Rounds up what was asked for. EINVAL: no WQE was asked for, or more than the device has.
  static int grant(ibv_srq_attr* attributes);

  struct Init {
    Handle handle = 0;
    ProtectionDomain* pd = nullptr;
    XrcDomain* xrcd = nullptr;  // XRC only, with its CQ
    CompletionQueue* cq = nullptr;
    std::uint32_t number = 0;  // XRC only: the SRQN by which the peer's requests name it
    std::uint32_t max_wr = 0;  // granted
    std::uint32_t max_sge = 0;
  };
  SharedReceiveQueue(Engine& engine, device::EventSink& sink, const Init& init);

  int post_recv(ibv_recv_wr* list, ibv_recv_wr** bad) override;
  int modify(const ibv_srq_attr& attributes, int mask) override;
  int query(ibv_srq_attr* attributes) const override;
  std::uint32_t number() const override { return init_.number; }

  // --- For the RNIC, under the engine's lock
  const Init& init() const { return init_; }
  std::uint32_t max_wr() const { return max_wr_; }
  bool take(transport::ReceiveRequest* out);
  // If its CQ has overflowed, it serves no QP any more, and raises IBV_EVENT_SRQ_ERR once.
  void check_overflow();
  bool failed() const { return failed_; }

  // The part of its record that follows the head (records.h): limit, whether it has failed, WQEs.
  void save(wire::ByteWriter& out) const;
  bool load(wire::ByteReader& in);

  std::uint32_t users = 0;  // QPs; of an XRC SRQ: none

 private:
  void check_limit();

  Engine& engine_;
  device::EventSink& sink_;
  const Init init_;
  std::uint32_t max_wr_;
  std::uint32_t limit_ = 0;  // 0: not armed
  bool failed_ = false;
  ReceiveQueue receives_;
};

}  // namespace ferry::rnic
