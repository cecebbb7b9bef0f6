#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "port/endpoint.h"
#include "transport/host.h"
#include "transport/transport.h"
#include "transport/types.h"
#include "wire/bytes.h"
#include "wire/header.h"

// The transport of one RC, XRC or UC queue pair: requester, responder, completer (names as in
// SoftRoCE) and the migration protocol. post_send() returns EINVAL for every request of an XRC
// target, for operations that UC lacks, for those that get a response (READ, atomics, ATOMIC WRITE,
// FLUSH) on a QP with max_rd_atomic 0, for inline READs and atomics, for atomics of less than 8
// bytes and ATOMIC WRITEs of another length than 8.
namespace ferry::transport {

class Connection final : public Transport {
 public:
  // `virtual_qpn` is the QPN that the application and the peer's application know, `wire_qpn` the
  // one that peers send to.
  Connection(Host& host, const QueueLimits& limits, const MigrationSettings& settings,
             std::uint32_t virtual_qpn, std::uint32_t wire_qpn);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // --- Transport
  void reset() override;
  void init() override;
  void to_rtr(const RtrAttributes& attributes, Time now) override;
  void to_rts(const RtsAttributes& attributes, Time now) override;
  void set_sqd(bool draining) override;
  void to_error(Time now) override;
  QpState state() const override;
  void set_min_rnr_timer(std::uint8_t code) override;
  void set_peer_retries(const PeerRetries& peer) override;
  void set_limits(const RtsAttributes& attributes, std::uint8_t max_dest_rd_atomic) override;
  void set_path(const port::Endpoint& peer, std::uint32_t wire_qpn, Time now) override;
  int post_send(const SendRequest& request) override;
  std::uint64_t posted() const override;
  void take_back(std::uint64_t posted) override;
  void receive_posted(Time now) override;
  void handle_packet(const wire::Packet& packet, const port::Endpoint& from, Time now) override;
  void handle_timeout(Time now) override;
  unsigned transmit(Time now, unsigned budget) override;
  bool has_work() const override;
  bool only_acknowledges() const override;
  bool awaits_answer() const override;
  bool acknowledge_rest() override;
  bool waits_for_window() const override;
  Deadlines deadlines() const override;
  void prepare(Time now) override;
  bool finishing() const override;
  void stop(Time now) override;
  bool idle() const override;
  void stop_untold() override;
  std::vector<std::byte> stand_in_entry(const port::Address& local) const override;
  void resume(std::uint32_t wire_qpn, bool rollback, Time now) override;
  void located(const port::Endpoint& name, const port::Endpoint& location, std::uint32_t epoch,
               Time now) override;
  void save(wire::ByteWriter& out) const override;
  bool load(wire::ByteReader& in) override;
  TransportStatus status() const override;

 private:
  void handle_transport(const wire::Packet& packet, Time now);

  struct Parts;  // connection_parts.h
  std::unique_ptr<Parts> parts_;
};

}  // namespace ferry::transport
