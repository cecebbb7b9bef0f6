#include <algorithm>

#include "cm/destination.h"
#include "cm/manager.h"
#include "cm/service.h"
#include "gsi/packet.h"
#include "input.h"
#include "wire/icrc.h"

// Messages of the communication manager: the parsers, and a manager with listeners and calls of its
// own that gets them in any order, as the network may bring them.
//
//   input = { op:8 … }     op & 15:
//     0…7  a MAD comes: flags:8 index:8 length:8 bytes[length]; the rest of the 256 bytes is 0.
//          flags: 1 from another host, 2 the header is right (class, version, method; attribute
//          10h + index % 9), 4 remote id and 8 local id are those of a connection (index)
//     8  connect   9  accept   10  establish, notify   11  reject   12  disconnect   13  forget
//     14  time passes: 2^(n & 63) ns   15  resolve, answer_sidr          each with index:8
namespace ferry::fuzz {
namespace {

using cm::CommId;

const port::Address kUs = port::Address::from_ipv4(0x0A000001);
const port::Address kPeer = port::Address::from_ipv4(0x0A000002);
const port::Address kOther = port::Address::from_ipv4(0x0A000003);

void put(cm::Mad& mad, std::size_t at, std::uint64_t value, unsigned bytes) {
  for (unsigned i = 0; i < bytes; ++i) {
    mad[at + i] = static_cast<std::byte>(value >> (8 * (bytes - 1 - i)));
  }
}

// What is understood is understood in the same way after it was written again.
void check_parsers(const cm::Mad& mad) {
  cm::destination_of(mad);
  if (const auto answer = cm::answer_for_nobody(mad)) {
    require(cm::parse(*answer).has_value(), "an answer for nobody can be read");
  }
  const auto message = cm::parse(mad);
  if (!message) return;
  const cm::Mad written = cm::encode(*message);
  const auto again = cm::parse(written);
  require(again && again->body.index() == message->body.index(), "a message is read as written");
  require(cm::encode(*again) == written, "a message is written as read");
  if (const auto* req = std::get_if<cm::Req>(&message->body)) cm::parse_ip_header(req->data);
  if (const auto* sidr = std::get_if<cm::SidrReq>(&message->body)) cm::parse_ip_header(sidr->data);

  const port::Endpoint from{kPeer, 4791}, to{kUs, 4791};
  const auto packet = gsi::make_packet(mad, from, to, 7);
  require(wire::verify(packet, from, to, 0), "a packet of QP 1 is sealed");
  const auto parsed = wire::parse(packet);
  require(parsed.has_value(), "a packet of QP 1 can be read");
  require(gsi::mad_of(*parsed) == mad, "a packet of QP 1 has the MAD");
}

class Run {
 public:
  Run() {
    manager_.set_listener([](cm::ServiceId service, const port::Address& to) {
      return (service & 1) == 0 && to == kUs;
    });
  }

  void go(Input in) {
    for (unsigned ops = 0; !in.empty() && ops < 256; ++ops) {
      const std::uint8_t op = in.byte();
      if ((op & 15) < 8) {
        message(in);
      } else {
        call(op & 15, in.byte());
      }
      collect();
    }
    // Nothing waits for ever.
    for (unsigned i = 0; i < 100000 && manager_.next_deadline() != cm::kNever; ++i) {
      now_ = std::max(now_, manager_.next_deadline());
      manager_.handle_timeouts(now_);
      collect();
    }
    require(manager_.next_deadline() == cm::kNever, "every deadline passes");
  }

 private:
  CommId id(std::uint8_t index) const { return ids_.empty() ? 0 : ids_[index % ids_.size()]; }

  void message(Input& in) {
    const std::uint8_t flags = in.byte(), index = in.byte();
    const auto bytes = in.bytes(in.byte());
    cm::Mad mad{};
    std::copy(bytes.begin(), bytes.end(), mad.begin());
    if (flags & 2) {
      put(mad, 0, 0x01070203, 4);
      put(mad, 16, 0x10u + index % 9, 2);
    }
    if (flags & 8) put(mad, 24, id(index), 4);
    if (flags & 4) put(mad, 28, id(index), 4);
    check_parsers(mad);
    manager_.handle({0, flags & 1 ? kOther : kPeer, kUs, mad}, now_);
  }

  void call(std::uint8_t op, std::uint8_t index) {
    static constexpr std::array<std::byte, 200> kData{};
    switch (op) {
      case 8: {
        cm::Req req;
        req.service_id = index;
        req.path.local = kUs;
        req.path.remote = kPeer;
        req.local_timeout = index & 31;
        manager_.connect(req, kUs, kPeer, now_);
        break;
      }
      case 9: {
        cm::Reply reply;
        reply.qpn = 0x100;
        reply.data = std::span(kData).first(index % 197);
        manager_.accept(id(index), reply, now_);
        break;
      }
      case 10:
        manager_.establish(id(index), now_);
        manager_.notify(id(index));
        break;
      case 11:
        manager_.reject(id(index), cm::Reason::kConsumer, std::span(kData).first(index % 149),
                        now_);
        break;
      case 12: manager_.disconnect(id(index), now_); break;
      case 13: manager_.forget(id(index), now_); break;
      case 14:
        now_ += cm::Time{std::int64_t{1} << (index % 36)};
        manager_.handle_timeouts(now_);
        break;
      default:
        if (index & 1) {
          cm::SidrReq request;
          request.service_id = index;
          manager_.resolve(request, kUs, kPeer, now_);
        } else {
          manager_.answer_sidr(id(index), cm::SidrStatus::kValid, 5, 6,
                               std::span(kData).first(index % 137), now_);
        }
    }
  }

  void collect() {
    cm::Datagram datagram;
    while (manager_.next_datagram(&datagram)) {
      require(cm::parse(datagram.mad).has_value(), "what the manager sends can be read");
      if (const auto message = cm::parse(datagram.mad)) {
        if (const auto* req = std::get_if<cm::Req>(&message->body)) know(req->local_id);
        if (const auto* sidr = std::get_if<cm::SidrReq>(&message->body)) know(sidr->request_id);
      }
    }
    cm::Event event;
    while (manager_.next_event(&event)) know(event.id);
    require(manager_.size() <= 4096, "the manager's connections are bounded by what came");
  }
  void know(CommId id) {
    if (std::find(ids_.begin(), ids_.end(), id) == ids_.end()) ids_.push_back(id);
  }

  std::uint64_t random_ = 0;
  cm::Manager manager_{7, [this] { return random_ += 0x9E3779B97F4A7C15ull; }};
  cm::Time now_{1000};
  std::vector<CommId> ids_;
};

}  // namespace
}  // namespace ferry::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ferry::fuzz::Run().go({data, size});
  return 0;
}
