#include <algorithm>
#include <array>
#include <cstring>

#include "input.h"
#include "rnic/image.h"
#include "transport/stopped.h"
#include "wire/icrc.h"
#include "wire/migration.h"

// Packets as an RNIC receives them: its QPs of every type are at RTS, and what comes is verified,
// parsed and taken in by engine and transport; between packets the program posts and polls, time
// passes, QPs are reset and connected again, and the RNIC is stopped, answered for by a stand-in,
// and resumed.
//
//   input = { op:8 … }     op & 15, qp = op >> 4 & 7
//     0…7  a packet comes to the QP: flags:8 length:8 fill:8 bytes[length]; bytes from BTH on, then
//          fill · 16 zero bytes, pad to a multiple of 4, and a right ICRC
//          flags: 1 from another address, 2 a wrong ICRC, 4 the PSN counts from the QP's ePSN, 8
//          from its first unacknowledged PSN, 16 key, address and Q_Key are right, 32 the MAC and
//          the cookies are right, 64 the destination QPN is that of the bytes
//     8    post a request: operation:8 length:16       9   post a receive: length:16
//     10   2^(n % 38) ns pass: n:8                      11  stop, a stand-in answers: n:8 (1:
//     commit) 12   resume                                       13  poll 14   the QP to n:8 % 3:
//     SQD, RTS; RTS; RESET and through to RTS 15   stop, describe, restore elsewhere, resume
namespace ferry::fuzz {
namespace {

using namespace rnic::testing;
using rnic::Context;
using rnic::Engine;
using wire::MigrationType;

constexpr std::size_t kMemory = 16 << 10;
constexpr std::uint64_t kIova = 0x10000;  // where the peer sees the memory
constexpr std::uint32_t kPeerQpn = 0x4321;
constexpr std::uint32_t kQkey = 0x1234;
constexpr std::uint64_t kPeerCookie = 0xBBBB;
constexpr unsigned kRights = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                             IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr std::array kTypes = {IBV_QPT_RC, IBV_QPT_RC,       IBV_QPT_UC,
                               IBV_QPT_UD, IBV_QPT_XRC_SEND, IBV_QPT_XRC_RECV};

const port::Endpoint kPeer{port::Address::from_ipv4(0x0A000002), 4791};
const port::Endpoint kElsewhere{port::Address::from_ipv4(0x0A000003), 4791};

struct One {  // QP
  device::Qp* qp = nullptr;
  ibv_qp_type type = IBV_QPT_RC;
  std::uint64_t cookie = 0;  // that it sent in HELLO
};

class Run {
 public:
  Run() {
    network_.set_filter([this](const auto& from, const auto&, auto bytes) {
      if (from == us_) sent(bytes);
      return from != us_;  // nobody else is there
    });
    peer_ = network_.attach(kPeer);
    elsewhere_ = network_.attach(kElsewhere);
    context_ = open(1, &sink_);
    us_ = {port::Address::from_ipv4(0x0A000001), 4791};
    set_up();
  }

  void go(Input in) {
    for (unsigned ops = 0; !in.empty() && ops < 200; ++ops) {
      const std::uint8_t op = in.byte();
      One& one = qps_[(op >> 4 & 7) % qps_.size()];
      switch (op & 15) {
        default: packet(one, in); break;
        case 8: post_send(one, in); break;
        case 9: post_receive(one, in); break;
        case 10:
          network_.advance_to(network_.now() + transport::Time(std::int64_t{1} << in.byte() % 38));
          break;
        case 11: stop(in.byte()); break;
        case 12: go_on(); break;
        case 13: poll(); break;
        case 14: modify(one, in.byte()); break;
        case 15: restore_elsewhere(); break;
      }
      turn();
    }
    go_on();
    for (int i = 0; i < 4; ++i) {
      network_.advance_to(network_.now() + std::chrono::seconds(30));
      turn();
      poll();
    }
  }

 private:
  std::unique_ptr<Context> open(unsigned host, Sink* sink) {
    Context::Options options;
    options.sink = sink;
    options.environment = &environment_;
    options.ports = ports_;
    options.with_thread = false;
    options.netdev.name = "sim0";
    options.netdev.mtu = 9000;
    options.netdev.guid = host;
    options.netdev.addresses = {port::Address::from_ipv4(0x0A000000 + host)};
    int error = 0;
    auto context = Context::open(options, &error);
    require(context != nullptr, "an RNIC opens");
    return context;
  }

  void set_up() {
    bool good = context_->alloc_pd(&pd_) == 0 && context_->create_cq({256}, &cq_) == 0 &&
                context_->open_xrcd({}, &xrcd_) == 0;
    device::MrInit region{pd_, memory_.data(), kMemory, kIova, kRights};
    good = good && context_->reg_mr(region, &mr_) == 0;
    device::SrqInit srq;
    srq.pd = pd_;
    srq.cq = cq_;
    srq.xrcd = xrcd_;
    srq.attributes = {16, 2, 0};
    good = good && context_->create_srq(&srq, &srq_) == 0;
    for (std::size_t i = 0; i < kTypes.size(); ++i) {
      device::QpInit init;
      init.type = kTypes[i];
      if (kTypes[i] == IBV_QPT_XRC_RECV) {
        init.xrcd = xrcd_;
      } else {
        init.pd = pd_;
        init.send_cq = init.recv_cq = cq_;
        init.cap = {16, kTypes[i] == IBV_QPT_XRC_SEND ? 0u : 16u, 2, 2, 32};
      }
      qps_[i].type = kTypes[i];
      good = good && context_->create_qp(&init, &qps_[i].qp) == 0;
    }
    require(good, "objects are made");
    for (One& one : qps_) connect(one);
    turn();
    for (One& one : qps_) {
      // The second RC QP's peer stays unknown.
      if (&one != &qps_[1] && one.type != IBV_QPT_UD) hello(one);
    }
    turn();
  }

  void connect(One& one) {
    ibv_qp_attr a = attributes(IBV_QPS_INIT, kPeerQpn, {});
    std::memcpy(a.ah_attr.grh.dgid.raw, kPeer.address.bytes.data(), 16);
    a.qp_access_flags = kRights & ~unsigned{IBV_ACCESS_LOCAL_WRITE};
    a.qkey = kQkey;
    a.path_mtu = IBV_MTU_256;
    const bool datagram = one.type == IBV_QPT_UD, uc = one.type == IBV_QPT_UC;
    one.qp->modify(
        a, datagram ? IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY : kInitMask);
    const int responder = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
    const int requester =
        IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT;
    a.qp_state = IBV_QPS_RTR;
    one.qp->modify(a, datagram                             ? int{IBV_QP_STATE}
                      : uc || one.type == IBV_QPT_XRC_SEND ? kRtrMask & ~responder
                                                           : kRtrMask);
    a.qp_state = IBV_QPS_RTS;
    one.qp->modify(a, datagram || uc                 ? IBV_QP_STATE | IBV_QP_SQ_PSN
                      : one.type == IBV_QPT_XRC_RECV ? (kRtsMask & ~requester) | IBV_QP_TIMEOUT
                                                     : kRtsMask);
    require(one.qp->state() == IBV_QPS_RTS, "a QP gets to RTS");
  }

  // The peer's part of the handshake.
  void hello(One& one) {
    wire::MigrationMessage message{.type = MigrationType::kHelloAck,
                                   .source_qpn = kPeerQpn,
                                   .cookie = kPeerCookie,
                                   .echo = one.cookie};
    std::vector<std::byte> bytes(wire::packet_size(wire::Opcode::kMigration, 80));
    wire::Header header;
    header.opcode = wire::Opcode::kMigration;
    header.dest_qpn = status(one).wire_qpn;
    wire::encode_header(header, 80, bytes);
    wire::encode(message, std::span<std::byte, 80>(bytes.data() + wire::kBthSize, 80));
    wire::seal(bytes, kPeer, us_, 0);
    send(*peer_, bytes);
  }

  device::QpStatus status(const One& one) {
    std::vector<device::QpStatus> all;
    context_->status(&all);
    for (const auto& status : all) {
      if (status.qpn == one.qp->qpn()) return status;
    }
    return {};
  }

  void send(port::SimPort& from, std::span<const std::byte> bytes) {
    std::uint16_t identification = 0;
    const auto out = from.reserve(us_, bytes.size(), &identification);
    if (out.empty()) return;  // longer than any packet
    std::copy(bytes.begin(), bytes.end(), out.begin());
    from.flush();
    network_.advance_to(network_.now() + std::chrono::microseconds(5));
  }

  // What we send, we understand.
  void sent(std::span<const std::byte> bytes) {
    const auto packet = wire::parse(bytes);
    require(packet.has_value(), "what was sent can be read");
    const auto message = wire::parse_migration(packet->payload);
    if (!message || message->type != MigrationType::kHello) return;
    for (One& one : qps_) {
      if (one.qp != nullptr && one.qp->qpn() == message->source_qpn) one.cookie = message->cookie;
    }
  }

  void packet(One& one, Input& in) {
    const std::uint8_t flags = in.byte(), length = in.byte(), fill = in.byte();
    std::vector<std::byte> bytes = in.bytes(length);
    bytes.resize(std::max<std::size_t>(bytes.size(), wire::kBthSize));
    bytes.resize((bytes.size() + fill * 16 + 3) & ~std::size_t{3});
    bytes.resize(bytes.size() + wire::kIcrcSize);
    const device::QpStatus now = status(one);
    const auto put24 = [&](std::size_t at, std::uint32_t value) {
      for (unsigned i = 0; i < 3; ++i) bytes[at + i] = std::byte(value >> (16 - 8 * i));
    };
    const auto psn = std::to_integer<std::uint32_t>(bytes[9]) << 16 |
                     std::to_integer<std::uint32_t>(bytes[10]) << 8 |
                     std::to_integer<std::uint32_t>(bytes[11]);
    if (!(flags & 64)) put24(5, now.wire_qpn);
    if (flags & 4) put24(9, psn + now.expected_psn);
    if (flags & 8) put24(9, psn + now.first_unacked_psn);
    if (flags & (16 | 32)) mend(one, flags, bytes);
    wire::seal(bytes, flags & 1 ? kElsewhere : kPeer, us_, 0);
    if (flags & 2) bytes.back() ^= std::byte{1};
    send(flags & 1 ? *elsewhere_ : *peer_, bytes);
  }

  // Writes the headers again, with the keys and the MAC that a peer would know.
  void mend(const One& one, unsigned flags, std::vector<std::byte>& bytes) {
    const auto packet = wire::parse(bytes);
    if (!packet) return;
    wire::Header header = packet->header;
    const std::vector<std::byte> payload(packet->payload.begin(), packet->payload.end());
    if (flags & 16) {
      header.reth.rkey = header.atomic.rkey = header.invalidate_rkey = mr_->rkey();
      header.reth.virtual_address = kIova + header.reth.virtual_address % kMemory;
      header.atomic.virtual_address = kIova + header.atomic.virtual_address % kMemory;
      header.xrc_srqn = srq_->number();
      header.deth.qkey = kQkey;
    }
    bytes.assign(wire::packet_size(header.opcode, payload.size()), std::byte{});
    wire::encode_header(header, payload.size(), bytes);
    const auto body = std::span(bytes).subspan(wire::header_size(header.opcode));
    std::copy(payload.begin(), payload.end(), body.begin());
    auto message = wire::parse_migration(payload);
    if (!(flags & 32) || !message) return;
    message->source_qpn = kPeerQpn;
    if (message->cookie != 0) message->cookie = kPeerCookie;
    if (message->echo != 0) message->echo = one.cookie;
    message->mac = wire::mac_of(*message, one.qp->qpn(), wire::mac_key(kPeerCookie, one.cookie));
    wire::encode(*message, body.first<wire::kMigrationPayload>());
  }

  void post_send(One& one, Input& in) {
    static constexpr std::array kOperations = {IBV_WR_SEND,          IBV_WR_SEND_WITH_IMM,
                                               IBV_WR_RDMA_WRITE,    IBV_WR_RDMA_WRITE_WITH_IMM,
                                               IBV_WR_RDMA_READ,     IBV_WR_ATOMIC_CMP_AND_SWP,
                                               IBV_WR_SEND_WITH_INV, IBV_WR_ATOMIC_FETCH_AND_ADD};
    const auto operation = kOperations[in.byte() % kOperations.size()];
    std::uint32_t length = in.number(2) % 2048;
    if (operation == IBV_WR_ATOMIC_CMP_AND_SWP || operation == IBV_WR_ATOMIC_FETCH_AND_ADD) {
      length = 8;
    }
    Send request(operation, ++wr_id_, memory_.data(), length, mr_);
    request.sge.addr = kIova;
    if (length == 8) {
      request.atomic(memory_.data(), 1, 2, 3);
    } else if (one.type == IBV_QPT_UD) {
      request.wr.wr.ud.ah = nullptr;
      return;  // without an address handle; what it receives is what matters
    } else {
      request.remote(memory_.data(), 1);
    }
    request.wr.qp_type.xrc.remote_srqn = 5;
    request.post(one.qp);
  }

  void post_receive(One& one, Input& in) {
    const std::uint32_t length = in.number(2) % 4096;
    if (one.type == IBV_QPT_XRC_RECV) {
      receive(srq_, length);
    } else if (one.type != IBV_QPT_XRC_SEND) {
      receive(one.qp, length);
    }
  }
  template <typename Queue>
  void receive(Queue* queue, std::uint32_t length) {
    ibv_sge sge{kIova + 8192, length, mr_->lkey()};
    ibv_recv_wr wr{};
    wr.wr_id = ++wr_id_;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    queue->post_recv(&wr, &bad);
  }

  void poll() {
    ibv_wc wc{};
    while (cq_->poll(1, &wc) == 1) continue;
  }

  void modify(One& one, std::uint8_t n) {
    if (stand_in_) return;
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_SQD;
    if (n % 3 == 0) one.qp->modify(a, IBV_QP_STATE);
    a.qp_state = IBV_QPS_RTS;
    if (n % 3 != 2) {
      one.qp->modify(a, IBV_QP_STATE);
      return;
    }
    a.qp_state = IBV_QPS_RESET;
    one.qp->modify(a, IBV_QP_STATE);
    connect(one);
  }

  void stop(std::uint8_t n) {
    if (stand_in_) {
      if (n & 1) stand_in_->stand_in().committed(kElsewhere, 0, 1, network_.now());
      return;
    }
    std::uint32_t unacked = 0;
    require(context_->quiesce(std::chrono::seconds(1), &unacked) == 0, "an RNIC stops");
    turn();
    std::vector<rnic::Slot> slots;
    require(context_->detach(&slots) == 0 && slots.size() == 1, "an RNIC gives its socket away");
    stand_in_ = std::make_unique<SimStandIn>(*ports_, slots[0], network_.now());
    require(stand_in_->well_formed(), "a stand-in understands the entries");
    slot_ = std::move(slots[0]);
  }

  void go_on() {
    if (!stand_in_) return;
    slot_.descriptor = stand_in_->release();
    stand_in_.reset();
    std::vector<rnic::Slot> slots;
    slots.push_back(std::move(slot_));
    require(context_->attach(std::move(slots)) == 0, "an RNIC takes its socket back");
    context_->resume(true);
  }

  void restore_elsewhere() {
    if (stand_in_) return;
    std::uint32_t unacked = 0;
    require(context_->quiesce(std::chrono::seconds(1), &unacked) == 0, "an RNIC stops");
    std::vector<std::byte> image;
    int count = 0;
    require(context_->describe(&image, &count) == 0, "a stopped RNIC can be described");
    context_->resume(true);
    Sink sink;
    auto other = open(40, &sink);
    Restored restored;
    require(restore(*other, image, &restored) == 0, "what was written can be restored");
  }

  // Of the engine, or of the stand-in.
  void turn() {
    if (stand_in_) {
      stand_in_->run(network_.now());
      return;
    }
    Engine::Lock lock(context_->engine());
    for (int i = 0; i < 3; ++i) context_->engine().run(network_.now());
  }

  alignas(4096) std::array<std::byte, kMemory> memory_{};
  port::SimNetwork network_{1};
  SimEnvironment environment_{network_, 2};
  std::shared_ptr<SimPortSource> ports_ = std::make_shared<SimPortSource>(network_);
  port::Endpoint us_;
  std::unique_ptr<port::SimPort> peer_, elsewhere_;
  Sink sink_;
  std::unique_ptr<SimStandIn> stand_in_;
  rnic::Slot slot_;
  std::unique_ptr<Context> context_;
  device::Pd* pd_ = nullptr;
  device::Cq* cq_ = nullptr;
  device::Xrcd* xrcd_ = nullptr;
  device::Mr* mr_ = nullptr;
  device::Srq* srq_ = nullptr;
  std::array<One, kTypes.size()> qps_;
  std::uint64_t wr_id_ = 0;
};

}  // namespace
}  // namespace ferry::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ferry::fuzz::Run().go({data, size});
  return 0;
}
