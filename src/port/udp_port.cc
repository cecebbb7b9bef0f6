#include "port/udp_port.h"

#include <netinet/udp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "port/slot.h"
#include "port/udp_socket.h"

namespace ferry::port {
namespace {

constexpr std::size_t kMaxDatagram = 65507;    // bytes over IPv4; the limit of a super-packet, too
constexpr std::uint32_t kOldMaxSegments = 64;  // UDP_MAX_SEGMENTS before Linux 6.9
constexpr std::size_t kOutgoingBytes = 2 * 65536;
constexpr std::size_t kIncomingStride = 65536;
constexpr std::size_t kMessages = 16;  // in one sendmmsg()

bool is_any(const Address& address) {
  return address == Address{} || address == Address::from_ipv4(INADDR_ANY);
}

}  // namespace

std::unique_ptr<UdpPort> UdpPort::bind(const Address& address, std::uint32_t slot, int* error) {
  if (slot > kMaxSlot || is_any(address)) {
    *error = EINVAL;
    return nullptr;
  }
  const Endpoint local{address, udp_port_of_slot(slot)};
  const std::uint32_t scope = scope_of(address);
  const int descriptor = open_udp_socket(local, scope, error);
  if (descriptor < 0) return nullptr;
  auto port = make(descriptor, local, slot, scope, error);
  if (!port) close(descriptor);
  return port;
}

std::unique_ptr<UdpPort> UdpPort::join(const Address& group, const Address& local, int* error) {
  const Endpoint endpoint{group, kRoceUdpPort};
  const int descriptor = open_group_socket(endpoint, local, error);
  if (descriptor < 0) return nullptr;
  auto port = make(descriptor, endpoint, 0, 0, error);
  if (!port) close(descriptor);
  return port;
}

std::unique_ptr<UdpPort> UdpPort::adopt(int descriptor, int* error) {
  SocketAddress address{};
  socklen_t length = sizeof address;
  int type = 0, protocol = 0;
  socklen_t int_length = sizeof type;
  if (getsockname(descriptor, &address.any, &length) != 0 ||
      getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &int_length) != 0 ||
      getsockopt(descriptor, SOL_SOCKET, SO_PROTOCOL, &protocol, &int_length) != 0) {
    *error = errno;
    return nullptr;
  }
  const Endpoint local = from_socket_address(address);
  const std::uint32_t slot =
      local.udp_port == kRoceUdpPort
          ? 0
          : static_cast<std::uint32_t>(local.udp_port) - kSlotUdpPortBase;  // wraps below the base
  if (type != SOCK_DGRAM || protocol != IPPROTO_UDP || is_any(local.address) || slot > kMaxSlot ||
      udp_port_of_slot(slot) != local.udp_port) {
    *error = EINVAL;
    return nullptr;
  }
  if (!configure_udp_socket(descriptor, local.address.is_ipv4(), error)) return nullptr;
  const std::uint32_t scope = local.address.is_ipv4() ? 0 : address.v6.sin6_scope_id;
  return make(descriptor, local, slot, scope, error);
}

std::unique_ptr<UdpPort> UdpPort::make(int descriptor, const Endpoint& local, std::uint32_t slot,
                                       std::uint32_t scope, int* error) {
  std::unique_ptr<std::byte[]> buffers(new (std::nothrow)
                                           std::byte[kOutgoingBytes + kIncoming * kIncomingStride]);
  std::unique_ptr<UdpPort> port;
  if (buffers) {
    port.reset(new (std::nothrow) UdpPort(descriptor, local, slot, scope, std::move(buffers)));
  }
  if (!port) *error = ENOMEM;
  return port;
}

UdpPort::UdpPort(int descriptor, const Endpoint& local, std::uint32_t slot, std::uint32_t scope,
                 std::unique_ptr<std::byte[]> buffers)
    : descriptor_(descriptor),
      local_(local),
      slot_(slot),
      scope_(scope),
      window_(window_of(descriptor)),
      buffers_(std::move(buffers)) {}

UdpPort::~UdpPort() {
  if (descriptor_ >= 0) close(descriptor_);
}

int UdpPort::release() {
  if (!flush()) {
    for (; first_run_ < run_count_; ++first_run_) {
      counters_.packets_lost += runs_[first_run_].count - runs_[first_run_].sent;
    }
  }
  first_run_ = run_count_ = queued_bytes_ = 0;
  arrived_ = current_ = 0;
  return std::exchange(descriptor_, -1);
}

bool UdpPort::takes(const Run& run, const Endpoint& to, std::size_t length) const {
  return run.sent == 0 && run.count < max_segments_ && length <= run.segment &&
         run.bytes == run.count * run.segment && run.bytes + length <= kMaxDatagram && run.to == to;
}

std::span<std::byte> UdpPort::reserve(const Endpoint& to, std::size_t length,
                                      std::uint16_t* ip_identification) {
  if (descriptor_ < 0 || length == 0 || length > kMaxPacket) return {};
  if (first_run_ < run_count_) {
    Run& last = runs_[run_count_ - 1];
    if (queued_bytes_ + length <= kOutgoingBytes && takes(last, to, length)) {
      *ip_identification = static_cast<std::uint16_t>(last.count);
      ++last.count;
      last.bytes += static_cast<std::uint32_t>(length);
      std::byte* at = buffers_.get() + queued_bytes_;
      queued_bytes_ += length;
      return {at, length};
    }
    // A full super-packet leaves at once: the receiver works on it while the next one is built.
    const bool full = last.to == to && last.count > 1 && last.segment == length;
    if ((full || run_count_ == kMaxRuns || queued_bytes_ + length > kOutgoingBytes) && !flush() &&
        (run_count_ == kMaxRuns || queued_bytes_ + length > kOutgoingBytes)) {
      return {};
    }
  }
  runs_[run_count_++] = Run{to,
                            static_cast<std::uint32_t>(queued_bytes_),
                            static_cast<std::uint32_t>(length),
                            static_cast<std::uint32_t>(length),
                            1,
                            0};
  *ip_identification = 0;
  std::byte* at = buffers_.get() + queued_bytes_;
  queued_bytes_ += length;
  return {at, length};
}

// The hop limit is an option of the socket, so queued packets leave first. If the kernel refuses
// it, packets leave with the former one.
bool UdpPort::use_multicast_hops(std::uint8_t hops) {
  if (hops == multicast_hops_) return true;
  if (!flush()) return false;
  set_multicast_hops(descriptor_, local_.address.is_ipv4(), hops);
  multicast_hops_ = hops;
  return true;
}

void UdpPort::unreserve() {
  if (first_run_ == run_count_) return;
  Run& last = runs_[run_count_ - 1];
  const std::uint32_t length = last.bytes - (last.count - 1) * last.segment;
  queued_bytes_ -= length;
  last.bytes -= length;
  if (--last.count == 0) --run_count_;
}

// Messages for one sendmmsg() that point into the runs, in order.
struct UdpPort::Batch {
  mmsghdr messages[kMessages];
  iovec parts[kMessages];
  SocketAddress addresses[kMessages];
  alignas(cmsghdr) std::byte controls[kMessages][CMSG_SPACE(sizeof(std::uint16_t))];
  std::uint32_t packets[kMessages];
  unsigned count = 0;
};

void UdpPort::build(Batch* batch) const {
  for (std::size_t i = first_run_; i < run_count_ && batch->count < kMessages; ++i) {
    const Run& run = runs_[i];
    for (std::uint32_t done = run.sent; done < run.count && batch->count < kMessages;) {
      const unsigned n = batch->count++;
      const std::uint32_t packets = std::min(run.count - done, max_segments_);
      const std::uint32_t begin = done * run.segment;
      const std::uint32_t end = std::min(run.bytes, (done + packets) * run.segment);
      batch->packets[n] = packets;
      batch->parts[n] = {buffers_.get() + run.offset + begin, end - begin};
      msghdr& header = batch->messages[n].msg_hdr;
      header = {};
      header.msg_name = &batch->addresses[n];
      header.msg_namelen = to_socket_address(run.to, scope_, &batch->addresses[n]);
      header.msg_iov = &batch->parts[n];
      header.msg_iovlen = 1;
      if (packets > 1) {
        header.msg_control = batch->controls[n];
        header.msg_controllen = sizeof batch->controls[n];
        cmsghdr* control = CMSG_FIRSTHDR(&header);
        control->cmsg_level = SOL_UDP;
        control->cmsg_type = UDP_SEGMENT;
        control->cmsg_len = CMSG_LEN(sizeof(std::uint16_t));
        const auto segment = static_cast<std::uint16_t>(run.segment);
        std::memcpy(CMSG_DATA(control), &segment, sizeof segment);
      }
      done += packets;
    }
  }
}

// Notes that `packets` packets of the first run have left, as one message.
void UdpPort::sent(std::size_t packets) {
  Run& run = runs_[first_run_];
  const auto before = std::min<std::size_t>(run.bytes, run.sent * run.segment);
  run.sent += static_cast<std::uint32_t>(packets);
  counters_.packets_sent += packets;
  counters_.bytes_sent += std::min<std::size_t>(run.bytes, run.sent * run.segment) - before;
  if (packets > 1) ++counters_.super_packets_sent;
  if (run.sent == run.count) ++first_run_;
}

void UdpPort::lost(std::size_t packets) {
  Run& run = runs_[first_run_];
  run.sent += static_cast<std::uint32_t>(packets);
  counters_.packets_lost += packets;
  if (run.sent == run.count) ++first_run_;
}

bool UdpPort::flush() {
  if (descriptor_ < 0) return true;
  while (first_run_ < run_count_) {
    Batch batch;
    build(&batch);
    const int done =
        sendmmsg(descriptor_, batch.messages, batch.count, MSG_DONTWAIT | MSG_NOSIGNAL);
    for (int i = 0; i < done; ++i) sent(batch.packets[i]);
    if (done < 0 && errno != EINTR && !refused(errno, batch.packets[0])) return false;
  }
  first_run_ = run_count_ = queued_bytes_ = 0;
  return true;
}

bool UdpPort::refused(int error, std::size_t packets) {
  if (error == EAGAIN || error == EWOULDBLOCK) return false;
  // EINVAL stands for too many segments, for no segmentation at all, and on some kernels for a
  // segment beyond the MTU; EIO for a device that cannot checksum. Packets that are queued already
  // leave with other identifications than reserve() promised; peers of our kind solve for them,
  // others ask for the packets again.
  if (packets > 1 && (error == EINVAL || error == EIO)) {
    if (error == EINVAL && packets > kOldMaxSegments) {
      max_segments_ = kOldMaxSegments;
      return true;
    }
    const int alone = send_one();
    if (alone == EAGAIN || alone == EWOULDBLOCK) return false;
    if (alone == 0) {
      max_segments_ = 1;
      sent(1);
      return true;
    }
  }
  lost(packets);
  return true;
}

// Sends the next packet of the first run by itself. Returns 0 or an errno value.
int UdpPort::send_one() {
  const Run& run = runs_[first_run_];
  SocketAddress address;
  const socklen_t length = to_socket_address(run.to, scope_, &address);
  const ssize_t result = sendto(descriptor_, buffers_.get() + run.offset + run.sent * run.segment,
                                std::min(run.segment, run.bytes - run.sent * run.segment),
                                MSG_DONTWAIT | MSG_NOSIGNAL, &address.any, length);
  return result >= 0 ? 0 : errno;
}

// Takes what the socket has into incoming_. False: it has nothing.
bool UdpPort::fill() {
  mmsghdr messages[kIncoming];
  iovec parts[kIncoming];
  SocketAddress addresses[kIncoming];
  alignas(cmsghdr) std::byte controls[kIncoming][CMSG_SPACE(sizeof(int))];
  // A program that polls mostly finds no packet, or one: preparing for more would cost more than
  // the call itself.
  asked_for_ = arrived_ == asked_for_ ? kIncoming : kFewIncoming;
  for (std::size_t i = 0; i < asked_for_; ++i) {
    parts[i] = {buffers_.get() + kOutgoingBytes + i * kIncomingStride, kIncomingStride};
    messages[i].msg_hdr = {&addresses[i], sizeof addresses[i], &parts[i], 1,
                           controls[i],   sizeof controls[i],  0};
  }
  arrived_ = current_ = current_at_ = current_index_ = 0;
  int count;
  do {
    count =
        recvmmsg(descriptor_, messages, static_cast<unsigned>(asked_for_), MSG_DONTWAIT, nullptr);
  } while (count < 0 && errno == EINTR);
  if (count <= 0) return false;
  arrived_ = static_cast<std::size_t>(count);
  for (std::size_t i = 0; i < arrived_; ++i) {
    msghdr& header = messages[i].msg_hdr;
    std::uint32_t bytes = messages[i].msg_len;
    std::uint32_t segment = bytes;
    for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr;
         control = CMSG_NXTHDR(&header, control)) {
      if (control->cmsg_level != SOL_UDP || control->cmsg_type != UDP_GRO) continue;
      int size;
      std::memcpy(&size, CMSG_DATA(control), sizeof size);
      if (size > 0) segment = std::min(bytes, static_cast<std::uint32_t>(size));
    }
    if (bytes == 0 || segment > kMaxPacket || (header.msg_flags & MSG_TRUNC)) {
      ++counters_.datagrams_skipped;
      bytes = 0;
    }
    if (segment < bytes) ++counters_.super_packets_received;
    incoming_[i] = {from_socket_address(addresses[i]), bytes, segment};
  }
  return true;
}

std::size_t UdpPort::receive(std::span<Received> out) {
  std::size_t n = 0;
  if (descriptor_ < 0) return 0;
  while (n < out.size()) {
    if (current_ == arrived_) {
      // The buffers are reused only when nothing in them is being handed out.
      if (n > 0 || !fill()) break;
      continue;
    }
    const Incoming& in = incoming_[current_];
    if (current_at_ == in.bytes) {
      ++current_;
      current_at_ = current_index_ = 0;
      continue;
    }
    const std::uint32_t length = std::min(in.segment, in.bytes - current_at_);
    std::byte* at = buffers_.get() + kOutgoingBytes + current_ * kIncomingStride + current_at_;
    out[n++] = {in.from, {at, length}, current_index_++};
    current_at_ += length;
    ++counters_.packets_received;
    counters_.bytes_received += length;
  }
  return n;
}

std::unique_ptr<UdpPort> bind_first_free_slot(const Address& address, int* error) {
  for (std::uint32_t slot = 0; slot <= kMaxSlot; ++slot) {
    auto port = UdpPort::bind(address, slot, error);
    if (port || *error != EADDRINUSE) return port;
  }
  return nullptr;
}

}  // namespace ferry::port
