#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "agent/protocol.h"
#include "input.h"
#include "rnic/slot.h"
#include "transport/migration/stand_in.h"
#include "transport/stopped.h"
#include "virtual/messages/letters.h"
#include "virtual/messages/needs.h"
#include "wire/header.h"
#include "wire/migration.h"

// The control protocol, as ferryd reads it from programs and programs from ferryd: the stream of
// messages, every body, letters of contexts, what they need of a device, and the stand-in that is
// made from the entries of a STOPPED and answers packets from then on. ferryd runs as root: no
// program's message may do it harm.
//
//   input = { op:8 … }
//     op 0…63    a message comes: type:16 length:16 body[length]; its header is right
//     op 64…95   bytes come: length:8 bytes[length]
//     op 96…127  the bytes so far are the whole stream
//     op 128…    a packet for the stand-ins: flags:8 length:8 bytes[length]; flags: 1 from the peer
//                of the last entry, 2 to its QPN, 4 commit first, 8 from its peer by MAC
namespace ferry::fuzz {
namespace {

using agent::MessageType;

template <typename T>
void check_body(std::span<const std::byte> body) {
  T message;
  if (!agent::parse(body, &message)) return;
  const auto written = agent::encode(message);
  require(std::equal(body.begin(), body.end(), written.begin(), written.end()),
          "a body is written as it was read");
}

void check_bodies(std::span<const std::byte> body) {
  check_body<agent::Register>(body);
  check_body<agent::StatusReply>(body);
  check_body<agent::Stop>(body);
  check_body<agent::Stopped>(body);
  check_body<agent::Awake>(body);
  check_body<agent::Resume>(body);
  check_body<agent::Stay>(body);
  check_body<agent::Resumed>(body);
  check_body<agent::PeersKnow>(body);
  check_body<agent::PauseTree>(body);
  check_body<agent::Frozen>(body);
  check_body<agent::DumpFailed>(body);
  check_body<agent::Action>(body);
  check_body<agent::Claim>(body);
  check_body<agent::RestoreFailed>(body);
  check_body<agent::Restored>(body);
  check_body<agent::Done>(body);
  check_body<agent::Suspend>(body);
  check_body<agent::Suspending>(body);
  check_body<agent::Letters>(body);
  check_body<agent::Delivered>(body);
  check_body<device::MovedNames>(body);
  check_body<agent::DatagramQps>(body);
}

// What contexts over devices of the kernel tell each other and a destination.
void check_letters(std::span<const std::byte> body) {
  agent::Letters letters;
  if (!agent::parse(body, &letters)) return;
  for (const device::Letter& letter : letters.letters) {
    virt::LetterBody said;
    if (!virt::parse(letter.bytes, &said)) continue;
    require(virt::encode(said) == letter.bytes, "a letter is written as it was read");
  }
}

void check_needs(std::span<const std::byte> body) {
  agent::StatusReply status;
  if (!agent::parse(body, &status)) return;
  for (const agent::ContextStatus& context : status.contexts) {
    virt::Needs needs, again;
    if (!virt::parse(context.needs, &needs)) continue;
    require(virt::parse(virt::encode(needs), &again), "needs are read as they were written");
    require(virt::encode(again) == virt::encode(needs), "needs are written as they were read");
  }
}

class Run {
 public:
  void go(Input in) {
    for (unsigned ops = 0; !in.empty() && ops < 128; ++ops) {
      const std::uint8_t op = in.byte();
      if (op < 64) {
        const auto type = static_cast<std::uint16_t>(in.number(2));
        const auto body = in.bytes(in.number(2));
        append(agent::kMagic, 4);
        append(agent::kVersion, 2);
        append(type, 2);
        append(static_cast<std::uint32_t>(body.size()), 4);
        stream_.insert(stream_.end(), body.begin(), body.end());
      } else if (op < 96) {
        const auto bytes = in.bytes(in.byte());
        stream_.insert(stream_.end(), bytes.begin(), bytes.end());
      } else if (op < 128) {
        read_stream();
      } else {
        packet(in);
      }
    }
    read_stream();
    stand_in_.handle_timeout(std::chrono::hours(1));
  }

 private:
  void append(std::uint32_t value, unsigned bytes) {
    for (unsigned i = 0; i < bytes; ++i) stream_.push_back(static_cast<std::byte>(value >> 8 * i));
  }

  void read_stream() {
    if (stream_.empty()) return;
    int sockets[2];
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0, "a socket pair");
    constexpr std::size_t kMost = 64 << 10;  // far below what a socket takes
    require(stream_.size() <= kMost && ::send(sockets[0], stream_.data(), stream_.size(), 0) ==
                                           static_cast<ssize_t>(stream_.size()),
            "the stream fits the socket");
    ::close(sockets[0]);
    stream_.clear();
    agent::Message message;
    while (agent::receive_message(sockets[1], &message) == 0) {
      check_bodies(message.body);
      check_letters(message.body);
      check_needs(message.body);
      if (message.type == MessageType::kStopped) take_over(message.body);
      require(message.descriptors.empty(), "no descriptors came");
    }
    ::close(sockets[1]);
  }

  void take_over(std::span<const std::byte> body) {
    agent::Stopped stopped;
    if (!agent::parse(body, &stopped)) return;
    for (const auto& context : stopped.contexts) {
      std::vector<rnic::Slot> slots;
      rnic::to_slots(context.parcel, &slots);
      for (const auto& slot : slots) {
        for (const auto& entry : slot.entries) {
          if (!stand_in_.add(entry, {})) continue;
          wire::ByteReader in(entry);
          transport::StoppedEnd qp;
          if (qp.load(in)) last_ = qp;
        }
      }
    }
  }

  void packet(Input& in) {
    const std::uint8_t flags = in.byte();
    const auto bytes = in.bytes(in.byte());
    if (flags & 4) stand_in_.committed({port::Address::from_ipv4(0x0A000009), 4791}, 0, 1, {});
    auto packet = wire::parse(bytes);
    if (!packet) return;
    if (flags & 2) packet->header.dest_qpn = last_.wire_qpn;
    auto message = wire::parse_migration(packet->payload);
    std::array<std::byte, wire::kMigrationPayload> signed_payload;
    if (message && flags & 8) {
      message->source_qpn = last_.peer_qpn;
      message->mac =
          wire::mac_of(*message, last_.virtual_qpn, wire::mac_key(last_.peer_cookie, last_.cookie));
      wire::encode(*message, signed_payload);
      packet->payload = signed_payload;
    }
    const port::Endpoint other{port::Address::from_ipv4(0x0A000003), 4791};
    stand_in_.handle_packet(*packet, flags & 1 ? last_.peer : other, {});
    stand_in_.peer_knows(packet->header.dest_qpn, {});
  }

  std::vector<std::byte> stream_;
  transport::StoppedEnd last_;
  transport::StandIn stand_in_{
      [](const port::Endpoint&, const wire::Header& header, std::span<const std::byte> payload) {
        std::vector<std::byte> bytes(wire::packet_size(header.opcode, payload.size()));
        wire::encode_header(header, payload.size(), bytes);
        std::copy(payload.begin(), payload.end(),
                  bytes.begin() + static_cast<std::ptrdiff_t>(wire::header_size(header.opcode)));
        require(wire::parse(bytes).has_value(), "what the stand-in sends can be read");
      }};
};

}  // namespace
}  // namespace ferry::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ferry::fuzz::Run().go({data, size});
  return 0;
}
