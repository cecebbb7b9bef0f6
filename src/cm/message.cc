#include "cm/message.h"

#include <cstring>
#include <type_traits>

#include "wire/big_endian.h"

namespace ferry::cm {
namespace {

constexpr std::uint32_t kGeneralServicesQpn = 1;
constexpr std::uint32_t kGeneralServicesQkey = 0x80010000;  // clause 10.2.5

using wire::load_be;
using wire::store_be;

constexpr std::size_t kHeader = 24;
constexpr std::byte kBaseVersion{1}, kClass{7}, kClassVersion{2}, kSend{3};

template <typename T>
struct Attribute;
template <>
struct Attribute<Req> : std::integral_constant<std::uint16_t, 0x10> {};
template <>
struct Attribute<Mra> : std::integral_constant<std::uint16_t, 0x11> {};
template <>
struct Attribute<Rej> : std::integral_constant<std::uint16_t, 0x12> {};
template <>
struct Attribute<Rep> : std::integral_constant<std::uint16_t, 0x13> {};
template <>
struct Attribute<Rtu> : std::integral_constant<std::uint16_t, 0x14> {};
template <>
struct Attribute<Dreq> : std::integral_constant<std::uint16_t, 0x15> {};
template <>
struct Attribute<Drep> : std::integral_constant<std::uint16_t, 0x16> {};
template <>
struct Attribute<SidrReq> : std::integral_constant<std::uint16_t, 0x17> {};
template <>
struct Attribute<SidrRep> : std::integral_constant<std::uint16_t, 0x18> {};

// One description of each format serves both directions: the cursor writes a message, or reads one.
class Writer {
 public:
  explicit Writer(std::byte* at) : at_(at) {}
  template <typename T>
  void whole(const T& value) {
    store_be(at_, value);
    at_ += sizeof(T);
  }
  // Writes the most significant bit first; consecutive calls must fill whole bytes.
  template <typename T>
  void bits(const T& value, int width) {
    const auto v = static_cast<std::uint32_t>(value) & ((1u << width) - 1);
    for (int bit = width - 1; bit >= 0; --bit) {
      pending_ = pending_ << 1 | (v >> bit & 1);
      if (++filled_ == 8) {
        *at_++ = static_cast<std::byte>(pending_);
        pending_ = 0;
        filled_ = 0;
      }
    }
  }
  void reserved(int width) { bits(0u, width); }
  template <std::size_t N>
  void bytes(const std::array<std::byte, N>& value) {
    std::memcpy(at_, value.data(), N);
    at_ += N;
  }
  void skip(std::size_t count) { at_ += count; }

 private:
  std::byte* at_;
  std::uint32_t pending_ = 0;
  int filled_ = 0;
};

class Reader {
 public:
  explicit Reader(const std::byte* at) : at_(at) {}
  template <typename T>
  void whole(T& value) {
    value = load_be<T>(at_);
    at_ += sizeof(T);
  }
  template <typename T>
  void bits(T& value, int width) {
    value = static_cast<T>(take(width));
  }
  void reserved(int width) { take(width); }
  template <std::size_t N>
  void bytes(std::array<std::byte, N>& value) {
    std::memcpy(value.data(), at_, N);
    at_ += N;
  }
  void skip(std::size_t count) { at_ += count; }

 private:
  std::uint32_t take(int width) {
    std::uint32_t value = 0;
    while (width-- > 0) {
      value = value << 1 | (static_cast<std::uint32_t>(*at_) >> (7 - used_) & 1);
      if (++used_ == 8) {
        ++at_;
        used_ = 0;
      }
    }
    return value;
  }
  const std::byte* at_;
  int used_ = 0;
};

constexpr std::uint16_t kNoLid = 0xFFFF;  // RoCE has none (annex A17.9.1: the permissive LID)

template <typename Cursor, typename P>
void path(Cursor& c, P& p) {
  std::uint16_t lid = kNoLid;
  c.whole(lid);
  c.whole(lid);
  c.bytes(p.local.bytes);
  c.bytes(p.remote.bytes);
  c.bits(p.flow_label, 20);
  c.reserved(6);
  c.bits(p.rate, 6);
  c.whole(p.traffic_class);
  c.whole(p.hop_limit);
  c.bits(p.sl, 4);
  c.reserved(4);
  c.bits(p.ack_timeout, 5);
  c.reserved(3);
}

constexpr std::size_t kPathSize = 44;

// XRC is transport 3 with extended transport 1 (annex A14).
template <typename Cursor, typename M>
requires std::is_same_v<std::remove_const_t<M>, Req>
void format(Cursor& c, M& m) {
  c.whole(m.local_id);
  c.skip(4);
  c.whole(m.service_id);
  c.whole(m.guid);
  c.skip(8);
  c.bits(m.qpn, 24);
  c.whole(m.responder_resources);
  c.reserved(24);
  c.whole(m.initiator_depth);
  c.reserved(24);
  c.bits(m.remote_timeout, 5);
  c.bits(m.transport, 2);
  c.bits(m.flow_control, 1);
  c.bits(m.psn, 24);
  c.bits(m.local_timeout, 5);
  c.bits(m.retry_count, 3);
  c.whole(m.pkey);
  c.bits(m.mtu, 4);
  c.reserved(1);
  c.bits(m.rnr_retry, 3);
  c.bits(m.max_cm_retries, 4);
  c.bits(m.srq, 1);
  std::uint8_t extended = m.transport == Transport::kXrc;
  c.bits(extended, 3);
  path(c, m.path);
  c.skip(kPathSize);
  c.bytes(m.data);
}

template <typename Cursor, typename M>
requires std::is_same_v<std::remove_const_t<M>, Mra>
void format(Cursor& c, M& m) {
  c.whole(m.local_id);
  c.whole(m.remote_id);
  c.bits(m.message, 2);
  c.reserved(6);
  c.bits(m.service_timeout, 5);
  c.reserved(3);
  c.bytes(m.data);
}

template <typename Cursor, typename M>
requires std::is_same_v<std::remove_const_t<M>, Rej>
void format(Cursor& c, M& m) {
  c.whole(m.local_id);
  c.whole(m.remote_id);
  c.bits(m.message, 2);
  c.reserved(6);
  c.bits(m.info_length, 7);
  c.reserved(1);
  c.bits(m.reason, 16);
  c.bytes(m.info);
  c.bytes(m.data);
}

template <typename Cursor, typename M>
requires std::is_same_v<std::remove_const_t<M>, Rep>
void format(Cursor& c, M& m) {
  c.whole(m.local_id);
  c.whole(m.remote_id);
  c.skip(4);
  c.bits(m.qpn, 24);
  c.skip(5);
  c.bits(m.psn, 24);
  c.skip(1);
  c.whole(m.responder_resources);
  c.whole(m.initiator_depth);
  c.bits(m.ack_delay, 5);
  c.reserved(2);
  c.bits(m.flow_control, 1);
  c.bits(m.rnr_retry, 3);
  c.bits(m.srq, 1);
  c.reserved(4);
  c.whole(m.guid);
  c.bytes(m.data);
}

template <typename Cursor, typename M>
requires std::is_same_v<std::remove_const_t<M>, Rtu> || std::is_same_v<std::remove_const_t<M>, Drep>
void format(Cursor& c, M& m) {
  c.whole(m.local_id);
  c.whole(m.remote_id);
  c.bytes(m.data);
}

template <typename Cursor, typename M>
requires std::is_same_v<std::remove_const_t<M>, Dreq>
void format(Cursor& c, M& m) {
  c.whole(m.local_id);
  c.whole(m.remote_id);
  c.bits(m.remote_qpn, 24);
  c.skip(1);
  c.bytes(m.data);
}

template <typename Cursor, typename M>
requires std::is_same_v<std::remove_const_t<M>, SidrReq>
void format(Cursor& c, M& m) {
  c.whole(m.request_id);
  c.whole(m.pkey);
  c.skip(2);
  c.whole(m.service_id);
  c.bytes(m.data);
}

template <typename Cursor, typename M>
requires std::is_same_v<std::remove_const_t<M>, SidrRep>
void format(Cursor& c, M& m) {
  c.whole(m.request_id);
  c.bits(m.status, 8);
  c.whole(m.info_length);
  c.skip(2);
  c.bits(m.qpn, 24);
  c.skip(1);
  c.whole(m.service_id);
  c.whole(m.qkey);
  c.bytes(m.info);
  c.bytes(m.data);
}

template <typename T>
bool read(std::uint16_t attribute, const std::byte* at, Body* out) {
  if (attribute != Attribute<T>::value) return false;
  T message;
  Reader reader(at);
  format(reader, message);
  *out = message;
  return true;
}

template <typename... T>
bool read_any(std::uint16_t attribute, const std::byte* at, std::variant<T...>* out) {
  return (read<T>(attribute, at, out) || ...);
}

}  // namespace

Mad encode(const Message& message) {
  Mad mad{};
  mad[0] = kBaseVersion;
  mad[1] = kClass;
  mad[2] = kClassVersion;
  mad[3] = kSend;
  store_be(&mad[8], message.transaction_id);
  std::visit(
      [&mad](const auto& body) {
        store_be(&mad[16], Attribute<std::remove_cvref_t<decltype(body)>>::value);
        Writer writer(&mad[kHeader]);
        format(writer, body);
      },
      message.body);
  return mad;
}

std::optional<Message> parse(std::span<const std::byte> mad) {
  if (mad.size() != kMadSize || mad[0] != kBaseVersion || mad[1] != kClass ||
      mad[2] != kClassVersion || mad[3] != kSend) {
    return std::nullopt;
  }
  Message message;
  message.transaction_id = load_be<std::uint64_t>(&mad[8]);
  if (!read_any(load_be<std::uint16_t>(&mad[16]), &mad[kHeader], &message.body))
    return std::nullopt;
  return message;
}

Private<72> class_port_info(const port::Address& redirect) {
  Private<72> info{};
  std::memcpy(&info[8], redirect.bytes.data(), redirect.bytes.size());
  store_be(&info[32], kGeneralServicesQpn);
  store_be(&info[36], kGeneralServicesQkey);
  return info;
}

std::optional<port::Address> redirect_of(const Private<72>& info) {
  port::Address address;
  std::memcpy(address.bytes.data(), &info[8], address.bytes.size());
  const auto qpn = wire::load_be<std::uint32_t>(&info[32]) & 0xFFFFFF;
  if (qpn != kGeneralServicesQpn || address == port::Address{} || address.is_multicast()) {
    return std::nullopt;
  }
  return address;
}

}  // namespace ferry::cm
