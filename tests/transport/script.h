#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/connected/connection.h"
#include "transport/fake_host.h"
#include "wire/migration.h"
#include "wire/psn.h"

// One connection and a scripted peer: a test reads like a packet trace. Unless a test says
// otherwise: MTU 1024, our first PSN 100, the peer's 500, both at RTS, credits not in use, no
// migration protocol.
//
//   script.post(send(1, 2048));
//   script.expect(Opcode::kRcSendFirst, 100);
//   script.expect(Opcode::kRcSendLast, 101);
//   script.inject(ack(101));
//   script.expect_completion(1);
//
// expect*() take what came out in order; at the end of the test nothing may be left over, and
// nothing be accounted as in flight.
namespace ferry::transport::test {

using wire::MigrationMessage;
using wire::MigrationType;
using wire::Opcode;
namespace syndrome = wire::syndrome;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

inline constexpr std::uint32_t kMtu = 1024;
inline constexpr std::uint32_t kOurPsn = 100, kPeerPsn = 500;
inline constexpr std::uint32_t kOurQpn = 0x11, kPeerQpn = 0x22;
inline constexpr std::uint64_t kOurCookie = 0xAAAA, kPeerCookie = 0xBBBB;
port::Endpoint endpoint(unsigned host, std::uint16_t udp_port = 4791);  // 10.0.0.host
inline const port::Endpoint kUs = endpoint(1), kPeer = endpoint(2);

// --- Requests
// --------------------------------------------------------------------------------------- Local
// data lies at 0 of the memory, remote data at kRemote.
inline constexpr std::uint64_t kRemote = 0x40000;
struct Request {
  SendRequest request;
  std::vector<Sge> sges;
  Request unsignaled() &&;
  Request fenced() &&;
  Request solicited() &&;
  Request immediate(std::uint32_t value) &&;
  Request invalidating(std::uint32_t rkey) &&;  // a SEND
  Request to_srq(std::uint32_t srqn) &&;
  WindowBinding binding;
};
Request send(std::uint64_t wr_id, std::uint32_t length);
Request write(std::uint64_t wr_id, std::uint32_t length);
Request read(std::uint64_t wr_id, std::uint32_t length);
Request fetch_add(std::uint64_t wr_id, std::uint64_t add);
Request compare_swap(std::uint64_t wr_id, std::uint64_t compare, std::uint64_t swap);
Request atomic_write(std::uint64_t wr_id);
Request flush(std::uint64_t wr_id, std::uint32_t length, wire::Feth what);
Request local_invalidate(std::uint64_t wr_id, std::uint32_t rkey);
Request bind(std::uint64_t wr_id, std::uint32_t rkey);

// --- Packets of the peer
// ----------------------------------------------------------------------------
struct In {
  wire::Header header;
  std::vector<std::byte> payload;
  port::Endpoint source = kPeer;
  std::optional<MigrationMessage> says;  // of message(), to be signed
  In asks_ack() &&;
  // A migration message of the peer that has a MAC says that it is there, too.
  In from(const port::Endpoint& endpoint) &&;
  // As it was made, by somebody who is there.
  In replayed_from(const port::Endpoint& endpoint) &&;
  In immediate(std::uint32_t value) &&;
  In solicited() &&;
  In pkey(std::uint16_t value) &&;
  In key(std::uint32_t rkey) &&;
  In invalidates(std::uint32_t rkey) &&;
  In to_srq(std::uint32_t srqn) &&;  // makes it XRC
  In xrc() &&;
};
// Byte i of the payload of the packet with PSN p.
constexpr std::byte payload_byte(std::uint32_t psn, std::size_t i) {
  return static_cast<std::byte>(psn * 31 + i * 7 + (i >> 8));
}
In packet(Opcode opcode, std::uint32_t psn, std::uint32_t length = kMtu);
In write_packet(Opcode opcode, std::uint32_t psn, std::uint32_t length, std::uint64_t address,
                std::uint32_t total);
In read_request(std::uint32_t psn, std::uint64_t address, std::uint32_t length);
In fetch_add_request(std::uint32_t psn, std::uint64_t address, std::uint64_t add);
In compare_swap_request(std::uint32_t psn, std::uint64_t address, std::uint64_t compare,
                        std::uint64_t swap);
In atomic_ack(std::uint32_t psn, std::uint64_t original);
In ack(std::uint32_t psn, std::uint8_t credits = syndrome::kNoCredits, std::uint32_t msn = 0);
In nak(std::uint32_t psn, std::uint8_t code);
In message(MigrationMessage message, bool sign = true);

// --- What came out
// ----------------------------------------------------------------------------------
struct Out {
  wire::Header header;
  std::vector<std::byte> payload;
  port::Endpoint to;
};

struct ScriptOptions {
  QueueLimits limits{
      .max_send_wr = 64, .max_send_sge = 4, .max_inline = 64, .shared_receive_queue = true};
  MigrationSettings settings{.enabled = false};
  RtrAttributes rtr{.peer = kPeer,
                    .peer_qpn = kPeerQpn,
                    .mtu = kMtu,
                    .expected_psn = kPeerPsn,
                    .max_dest_rd_atomic = 4,
                    .min_rnr_timer = 12};
  RtsAttributes rts{.next_psn = kOurPsn,
                    .timeout = 14,  // 67.1 ms
                    .retry_count = 3,
                    .rnr_retry = 3,
                    .max_rd_atomic = 4};
  bool credits_unused = true;
  bool to_rts = true;
};
ScriptOptions with_migration();

class Script {
 public:
  explicit Script(const ScriptOptions& options = {});
  ~Script();

  // --- In. Each call ends with transmit() until nothing more can be sent.
  void post(const Request& request);
  void post_receive(std::uint64_t wr_id, std::uint32_t length = 8192);  // at kReceive
  void post_receive_to(std::uint32_t srqn, std::uint64_t wr_id);
  template <typename... Packets>
  void inject(Packets&&... packets) {  // one batch: all arrive before anything is sent
    (deliver(packets), ...);
    run();
  }
  void advance(Time by);  // with the timers on the way
  void run();

  // --- Out.
  Out expect(Opcode opcode, std::uint32_t psn);
  Out expect_ack(std::uint32_t psn);  // a positive one
  Out expect_nak(std::uint32_t psn, std::uint8_t code);
  MigrationMessage expect_message(MigrationType type, const port::Endpoint& to = kPeer);
  void expect_requests(std::uint32_t first_psn, std::uint32_t last_psn);  // any opcode
  void expect_silence();
  SendCompletion expect_completion(std::uint64_t wr_id, Status status = Status::kSuccess);
  ReceiveCompletion expect_receive(std::uint64_t wr_id, Status status = Status::kSuccess);
  void expect_event(Host::Event event);
  void expect_original(std::uint32_t psn, std::uint64_t original);  // an ATOMIC acknowledge
  std::uint64_t word(std::uint64_t address);                        // in the byte order of the host
  void set_word(std::uint64_t address, std::uint64_t value);
  void expect_memory(std::uint64_t address, std::uint32_t psn, std::size_t length);
  void forget_output() { out_.clear(); }

  // --- The migration protocol.
  void become_ferry();  // HELLO, HELLO_ACK, ACK
  // Saves, makes a fresh connection with the same limits, loads. The new wire QPN takes effect at
  // resume().
  void move_to(const port::Endpoint& place, std::uint32_t wire_qpn);
  TransportStatus status() const { return qp->status(); }

  ScriptOptions options;
  FakeHost host{1 << 20};
  std::unique_ptr<Connection> qp;
  Time now = seconds(1);
  bool check_accounting = true;

 private:
  void deliver(const In& in);
  ReceiveRequest receive(std::uint64_t wr_id, std::uint32_t length) const;
  std::deque<Out> out_;
};

inline constexpr std::uint64_t kReceive = 0x80000;

}  // namespace ferry::transport::test
