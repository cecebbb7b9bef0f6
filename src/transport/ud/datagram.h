#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "port/endpoint.h"
#include "transport/host.h"
#include "transport/send_queue.h"
#include "transport/transport.h"
#include "transport/ud/location_table.h"
#include "wire/bytes.h"
#include "wire/header.h"
#include "wire/migration.h"

// The transport of one UD queue pair (clauses 9.8.3, 10.2.5) and its part of the migration protocol
// (docs/wire.md "Datagrams"). datagram.cc sends and receives, datagram_location.cc asks and tells
// where QPs are, datagram_record.cc saves and loads.
namespace ferry::transport {

class Datagram final : public Transport {
 public:
  // `locations` outlives the QP.
  Datagram(Host& host, LocationTable& locations, const QueueLimits& limits,
           const MigrationSettings& settings, std::uint32_t virtual_qpn);
  Datagram(const Datagram&) = delete;
  Datagram& operator=(const Datagram&) = delete;

  // --- Transport. to_rtr() uses only `mtu`, to_rts() only `next_psn`. A request goes to
  // SendRequest::datagram; one that is longer than the MTU fails with kLocalLength when its turn
  // comes. After a failed request the QP is in the SQE state, in which it still receives.
  void reset() override;
  void init() override;
  void to_rtr(const RtrAttributes& attributes, Time now) override;
  void to_rts(const RtsAttributes& attributes, Time now) override;
  void set_sqd(bool draining) override;
  void to_error(Time now) override;
  QpState state() const override { return state_; }
  void set_qkey(std::uint32_t qkey) override { qkey_ = qkey; }
  int post_send(const SendRequest& request) override;
  std::uint64_t posted() const override { return queue_.tail(); }
  void take_back(std::uint64_t posted) override;
  void receive_posted(Time) override {}
  void handle_packet(const wire::Packet& packet, const port::Endpoint& from, Time now) override;
  void handle_timeout(Time now) override;
  unsigned transmit(Time now, unsigned budget) override;
  bool has_work() const override;
  bool waits_for_window() const override { return false; }
  Deadlines deadlines() const override;
  void prepare(Time) override {}
  bool finishing() const override { return false; }
  void stop(Time now) override;
  std::vector<std::byte> stand_in_entry(const port::Address& local) const override;
  void resume(std::uint32_t wire_qpn, bool rollback, Time now) override;
  void located(const port::Endpoint& name, const port::Endpoint& location, std::uint32_t epoch,
               Time now) override;
  void save(wire::ByteWriter& out) const override;
  bool load(wire::ByteReader& in) override;
  TransportStatus status() const override;

  // Handles a packet to the multicast QPN that came to `group`, to which the QP is attached.
  void handle_multicast(const wire::Packet& packet, const port::Endpoint& from,
                        const port::Address& group, Time now);

 private:
  // datagram.cc
  bool receiving() const { return state_ >= QpState::kRtr && state_ != QpState::kError; }
  bool sending() const { return state_ == QpState::kRts && !stopped_ && !queue_.empty(); }
  void receive(const wire::Packet& packet, const port::Endpoint& from,
               const port::Address& destination, Time now);
  void deliver(const wire::Packet& packet, const DatagramName& source,
               const port::Address& destination);
  enum class Sent : std::uint8_t { kYes, kNoRoom, kHeld, kFailed };
  Sent send_head(Time now);
  EmitResult emit(OutPacket& packet);
  void complete_head(Status status);
  void flush_sends();

  // datagram_location.cc
  struct Ask {
    DatagramName name;
    DatagramPlace to;
    std::uint64_t nonce;
    bool for_class;  // we ask of what kind the QP is, not only where it is
    bool due;
    unsigned left;  // transmissions
    Time at, delay;
  };
  struct Answer {
    DatagramPlace to;
    std::uint64_t nonce;
  };
  bool is_moved(const DatagramSource& us) const;
  bool asking(const DatagramName& name) const;
  void ask(const DatagramName& name, const DatagramPlace& to, bool for_class, Time now);
  // Finds out where a datagram goes and in which form. False: it must wait for an answer.
  bool route(const DatagramName& name, const DatagramSource& us, Time now, DatagramPlace* place,
             bool* as_moved);
  void handle_message(const wire::Packet& packet, const port::Endpoint& from, Time now);
  unsigned transmit_messages();
  bool send_message(wire::MigrationMessage message, const DatagramPlace& to);

  Host& host_;
  LocationTable& locations_;
  const QueueLimits limits_;
  const MigrationSettings settings_;
  const std::uint32_t virtual_qpn_;
  QpState state_ = QpState::kReset;
  std::uint32_t mtu_ = 1024;
  std::uint32_t qkey_ = 0;
  std::uint32_t next_psn_ = 0;
  SendQueue queue_;
  std::vector<DatagramAddress> addresses_;  // of the queue's WQEs: [index & address_mask_]
  std::size_t address_mask_;
  ReceiveRequest receive_;  // of the datagram that is being delivered
  bool held_ = false;       // the oldest request waits for an answer
  bool stopped_ = false;
  std::uint32_t epoch_ = 0;
  std::vector<Ask> asks_;
  std::vector<Answer> answers_;
  Counters counters_;
};

// A Stopped UD QP, for its stand-in.
struct StoppedDatagram {
  // The first byte of a stand-in entry tells its kind; connections have kEntryVersion (stopped.cc).
  static constexpr std::uint8_t kKind = 2;

  port::Address gid;  // virtual
  std::uint32_t virtual_qpn = 0;
  DatagramPlace place;  // the old one
  std::uint32_t epoch = 0;

  void save(wire::ByteWriter& out) const;
  bool load(wire::ByteReader& in);  // false: malformed
};

}  // namespace ferry::transport
