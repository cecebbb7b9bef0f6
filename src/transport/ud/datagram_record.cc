#include <array>

#include "transport/ud/datagram.h"
#include "wire/psn.h"

// The object record of a UD QP (docs/image.md "QP"), and its stand-in entry. Open questions are not
// saved: the QP asks them again.
namespace ferry::transport {
namespace {

void put(const port::Address& address, wire::ByteWriter& out) {
  out.append(address.bytes.data(), address.bytes.size());
}

bool get_bool(wire::ByteReader& in) {
  const auto value = in.get<std::uint8_t>();
  if (value > 1) in.fail();
  return value == 1;
}

void put(const DatagramAddress& address, wire::ByteWriter& out) {
  put(address.destination, out);
  out.put(address.qpn);
  out.put(address.qkey);
  out.put(address.flow_label);
  out.put(address.traffic_class);
  out.put(address.hop_limit);
}

DatagramAddress get_address(wire::ByteReader& in) {
  DatagramAddress address;
  in.read(address.destination.bytes.data(), address.destination.bytes.size());
  address.qpn = in.get<std::uint32_t>();
  address.qkey = in.get<std::uint32_t>();
  address.flow_label = in.get<std::uint32_t>();
  address.traffic_class = in.get<std::uint8_t>();
  address.hop_limit = in.get<std::uint8_t>();
  if (address.qpn > wire::kPsnMask) in.fail();
  return address;
}

}  // namespace

void Datagram::save(wire::ByteWriter& out) const {
  out.put(state_);
  out.put(mtu_);
  out.put(qkey_);
  out.put(next_psn_);
  out.put(static_cast<std::uint8_t>(stopped_));
  out.put(epoch_);
  for (const std::uint64_t counter :
       {counters_.sent_packets, counters_.received_packets, counters_.sent_bytes,
        counters_.received_bytes, counters_.dropped_forged, counters_.dropped_qkey,
        counters_.dropped_messages}) {
    out.put(counter);
  }
  out.put(static_cast<std::uint32_t>(queue_.tail() - queue_.head()));
  for (std::uint64_t i = queue_.head(); i != queue_.tail(); ++i) {
    const Wqe& wqe = queue_.at(i);
    out.put(wqe.wr_id);
    out.put(wqe.length);
    out.put(wqe.immediate);
    out.put(wqe.operation);
    out.put(static_cast<std::uint8_t>(wqe.signaled));
    out.put(static_cast<std::uint8_t>(wqe.solicited));
    put(addresses_[i & address_mask_], out);
    out.put(wqe.sge_count);
    out.put(static_cast<std::uint8_t>(wqe.is_inline));
    for (const Sge& sge : queue_.sges(i)) {
      out.put(sge.address);
      out.put(sge.length);
      out.put(sge.lkey);
    }
    if (wqe.is_inline) out.append(queue_.inline_data(i), wqe.length);
  }
}

bool Datagram::load(wire::ByteReader& in) {
  const auto state = in.get<std::uint8_t>();
  mtu_ = in.get<std::uint32_t>();
  qkey_ = in.get<std::uint32_t>();
  next_psn_ = in.get<std::uint32_t>();
  stopped_ = get_bool(in);
  epoch_ = in.get<std::uint32_t>();
  for (std::uint64_t* counter :
       {&counters_.sent_packets, &counters_.received_packets, &counters_.sent_bytes,
        &counters_.received_bytes, &counters_.dropped_forged, &counters_.dropped_qkey,
        &counters_.dropped_messages}) {
    *counter = in.get<std::uint64_t>();
  }
  const auto count = in.get<std::uint32_t>();
  if (!in.ok() || state > static_cast<std::uint8_t>(QpState::kError) || mtu_ < 256 || mtu_ > 4096 ||
      (mtu_ & (mtu_ - 1)) != 0 || next_psn_ > wire::kPsnMask || count > limits_.max_send_wr) {
    return false;
  }
  state_ = static_cast<QpState>(state);
  if (count > 0 && state_ != QpState::kRts && state_ != QpState::kSqd) return false;
  for (std::uint32_t i = 0; i < count; ++i) {
    SendRequest request;
    request.wr_id = in.get<std::uint64_t>();
    request.length = in.get<std::uint64_t>();
    request.immediate = in.get<std::uint32_t>();
    const auto operation = in.get<std::uint8_t>();
    request.signaled = get_bool(in);
    request.solicited = get_bool(in);
    const DatagramAddress address = get_address(in);
    request.sge_count = in.get<std::uint8_t>();
    const bool is_inline = get_bool(in);
    if (!in.ok() || operation > static_cast<std::uint8_t>(Operation::kSendImm) ||
        request.sge_count >
            (is_inline ? 0 : std::min<std::size_t>(limits_.max_send_sge, kMaxSge)) ||
        (is_inline && request.length > limits_.max_inline)) {
      return false;
    }
    request.operation = static_cast<Operation>(operation);
    std::array<Sge, kMaxSge> sges;
    std::uint64_t length = 0;
    for (unsigned k = 0; k < request.sge_count; ++k) {
      sges[k].address = in.get<std::uint64_t>();
      sges[k].length = in.get<std::uint32_t>();
      sges[k].lkey = in.get<std::uint32_t>();
      length += sges[k].length;
    }
    static constexpr std::byte kNothing{};
    if (is_inline) {
      request.inline_data = request.length > 0 ? in.take(request.length).data() : &kNothing;
    } else if (length != request.length || length > kMaxMessage) {
      return false;
    }
    request.sges = sges.data();
    if (!in.ok()) return false;
    addresses_[queue_.tail() & address_mask_] = address;
    queue_.push(request);
  }
  return in.ok();
}

std::vector<std::byte> Datagram::stand_in_entry(const port::Address& local) const {
  std::vector<std::byte> entry;
  DatagramSource us;
  if (!receiving() || !host_.place_towards(local, &us)) return entry;
  wire::ByteWriter out(&entry);
  StoppedDatagram{us.gid, virtual_qpn_, us.place, epoch_}.save(out);
  return entry;
}

void StoppedDatagram::save(wire::ByteWriter& out) const {
  out.put(kKind);
  put(gid, out);
  out.put(virtual_qpn);
  out.put(place.endpoint);
  out.put(place.wire_qpn);
  out.put(epoch);
}

bool StoppedDatagram::load(wire::ByteReader& in) {
  if (in.get<std::uint8_t>() != kKind) return false;
  in.read(gid.bytes.data(), gid.bytes.size());
  virtual_qpn = in.get<std::uint32_t>();
  place.endpoint = in.get_endpoint();
  place.wire_qpn = in.get<std::uint32_t>();
  epoch = in.get<std::uint32_t>();
  return in.ok() && virtual_qpn <= wire::kPsnMask && place.wire_qpn <= wire::kPsnMask;
}

}  // namespace ferry::transport
