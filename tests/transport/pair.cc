#include "transport/pair.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "port/slot.h"
#include "wire/psn.h"

namespace ferry::transport::test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

// Each side's memory: slots that WRITE targets, slots for local buffers, and a part that READs
// read.
constexpr std::uint64_t kSlotBytes = 6 * 1024;
constexpr std::uint64_t kSlots = 20;
constexpr std::uint64_t kWriteArea = 0;
constexpr std::uint64_t kLocalArea = kWriteArea + kSlots * kSlotBytes;
constexpr std::uint64_t kReceiveArea = kLocalArea + kSlots * kSlotBytes;
constexpr std::uint64_t kReadArea = kReceiveArea + kSlots * kSlotBytes;
constexpr std::uint64_t kCounter = kReadArea + kSlotBytes;  // of fetch-and-adds
constexpr std::uint64_t kSwapped = kCounter + 8;            // of compare-and-swaps
constexpr std::uint64_t kMemory = kSwapped + 8;
constexpr std::byte kPoison{0xA5};
constexpr std::uint32_t kSrq = 0x31;

std::byte pattern_byte(std::uint64_t pattern, std::uint64_t i) {
  const std::uint64_t x = (pattern * 0x9E3779B97F4A7C15ull) ^ (i * 0xBF58476D1CE4E5B9ull);
  return static_cast<std::byte>(x >> 56 ^ x >> 24);
}

bool is_atomic(Operation operation) {
  return operation == Operation::kCompareSwap || operation == Operation::kFetchAdd;
}

std::uint64_t read_pattern(int side) {
  return 77 + static_cast<std::uint64_t>(side);
}

}  // namespace

Pair::Pair(std::uint64_t seed, const PairOptions& options)
    : seed_(seed), options_(options), random_(seed * 2654435761u + 12345) {
  const double losses[] = {0, 0, 0.01, 0.03, 0.05};
  loss_ = losses[pick(0, 4)];
  duplication_ = chance(0.5) ? 0.03 : 0;
  reorder_ = chance(0.4) ? 0.05 : 0;
  full_ = chance(0.3) ? 0.2 : 0;
  delay_ = microseconds(pick(2, 60));
  step_ = microseconds(pick(5, 400));
  const std::uint32_t mtus[] = {256, 512, 1024, 4096};
  mtu_ = mtus[pick(0, 3)];
  max_length_ = chance(0.3) ? std::min<std::uint64_t>(mtu_ * 2, kSlotBytes) : kSlotBytes;
  signaled_ = chance(0.7) ? 0.6 : 0.05;
  quiet_tail_ = chance(0.5);
  const bool credits = chance(0.6);
  const std::uint64_t messages = pick(5, 60);
  const std::uint64_t window = chance(0.4) ? pick(mtu_ + 64, 20000) : 1 << 20;

  std::array<std::uint32_t, 2> psn;
  for (auto& p : psn) {
    p = chance(0.5) ? static_cast<std::uint32_t>(0x1000000 - pick(1, 40))
                    : static_cast<std::uint32_t>(pick(0, 0xFFFFFF));
  }
  const auto rd_atomic = static_cast<std::uint8_t>(pick(1, 4));
  for (int i = 0; i < 2; ++i) {
    sides_[i] = std::make_unique<Side>(kMemory);
    Side& side = *sides_[i];
    side.requests_left = messages;
    side.moves_left = options_.moves && !(options_.unmodified_peer && i == 1)
                          ? static_cast<unsigned>(pick(0, 4))
                          : 0;
    side.settings.enabled = !(options_.unmodified_peer && i == 1);
    side.settings.hello_repeats = options_.unmodified_peer ? 3 : 12;
    side.virtual_qpn = side.wire_qpn =
        port::make_qpn(0, static_cast<std::uint32_t>(100 + pick(0, 999)));
    side.host.local = new_endpoint(i, true);
    side.host.local.udp_port = port::udp_port_of_qpn(side.wire_qpn);
    side.host.window_bytes = static_cast<std::int64_t>(window);
    side.host.send = [this](Datagram datagram) { send(std::move(datagram)); };
    side.host.port_is_full = [this] { return full_ > 0 && chance(full_); };
    side.host.random_bits = [this] { return random_(); };
    for (std::uint64_t k = 0; k < kMemory; ++k) side.host.memory()[k] = kPoison;
    for (std::uint64_t k = 0; k < kSlotBytes; ++k) {
      side.host.memory()[kReadArea + k] = pattern_byte(read_pattern(i), k);
    }
    for (const std::uint64_t word : {kCounter, kSwapped}) {
      std::memset(side.host.memory().data() + word, 0, 8);
    }
    if (options_.xrc) side.host.srqs = {kSrq};
    if (options_.xrc && i == 1) side.requests_left = 0;
    side.connection = std::make_unique<Connection>(side.host, limits(i, credits), side.settings,
                                                   side.virtual_qpn, side.wire_qpn);
  }
  for (int i = 0; i < 2; ++i) {
    Side& side = *sides_[i];
    const Side& other = *sides_[1 - i];
    side.connection->init();
    side.connection->to_rtr({.peer = other.host.local,
                             .peer_qpn = other.virtual_qpn,
                             .mtu = mtu_,
                             .expected_psn = psn[1 - i],
                             .max_dest_rd_atomic = rd_atomic,
                             .min_rnr_timer = static_cast<std::uint8_t>(pick(1, 12))},
                            now_);
    side.connection->to_rts({.next_psn = psn[i],
                             .timeout = static_cast<std::uint8_t>(options_.told ? 14 : pick(8, 10)),
                             .retry_count = 7,
                             .rnr_retry = 7,
                             .max_rd_atomic = rd_atomic},
                            now_);
    side.end_psn = psn[i];
    if (options_.told && i == 0) side.connection->set_peer_retries(*options_.told);
    schedule(Event::Kind::kRequest, i, step_);
    schedule(Event::Kind::kReceive, i, step_);
    if (side.moves_left > 0) schedule(Event::Kind::kMove, i, step_ * pick(1, 40));
  }
}

Pair::~Pair() = default;

QueueLimits Pair::limits(int side, bool credits) const {
  return {.max_send_wr = 16,
          .max_send_sge = 4,
          .max_inline = 200,
          .shared_receive_queue = options_.xrc || !credits,
          .type = !options_.xrc ? ConnectionType::kRc
                  : side == 0   ? ConnectionType::kXrcInitiator
                                : ConnectionType::kXrcTarget};
}

std::string Pair::describe() const {
  std::ostringstream out;
  out << "mtu " << mtu_ << " loss " << loss_ << " dup " << duplication_ << " reorder " << reorder_
      << " full " << full_ << " delay " << delay_.count() << " ns, step " << step_.count()
      << " ns, window " << sides_[0]->host.window_bytes << "; at " << now_.count() << " ns";
  for (const auto& side : sides_) {
    out << "\n  side: posted " << side->next_request << " completed " << side->next_completion
        << " to arrive " << side->to_arrive.size() << " stops " << side->stops;
    if (!side->connection) continue;
    const TransportStatus s = side->connection->status();
    out << " state " << int(s.state) << " migration " << int(s.migration) << " class "
        << int(s.peer_class) << " resume pending " << s.resume_pending << " epoch " << s.epoch
        << " next " << s.next_psn << " una " << s.first_unacked_psn << " epsn " << s.expected_psn
        << " forged " << s.counters.dropped_forged << " timeouts " << s.counters.timeouts;
  }
  return out.str();
}

void Pair::fail(const std::string& what) {
  if (failure_.empty()) failure_ = what;
}

port::Endpoint Pair::new_endpoint(int side, bool other_address) {
  port::Endpoint endpoint = sides_[side]->host.local;
  ++places_;
  if (other_address) endpoint.address = port::Address::from_ipv4(0x0A000000 + places_);
  return endpoint;
}

void Pair::schedule(Event::Kind kind, int side, Time in) {
  events_.push({now_ + in, order_++, kind, side});
}

// FERRY_TRACE=1 prints every packet, when it is sent: to replay a seed with.
void Pair::trace(const Datagram& datagram, int copies) const {
  static const bool wanted = std::getenv("FERRY_TRACE") != nullptr;
  if (!wanted) return;
  const auto packet = wire::parse(datagram.bytes);
  if (!packet) return;
  const wire::Header& h = packet->header;
  const auto message = wire::parse_migration(packet->payload);
  std::printf("%10lld ns  %u > %u  opcode 0x%02x psn %u len %zu%s syndrome 0x%02x message %d%s\n",
              static_cast<long long>(now_.count()), unsigned(datagram.from.address.bytes[15]),
              unsigned(datagram.to.address.bytes[15]), unsigned(h.opcode), h.psn,
              packet->payload.size(), h.ack_request ? " ackreq" : "", unsigned(h.aeth.syndrome),
              message ? int(message->type) : 0,
              copies == 0   ? "  LOST"
              : copies == 2 ? "  x2"
                            : "");
}

void Pair::send(Datagram datagram) {
  ++totals_.packets;
  const int copies = chance(loss_) ? 0 : chance(duplication_) ? 2 : 1;
  trace(datagram, copies);
  for (int i = 0; i < copies; ++i) {
    Time delay = delay_;
    if (chance(reorder_)) delay += Time(pick(0, static_cast<std::uint64_t>(delay_.count()) * 6));
    events_.push({now_ + delay, order_++, Event::Kind::kPacket, 0, datagram});
  }
}

void Pair::deliver(const Datagram& datagram) {
  const auto packet = wire::parse(std::span(datagram.bytes.data(), datagram.bytes.size()));
  if (!packet) return fail("a packet that does not parse");
  for (auto& side : sides_) {
    if (side->connection && side->host.local == datagram.to &&
        side->wire_qpn == packet->header.dest_qpn) {
      // Bare of moves, the old place may still have its stand-in: exactly one reads the socket.
      if (side->stand_in == nullptr) {
        totals_.atomic_requests += wire::has_atomic(packet->header.opcode);
        side->connection->handle_packet(*packet, datagram.from, now_);
        return;
      }
    }
    const auto stand_in = side->stand_ins.find(datagram.to);
    if (stand_in != side->stand_ins.end()) {
      stand_in->second->handle_packet(*packet, datagram.from, now_);
      return;
    }
  }
}

void Pair::post_receive(int index) {
  Side& side = *sides_[index];
  const std::uint64_t id = side.next_receive;
  if (id - side.next_received >= kSlots) return;
  ReceiveRequest receive;
  receive.wr_id = id;
  std::uint64_t at = kReceiveArea + id % kSlots * kSlotBytes;
  std::uint64_t left = kSlotBytes;
  receive.sges.resize(pick(1, 4));
  for (Sge& sge : receive.sges) {
    const std::uint64_t part = &sge == &receive.sges.back() ? left : pick(0, left / 2);
    sge = {at, static_cast<std::uint32_t>(part), kLkey};
    at += part;
    left -= part;
  }
  ++side.next_receive;
  side.receives[id] = receive;
  if (options_.xrc) {
    side.host.post_receive_to(kSrq, receive);
  } else {
    side.host.post_receive(receive);
  }
  if (side.connection) side.connection->receive_posted(now_);
}

void Pair::post_request(int index) {
  Side& side = *sides_[index];
  Side& other = *sides_[1 - index];
  if (!side.connection || side.requests_left == 0) return;
  // A slot must not be used again before its request completed.
  if (side.next_request - side.next_completion >= kSlots / 2) return;
  const Message message = make_message(index);
  const bool local_only = message.operation == Operation::kLocalInvalidate ||
                          message.operation == Operation::kBindWindow;
  const bool brings_data = message.operation == Operation::kRead || is_atomic(message.operation);

  std::byte* local = side.host.memory().data() + message.local;
  for (std::uint64_t i = 0; i < kSlotBytes; ++i) {
    local[i] = brings_data || i >= message.length ? kPoison : pattern_byte(message.pattern, i);
  }
  std::vector<Sge> sges;
  std::uint64_t at = message.local;
  std::uint64_t left = message.length;
  const std::uint64_t parts = local_only || message.operation == Operation::kFlush ? 0 : pick(1, 4);
  for (std::uint64_t i = 0; i < parts; ++i) {
    const std::uint64_t part = i + 1 == parts ? left : pick(0, left);
    sges.push_back({at, static_cast<std::uint32_t>(part), kLkey});
    at += part;
    left -= part;
  }
  SendRequest request{.wr_id = side.next_request,
                      .operation = message.operation,
                      .signaled = message.signaled,
                      .solicited = chance(0.2),
                      .fence = chance(0.2),
                      .immediate = message.immediate,
                      .remote_address = message.remote,
                      .rkey = kRkey,
                      .length = message.length,
                      .sge_count = static_cast<std::uint8_t>(sges.size()),
                      .sges = sges.data(),
                      .invalidate_rkey = message.key,
                      .remote_srqn = options_.xrc ? kSrq : 0};
  const WindowBinding binding{.rkey = message.key};
  switch (message.operation) {
    case Operation::kFetchAdd: request.compare_add = 1; break;
    case Operation::kCompareSwap:
      // The compare fails when the pattern is odd.
      request.compare_add = message.original + message.pattern % 2;
      request.swap = message.pattern;
      break;
    case Operation::kBindWindow: request.binding = &binding; break;
    case Operation::kFlush:
      request.flush = {wire::Feth::kGlobalVisibility, wire::Feth::kRange};
      break;
    default: break;
  }
  if (!brings_data && parts > 0 && message.length <= 200 && chance(0.5)) {
    request.inline_data = local;
    request.sge_count = 0;
  }
  const int result = side.connection->post_send(request);
  if (result == ENOMEM) return;
  if (result != 0) return fail("post_send failed");
  if (message.operation == Operation::kSendInvalidate) {
    other.host.invalidatable.insert(message.key);
  } else if (message.operation == Operation::kLocalInvalidate) {
    side.host.invalidatable.insert(message.key);
  } else if (message.operation == Operation::kFetchAdd) {
    ++side.counter;
  } else if (message.operation == Operation::kCompareSwap && message.pattern % 2 == 0) {
    side.swapped = message.pattern;
  }
  side.atomics += is_atomic(message.operation);
  side.flushes += message.operation == Operation::kFlush;
  if (request.inline_data) std::memset(local, 0xEE, message.length);  // it was copied
  ++side.next_request;
  --side.requests_left;
  if (!local_only) {
    const bool one = is_atomic(message.operation) || message.operation == Operation::kFlush;
    const std::uint64_t psns =
        one ? 1 : std::max<std::uint64_t>((message.length + mtu_ - 1) / mtu_, 1);
    side.end_psn = wire::psn_add(side.end_psn, static_cast<std::uint32_t>(psns));
  }
  ++totals_.messages;
  side.requests[request.wr_id] = message;
  const bool arrives =
      message.operation == Operation::kSend || message.operation == Operation::kSendImm ||
      message.operation == Operation::kSendInvalidate || message.operation == Operation::kWriteImm;
  if (arrives) other.to_arrive.push_back(message);
}

Pair::Message Pair::make_message(int index) {
  const Side& side = *sides_[index];
  Message message{};
  message.operation = static_cast<Operation>(pick(0, static_cast<int>(Operation::kFlush)));
  message.length = chance(0.1) ? 0 : pick(1, max_length_);
  message.pattern = seed_ * 1000 + side.next_request * 2 + static_cast<std::uint64_t>(index);
  message.immediate = static_cast<std::uint32_t>(random_());
  message.signaled = chance(signaled_) || (side.requests_left == 1 && !quiet_tail_) ||
                     side.next_request - side.next_completion + 1 >= kSlots / 2;
  message.local = kLocalArea + side.next_request % kSlots * kSlotBytes;
  message.remote = kWriteArea + side.next_request % kSlots * kSlotBytes;
  message.key = static_cast<std::uint32_t>(side.next_request * 2 + index + 1);
  switch (message.operation) {
    case Operation::kRead:
    case Operation::kFlush: message.remote = kReadArea + (kSlotBytes - message.length) / 2; break;
    case Operation::kFetchAdd:
      message.length = 8;
      message.remote = kCounter;
      message.original = side.counter;
      break;
    case Operation::kCompareSwap:
      message.length = 8;
      message.remote = kSwapped;
      message.pattern = random_();
      message.original = side.swapped;
      break;
    case Operation::kAtomicWrite: message.length = 8; break;
    case Operation::kLocalInvalidate:
    case Operation::kBindWindow: message.length = 0; break;
    default: break;
  }
  return message;
}

void Pair::check_data(Side& at, const Message& message, std::uint64_t address, const char* what) {
  const std::byte* data = at.host.memory().data() + address;
  for (std::uint64_t i = 0; i < message.length; ++i) {
    if (data[i] != pattern_byte(message.pattern, i)) {
      return fail(std::string(what) + ": wrong byte " + std::to_string(i) + " of " +
                  std::to_string(message.length));
    }
  }
}

// A request has completed: what it did is there.
void Pair::check_effect(int index, const Message& message, bool last,
                        const SendCompletion& completion) {
  Side& side = *sides_[index];
  Side& other = *sides_[1 - index];
  const std::byte* data = side.host.memory().data() + message.local;
  switch (message.operation) {
    case Operation::kRead: {
      const std::uint64_t begin = message.remote - kReadArea;
      for (std::uint64_t i = 0; i < message.length; ++i) {
        if (data[i] != pattern_byte(read_pattern(1 - index), begin + i)) {
          return fail("READ: wrong byte " + std::to_string(i));
        }
      }
      if (last && completion.bytes != message.length) return fail("READ: wrong length");
      break;
    }
    case Operation::kFetchAdd:
    case Operation::kCompareSwap: {
      std::uint64_t original = 0;
      std::memcpy(&original, data, sizeof original);
      if (original != message.original) {
        return fail("an atomic found " + std::to_string(original) + " in place of " +
                    std::to_string(message.original));
      }
      if (last && completion.bytes != 8) return fail("atomic: wrong length");
      ++totals_.atomics;
      break;
    }
    case Operation::kLocalInvalidate:
      if (side.host.invalidatable.contains(message.key)) return fail("LOCAL_INV was not done");
      break;
    case Operation::kBindWindow:
      if (side.host.binds.empty() || side.host.binds.front().rkey != message.key) {
        return fail("binds out of order");
      }
      side.host.binds.pop_front();
      break;
    case Operation::kWrite:
    case Operation::kAtomicWrite: check_data(other, message, message.remote, "WRITE"); break;
    default: break;
  }
  if (message.operation == Operation::kWrite || message.operation == Operation::kWriteImm ||
      message.operation == Operation::kAtomicWrite) {
    // A late duplicate that writes again would be seen at the end.
    std::memset(other.host.memory().data() + message.remote, int(kPoison), kSlotBytes);
  }
}

// What was done without a word, behind the last completion.
void Pair::check_quiet_tail(int index) {
  Side& side = *sides_[index];
  for (; side.next_completion < side.next_request; ++side.next_completion) {
    const Message& message = side.requests.at(side.next_completion);
    check_effect(index, message, false, {});
    ++totals_.quiet_tails;
  }
}

void Pair::collect(int index) {
  Side& side = *sides_[index];
  for (; !side.host.received.empty(); side.host.received.pop_front()) {
    const ReceiveCompletion completion = side.host.received.front();
    if (completion.status != Status::kSuccess) {
      return fail("receive status " + std::to_string(int(completion.status)));
    }
    if (completion.wr_id != side.next_received) return fail("receive out of order");
    if (side.to_arrive.empty()) return fail("a message that nobody sent");
    const Message message = side.to_arrive.front();
    side.to_arrive.pop_front();
    if (completion.bytes != message.length) return fail("received length");
    if (completion.srqn != (options_.xrc ? kSrq : 0)) return fail("SRQ of a receive");
    const bool immediate =
        message.operation == Operation::kSendImm || message.operation == Operation::kWriteImm;
    if (completion.has_immediate != immediate ||
        (immediate && completion.immediate != message.immediate)) {
      return fail("immediate data");
    }
    const bool invalidated = message.operation == Operation::kSendInvalidate;
    if (completion.has_invalidated != invalidated ||
        (invalidated && (completion.invalidated_rkey != message.key ||
                         side.host.invalidatable.contains(message.key)))) {
      return fail("invalidated key");
    }
    if (completion.is_write != (message.operation == Operation::kWriteImm)) {
      return fail("kind of receive completion");
    }
    if (completion.is_write) {
      check_data(side, message, message.remote, "WRITE with immediate");
    } else {
      const std::uint64_t at = kReceiveArea + completion.wr_id % kSlots * kSlotBytes;
      check_data(side, message, at, "SEND");
      std::memset(side.host.memory().data() + at, int(kPoison), kSlotBytes);
    }
    ++side.next_received;
    side.receives.erase(completion.wr_id);
  }
  for (; !side.host.sent.empty(); side.host.sent.pop_front()) {
    const SendCompletion completion = side.host.sent.front();
    if (completion.status != Status::kSuccess) {
      return fail("send status " + std::to_string(int(completion.status)));
    }
    if (completion.wr_id < side.next_completion) return fail("completed twice or out of order");
    for (; side.next_completion <= completion.wr_id; ++side.next_completion) {
      const auto found = side.requests.find(side.next_completion);
      if (found == side.requests.end()) return fail("completion of nothing");
      const Message message = found->second;
      side.requests.erase(found);
      const bool last = side.next_completion == completion.wr_id;
      if (message.signaled != last) return fail("a signaled request did not complete");
      check_effect(index, message, last, completion);
      std::memset(side.host.memory().data() + message.local, 0xEE, kSlotBytes);
    }
  }
}

void Pair::pump() {
  for (bool again = true; again && failure_.empty();) {
    again = false;
    for (int i = 0; i < 2; ++i) {
      Side& side = *sides_[i];
      if (!side.connection || side.stand_in) continue;
      if (side.connection->next_deadline() <= now_) side.connection->handle_timeout(now_);
      for (int round = 0; round < 1000 && side.connection->has_work(); ++round) {
        side.connection->transmit(now_, static_cast<unsigned>(pick(1, 20)));
      }
      if (side.connection->has_work()) fail("has_work() for ever");
      if (side.connection->next_deadline() <= now_) again = true;
    }
  }
  for (int i = 0; i < 2; ++i) collect(i);
}

// A move: stop (1), perhaps a while in which the stopped process itself answers, the hand-over to a
// stand-in, and then either the way back or another place. Each call does one step and schedules
// the next.
void Pair::step_move(int index) {
  Side& side = *sides_[index];
  const Time pause = step_ * pick(0, 60);
  if (side.connection && side.connection->status().migration != MigrationState::kStopped) {
    const PeerClass known = side.connection->status().peer_class;
    if (known == PeerClass::kUnknown && !options_.unmodified_peer) {
      side.connection->prepare(now_);
      schedule(Event::Kind::kMove, index, milliseconds(20));
      return;
    }
    if (side.connection->finishing()) {
      schedule(Event::Kind::kMove, index, step_);
      return;
    }
    stop(index);
  } else if (side.stand_in == nullptr) {
    // The stand-in takes the socket.
    auto stand_in = std::make_unique<StandIn>(
        [this, from = side.host.local](const port::Endpoint& to, const wire::Header& header,
                                       std::span<const std::byte> payload) {
          Datagram datagram{from, to, {}};
          datagram.bytes.resize(wire::packet_size(header.opcode, payload.size()));
          wire::Header sent = header;
          if (options_.nak_acknowledges_too_much && wire::has_aeth(header.opcode) &&
              (header.aeth.syndrome & wire::syndrome::kKindMask) == wire::syndrome::kRnrNak) {
            sent.psn = wire::psn_add(header.psn, 1);
          }
          wire::encode_header(sent, payload.size(), datagram.bytes);
          std::copy(payload.begin(), payload.end(),
                    datagram.bytes.begin() + static_cast<long>(wire::header_size(header.opcode)));
          send(std::move(datagram));
        });
    if (!stand_in->add(side.connection->stand_in_entry({}), now_)) return fail("stand-in entry");
    side.stand_in = stand_in.get();
    side.stand_ins[side.host.local] = std::move(stand_in);
    if (sides_[1 - index]->stand_in) ++totals_.both_stopped;
  } else if (chance(0.2)) {
    come_back(index);
    return;
  } else {
    go_on_elsewhere(index);
    return;
  }
  schedule(Event::Kind::kMove, index, pause);
}

void Pair::stop(int index) {
  Side& side = *sides_[index];
  side.connection->stop(now_);
  ++side.stops;
  --side.moves_left;
  totals_.unacked_at_stop += side.connection->status().unacked_psns > 0;
  if (side.host.accounted() != 0) fail("something is in flight after the stop");
}

void Pair::come_back(int index) {
  Side& side = *sides_[index];
  ++totals_.rollbacks;
  totals_.naks_stopped += side.stand_in->counters().naks_sent;
  side.stand_ins.erase(side.host.local);
  side.stand_in = nullptr;
  side.connection->resume(side.wire_qpn, true, now_);
  if (side.moves_left > 0) schedule(Event::Kind::kMove, index, step_ * pick(1, 40));
}

void Pair::go_on_elsewhere(int index) {
  Side& side = *sides_[index];
  ++totals_.moves;
  wire::ByteWriter writer(&side.record);
  side.record.clear();
  side.connection->save(writer);
  totals_.retransmitted += side.connection->status().counters.retransmitted_packets;
  side.connection.reset();

  // An unmodified peer can only be moved away from with address and QPN.
  const bool keep_place = options_.unmodified_peer;
  const port::Endpoint old = side.host.local;
  if (!keep_place) {
    const auto slot = static_cast<std::uint32_t>(pick(1, port::kMaxSlot));
    side.host.local = new_endpoint(index, chance(0.7));
    side.host.local.udp_port = port::udp_port_of_slot(slot);
    if (side.host.local == old) side.host.local = new_endpoint(index, true);
    while (side.stand_ins.contains(side.host.local)) side.host.local = new_endpoint(index, true);
    side.wire_qpn =
        port::make_qpn(port::slot_of(port::make_qpn(slot, 0)), port::index_of(side.wire_qpn));
  }
  side.connection = std::make_unique<Connection>(side.host, limits(index, true), side.settings,
                                                 side.virtual_qpn, side.wire_qpn);
  wire::ByteReader reader(side.record);
  if (!side.connection->load(reader) || reader.remaining() != 0) return fail("load");
  if (side.connection->status().migration != MigrationState::kStopped) return fail("not Stopped");
  if (options_.told) side.connection->set_peer_retries(*options_.told);
  std::vector<std::byte> again;
  wire::ByteWriter second(&again);
  side.connection->save(second);
  if (again != side.record) return fail("a loaded connection saves other bytes");

  if (side.stand_in->counters().naks_sent > 0)
    totals_.naks_stopped += side.stand_in->counters().naks_sent;
  if (!keep_place) {
    side.stand_in->committed(side.host.local, port::slot_of(side.wire_qpn), 1, now_);
  } else {
    side.stand_ins.erase(old);
  }
  side.stand_in = nullptr;
  side.connection->resume(side.wire_qpn, false, now_);
  if (side.moves_left > 0) schedule(Event::Kind::kMove, index, step_ * pick(1, 40));
}

// Also what says nothing of it.
bool Pair::all_done(const Side& side) const {
  const TransportStatus status = side.connection->status();
  if (status.unacked_psns != 0 || status.next_psn != side.end_psn) return false;
  for (const auto& [id, message] : side.requests) {
    const auto bound = [key = message.key](const auto& bind) { return bind.rkey == key; };
    if (message.signaled) return false;
    if (message.operation == Operation::kLocalInvalidate &&
        side.host.invalidatable.contains(message.key)) {
      return false;
    }
    if (message.operation == Operation::kBindWindow &&
        std::none_of(side.host.binds.begin(), side.host.binds.end(), bound)) {
      return false;
    }
  }
  return true;
}

bool Pair::done() const {
  for (const auto& side : sides_) {
    if (!side->connection || side->stand_in || side->requests_left > 0 || side->moves_left > 0 ||
        !side->to_arrive.empty() || !all_done(*side)) {
      return false;
    }
    const TransportStatus status = side->connection->status();
    if (status.migration != MigrationState::kNone || status.resume_pending) return false;
  }
  return true;
}

std::string Pair::run() {
  std::uint64_t steps = 0;
  while (failure_.empty() && !done()) {
    if (++steps > 2'000'000 || now_ > std::chrono::seconds(100)) {
      fail("stuck");
      break;
    }
    Time next = events_.empty() ? kNever : events_.top().at;
    for (const auto& side : sides_) {
      if (side->connection && !side->stand_in) {
        next = std::min(next, side->connection->next_deadline());
      }
    }
    if (next == kNever) {
      fail("nothing will ever happen");
      break;
    }
    now_ = std::max(now_, next);
    while (!events_.empty() && events_.top().at <= now_) {
      const Event event = events_.top();
      events_.pop();
      switch (event.kind) {
        case Event::Kind::kPacket: deliver(event.datagram); break;
        case Event::Kind::kRequest:
          for (std::uint64_t i = pick(0, 3); i > 0; --i) post_request(event.side);
          if (sides_[event.side]->requests_left > 0) {
            schedule(Event::Kind::kRequest, event.side, step_ * pick(0, 4));
          }
          break;
        case Event::Kind::kReceive:
          for (std::uint64_t i = pick(0, 6); i > 0; --i) post_receive(event.side);
          schedule(Event::Kind::kReceive, event.side, step_ * pick(1, 12));
          break;
        case Event::Kind::kMove: step_move(event.side); break;
      }
    }
    pump();
  }
  for (int i = 0; i < 2 && failure_.empty(); ++i) check_quiet_tail(i);
  if (!failure_.empty()) return failure_;

  // Late packets change nothing.
  while (!events_.empty() && failure_.empty()) {
    const Event event = events_.top();
    events_.pop();
    now_ = std::max(now_, event.at);
    if (event.kind == Event::Kind::kPacket) deliver(event.datagram);
    pump();
  }
  for (int i = 0; i < 2; ++i) {
    Side& side = *sides_[i];
    totals_.retransmitted += side.connection->status().counters.retransmitted_packets;
    for (const auto& [place, stand_in] : side.stand_ins) {
      totals_.moved += stand_in->counters().moved_sent;
    }
    if (side.connection->state() != QpState::kRts) fail("not at RTS");
    if (side.host.accounted() != 0) fail("bytes are accounted though nothing is in flight");
    if (side.host.ever_negative()) fail("the account was negative");
    const Side& other = *sides_[1 - i];
    if (side.host.atomics != other.atomics) fail("atomics were not carried out exactly once");
    if (side.host.memory_flushes.size() != other.flushes) fail("flushes were repeated");
    for (const auto& [word, value] :
         {std::pair(kCounter, other.counter), std::pair(kSwapped, other.swapped)}) {
      if (std::memcmp(side.host.memory().data() + word, &value, sizeof value) != 0) {
        fail("a word has not the value that the atomics gave it");
      }
    }
    if (!side.host.invalidatable.empty()) fail("a key was not invalidated");
    if (!side.host.binds.empty()) fail("a bind was repeated");
    for (std::uint64_t k = 0; k < kSlots * kSlotBytes; ++k) {
      if (side.host.memory()[kWriteArea + k] != kPoison) {
        fail("a WRITE was executed again after it completed");
        break;
      }
    }
    for (std::uint64_t k = 0; k < kSlots * kSlotBytes; ++k) {
      if (side.host.memory()[kReceiveArea + k] != kPoison) {
        fail("a SEND was executed again after it completed");
        break;
      }
    }
  }
  return failure_;
}

}  // namespace ferry::transport::test
