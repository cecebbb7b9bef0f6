#include "transport/script.h"

#include <cstring>

namespace ferry::transport::test {

port::Endpoint endpoint(unsigned host, std::uint16_t udp_port) {
  return {port::Address::from_ipv4(0x0A000000 + host), udp_port};
}

namespace {

Request request(Operation operation, std::uint64_t wr_id, std::uint32_t length) {
  Request result;
  result.request = {.wr_id = wr_id,
                    .operation = operation,
                    .signaled = true,
                    .remote_address = kRemote,
                    .rkey = kRkey,
                    .length = length,
                    .sge_count = 1};
  result.sges = {{0, length, kLkey}};
  return result;
}

}  // namespace

Request Request::unsignaled() && {
  request.signaled = false;
  return std::move(*this);
}
Request Request::fenced() && {
  request.fence = true;
  return std::move(*this);
}
Request Request::solicited() && {
  request.solicited = true;
  return std::move(*this);
}
Request Request::immediate(std::uint32_t value) && {
  request.operation =
      request.operation == Operation::kSend ? Operation::kSendImm : Operation::kWriteImm;
  request.immediate = value;
  return std::move(*this);
}
Request send(std::uint64_t wr_id, std::uint32_t length) {
  return request(Operation::kSend, wr_id, length);
}
Request write(std::uint64_t wr_id, std::uint32_t length) {
  return request(Operation::kWrite, wr_id, length);
}
Request read(std::uint64_t wr_id, std::uint32_t length) {
  return request(Operation::kRead, wr_id, length);
}

Request Request::invalidating(std::uint32_t rkey) && {
  request.operation = Operation::kSendInvalidate;
  request.invalidate_rkey = rkey;
  return std::move(*this);
}
Request Request::to_srq(std::uint32_t srqn) && {
  request.remote_srqn = srqn;
  return std::move(*this);
}
Request fetch_add(std::uint64_t wr_id, std::uint64_t add) {
  Request result = request(Operation::kFetchAdd, wr_id, 8);
  result.request.compare_add = add;
  return result;
}
Request compare_swap(std::uint64_t wr_id, std::uint64_t compare, std::uint64_t swap) {
  Request result = request(Operation::kCompareSwap, wr_id, 8);
  result.request.compare_add = compare;
  result.request.swap = swap;
  return result;
}
Request atomic_write(std::uint64_t wr_id) {
  return request(Operation::kAtomicWrite, wr_id, 8);
}
Request flush(std::uint64_t wr_id, std::uint32_t length, wire::Feth what) {
  Request result = request(Operation::kFlush, wr_id, length);
  result.request.flush = what;
  result.request.sge_count = 0;
  return result;
}
Request local_invalidate(std::uint64_t wr_id, std::uint32_t rkey) {
  Request result;
  result.request = {.wr_id = wr_id,
                    .operation = Operation::kLocalInvalidate,
                    .signaled = true,
                    .invalidate_rkey = rkey};
  return result;
}
Request bind(std::uint64_t wr_id, std::uint32_t rkey) {
  Request result;
  result.request = {.wr_id = wr_id, .operation = Operation::kBindWindow, .signaled = true};
  result.binding = {.window = 3,
                    .rkey = rkey,
                    .lkey = kLkey,
                    .address = 0x100,
                    .length = 0x80,
                    .access = kRemoteRead};
  return result;
}

namespace {

bool names_place(MigrationType type) {
  return type == MigrationType::kResume || type == MigrationType::kResumeAck;
}

}  // namespace

In In::asks_ack() && {
  header.ack_request = true;
  return std::move(*this);
}
In In::from(const port::Endpoint& endpoint) && {
  if (says) {
    if (names_place(says->type)) says->location = endpoint;
    *this = message(*says);
  }
  source = endpoint;
  return std::move(*this);
}
In In::replayed_from(const port::Endpoint& endpoint) && {
  source = endpoint;
  return std::move(*this);
}
In In::immediate(std::uint32_t value) && {
  header.immediate = value;
  return std::move(*this);
}
In In::solicited() && {
  header.solicited = true;
  return std::move(*this);
}
In In::pkey(std::uint16_t value) && {
  header.pkey = value;
  return std::move(*this);
}
In In::key(std::uint32_t rkey) && {
  header.reth.rkey = rkey;
  return std::move(*this);
}

In In::invalidates(std::uint32_t rkey) && {
  header.invalidate_rkey = rkey;
  return std::move(*this);
}
In In::to_srq(std::uint32_t srqn) && {
  header.xrc_srqn = srqn;
  return std::move(*this).xrc();
}
In In::xrc() && {
  header.opcode = wire::in_service(wire::Service::kXrc, header.opcode);
  return std::move(*this);
}

In packet(Opcode opcode, std::uint32_t psn, std::uint32_t length) {
  In in;
  in.header.opcode = opcode;
  in.header.psn = psn;
  in.header.aeth = {syndrome::kAck | syndrome::kNoCredits, 0};
  for (std::uint32_t i = 0; i < length; ++i) in.payload.push_back(payload_byte(psn, i));
  return in;
}
In write_packet(Opcode opcode, std::uint32_t psn, std::uint32_t length, std::uint64_t address,
                std::uint32_t total) {
  In in = packet(opcode, psn, length);
  in.header.reth = {address, kRkey, total};
  return in;
}
In read_request(std::uint32_t psn, std::uint64_t address, std::uint32_t length) {
  return write_packet(Opcode::kRcReadRequest, psn, 0, address, length);
}
In fetch_add_request(std::uint32_t psn, std::uint64_t address, std::uint64_t add) {
  In in = packet(Opcode::kRcFetchAdd, psn, 0);
  in.header.atomic = {address, kRkey, add, 0};
  return in;
}
In compare_swap_request(std::uint32_t psn, std::uint64_t address, std::uint64_t compare,
                        std::uint64_t swap) {
  In in = packet(Opcode::kRcCompareSwap, psn, 0);
  in.header.atomic = {address, kRkey, swap, compare};
  return in;
}
In atomic_ack(std::uint32_t psn, std::uint64_t original) {
  In in = packet(Opcode::kRcAtomicAck, psn, 0);
  in.header.original = original;
  return in;
}
In ack(std::uint32_t psn, std::uint8_t credits, std::uint32_t msn) {
  In in = packet(Opcode::kRcAck, psn, 0);
  in.header.aeth = {static_cast<std::uint8_t>(syndrome::kAck | credits), msn};
  return in;
}
In nak(std::uint32_t psn, std::uint8_t code) {
  In in = packet(Opcode::kRcAck, psn, 0);
  in.header.aeth = {code, 0};
  return in;
}
In message(MigrationMessage message, bool sign) {
  const bool nak_stopped = message.type == MigrationType::kNakStopped;
  In in = packet(nak_stopped ? Opcode::kRcAck : Opcode::kMigration, 0, wire::kMigrationPayload);
  in.header.aeth = {syndrome::kNakStopped, 0};
  if (message.source_qpn == 0) message.source_qpn = kPeerQpn;
  if (sign && names_place(message.type) && message.location == port::Endpoint{}) {
    message.location = kPeer;
  }
  if (sign && message.type > MigrationType::kHelloDone) {
    in.says = message;
    message.mac = wire::mac_of(message, kOurQpn, wire::mac_key(kPeerCookie, kOurCookie));
  }
  wire::encode(message, std::span(in.payload).first<wire::kMigrationPayload>());
  return in;
}

ScriptOptions with_migration() {
  ScriptOptions options;
  options.settings.enabled = true;
  return options;
}

Script::Script(const ScriptOptions& given) : options(given) {
  host.local = kUs;
  host.random_bits = [] { return kOurCookie; };
  host.send = [this](Datagram datagram) {
    const auto parsed = wire::parse(datagram.bytes);
    ASSERT_TRUE(parsed);
    out_.push_back({parsed->header, {parsed->payload.begin(), parsed->payload.end()}, datagram.to});
  };
  for (std::size_t i = 0; i < host.memory().size(); ++i) {
    host.memory()[i] = static_cast<std::byte>(i * 13 + (i >> 10));
  }
  qp = std::make_unique<Connection>(host, options.limits, options.settings, kOurQpn, kOurQpn);
  qp->init();
  qp->to_rtr(options.rtr, now);
  if (options.to_rts) qp->to_rts(options.rts, now);
  if (options.credits_unused && options.to_rts) {
    In first = ack(wire::psn_sub(options.rts.next_psn, 1));
    if (options.limits.type != ConnectionType::kRc) first = std::move(first).xrc();
    qp->handle_packet(wire::Packet{first.header, {}}, options.rtr.peer, now);
  }
  if (!options.settings.enabled) run();
}

Script::~Script() {
  if (testing::Test::HasFatalFailure()) return;
  EXPECT_TRUE(out_.empty()) << out_.size() << " packets left, the first with opcode "
                            << int(out_.front().header.opcode) << " PSN "
                            << out_.front().header.psn;
  EXPECT_TRUE(host.sent.empty()) << "a send completion is left";
  EXPECT_TRUE(host.received.empty()) << "a receive completion is left";
  if (check_accounting) {
    EXPECT_EQ(host.accounted(), 0) << "bytes accounted as in flight";
  }
  EXPECT_FALSE(host.ever_negative());
  qp.reset();
  EXPECT_EQ(host.accounted(), 0);
}

void Script::run() {
  for (int i = 0; i < 10000 && qp->has_work(); ++i) {
    if (qp->transmit(now, 16) == 0) break;
  }
}

void Script::post(const Request& request) {
  SendRequest copy = request.request;
  copy.sges = request.sges.data();
  copy.binding = &request.binding;
  ASSERT_EQ(qp->post_send(copy), 0);
  run();
}

ReceiveRequest Script::receive(std::uint64_t wr_id, std::uint32_t length) const {
  ReceiveRequest receive;
  receive.wr_id = wr_id;
  receive.sges = {{kReceive, length, kLkey}};
  return receive;
}

void Script::post_receive(std::uint64_t wr_id, std::uint32_t length) {
  host.post_receive(receive(wr_id, length));
  qp->receive_posted(now);
  run();
}

void Script::post_receive_to(std::uint32_t srqn, std::uint64_t wr_id) {
  host.post_receive_to(srqn, receive(wr_id, 8192));
}

void Script::deliver(const In& in) {
  // Through the wire format and back, as a real packet.
  wire::Header header = in.header;
  header.dest_qpn = kOurQpn;
  std::vector<std::byte> bytes(wire::packet_size(header.opcode, in.payload.size()));
  wire::encode_header(header, in.payload.size(), bytes);
  if (!in.payload.empty()) {
    std::memcpy(bytes.data() + wire::header_size(header.opcode), in.payload.data(),
                in.payload.size());
  }
  const auto parsed = wire::parse(bytes);
  ASSERT_TRUE(parsed);
  qp->handle_packet(*parsed, in.source, now);
}

void Script::advance(Time by) {
  const Time end = now + by;
  while (qp->next_deadline() <= end) {
    now = std::max(now, qp->next_deadline());
    qp->handle_timeout(now);
    run();
  }
  now = end;
}

Out Script::expect(Opcode opcode, std::uint32_t psn) {
  if (out_.empty()) {
    ADD_FAILURE() << "no packet; expected opcode " << int(opcode) << " PSN " << psn;
    return {};
  }
  Out out = out_.front();
  out_.pop_front();
  EXPECT_EQ(int(out.header.opcode), int(opcode)) << "with PSN " << out.header.psn;
  EXPECT_EQ(out.header.psn, psn);
  return out;
}

Out Script::expect_ack(std::uint32_t psn) {
  const Out out = expect(Opcode::kRcAck, psn);
  EXPECT_EQ(out.header.aeth.syndrome & syndrome::kKindMask, syndrome::kAck);
  return out;
}

Out Script::expect_nak(std::uint32_t psn, std::uint8_t code) {
  const Out out = expect(Opcode::kRcAck, psn);
  EXPECT_EQ(int(out.header.aeth.syndrome), int(code));
  return out;
}

MigrationMessage Script::expect_message(MigrationType type, const port::Endpoint& to) {
  if (out_.empty()) {
    ADD_FAILURE() << "no packet; expected message " << int(type);
    return {};
  }
  const Out out = out_.front();
  out_.pop_front();
  const auto parsed = wire::parse_migration(out.payload);
  if (!parsed) {
    ADD_FAILURE() << "not a migration message but opcode " << int(out.header.opcode) << " PSN "
                  << out.header.psn;
    return {};
  }
  EXPECT_EQ(int(parsed->type), int(type));
  EXPECT_EQ(parsed->source_qpn, kOurQpn);
  EXPECT_TRUE(out.to == to);
  if (type > MigrationType::kHelloDone) {
    EXPECT_EQ(parsed->mac, wire::mac_of(*parsed, kPeerQpn, wire::mac_key(kOurCookie, kPeerCookie)));
  }
  return *parsed;
}

void Script::expect_requests(std::uint32_t first_psn, std::uint32_t last_psn) {
  for (std::uint32_t psn = first_psn; psn != wire::psn_add(last_psn, 1);
       psn = wire::psn_add(psn, 1)) {
    if (out_.empty()) {
      ADD_FAILURE() << "no packet; expected a request with PSN " << psn;
      return;
    }
    EXPECT_TRUE(wire::is_request(out_.front().header.opcode));
    EXPECT_EQ(out_.front().header.psn, psn);
    out_.pop_front();
  }
}

void Script::expect_original(std::uint32_t psn, std::uint64_t original) {
  EXPECT_EQ(expect(Opcode::kRcAtomicAck, psn).header.original, original);
}

std::uint64_t Script::word(std::uint64_t address) {
  std::uint64_t value = 0;
  std::memcpy(&value, host.memory().data() + address, sizeof value);
  return value;
}

void Script::set_word(std::uint64_t address, std::uint64_t value) {
  std::memcpy(host.memory().data() + address, &value, sizeof value);
}

void Script::expect_silence() {
  EXPECT_TRUE(out_.empty()) << "opcode " << int(out_.front().header.opcode) << " PSN "
                            << out_.front().header.psn;
}

SendCompletion Script::expect_completion(std::uint64_t wr_id, Status status) {
  if (host.sent.empty()) {
    ADD_FAILURE() << "no completion; expected that of " << wr_id;
    return {};
  }
  const SendCompletion completion = host.sent.front();
  host.sent.pop_front();
  EXPECT_EQ(completion.wr_id, wr_id);
  EXPECT_EQ(int(completion.status), int(status));
  return completion;
}

ReceiveCompletion Script::expect_receive(std::uint64_t wr_id, Status status) {
  if (host.received.empty()) {
    ADD_FAILURE() << "no receive completion; expected that of " << wr_id;
    return {};
  }
  const ReceiveCompletion completion = host.received.front();
  host.received.pop_front();
  EXPECT_EQ(completion.wr_id, wr_id);
  EXPECT_EQ(int(completion.status), int(status));
  return completion;
}

void Script::expect_event(Host::Event event) {
  ASSERT_FALSE(host.events.empty());
  EXPECT_EQ(int(host.events.front()), int(event));
  host.events.pop_front();
}

void Script::expect_memory(std::uint64_t address, std::uint32_t psn, std::size_t length) {
  for (std::size_t i = 0; i < length; ++i) {
    ASSERT_EQ(int(host.memory()[address + i]), int(payload_byte(psn, i))) << "byte " << i;
  }
}

void Script::become_ferry() {
  run();
  EXPECT_EQ(expect_message(MigrationType::kHello).cookie, kOurCookie);
  inject(message({.type = MigrationType::kHelloAck, .cookie = kPeerCookie, .echo = kOurCookie}));
  EXPECT_EQ(expect_message(MigrationType::kHelloDone).echo, kPeerCookie);
  EXPECT_EQ(int(status().peer_class), int(PeerClass::kFerry));
}

void Script::move_to(const port::Endpoint& place, std::uint32_t wire_qpn) {
  std::vector<std::byte> bytes;
  wire::ByteWriter out(&bytes);
  qp->save(out);
  qp = std::make_unique<Connection>(host, options.limits, options.settings, kOurQpn, wire_qpn);
  wire::ByteReader in(bytes);
  ASSERT_TRUE(qp->load(in));
  host.local = place;
}

}  // namespace ferry::transport::test
