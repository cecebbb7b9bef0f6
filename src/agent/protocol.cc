#include "agent/protocol.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <type_traits>

namespace ferry::agent {
namespace {

using device::QpStatus;

// The fields of each body, once for both directions: `v` is a Writer or a Reader.
template <typename T, typename U>
concept Is = std::is_same_v<std::remove_const_t<T>, U>;

template <typename V, Is<port::Address> T>
void visit(V& v, T& m) {
  for (auto& byte : m.bytes) v(byte);
}
template <typename V, Is<port::Endpoint> T>
void visit(V& v, T& m) {
  v(m.address), v(m.udp_port);
}

template <typename V, Is<QpStatus> T>
void visit(V& v, T& m) {
  v(m.qpn), v(m.wire_qpn), v(m.peer_qpn), v(m.peer_wire_qpn);
  v(m.type), v(m.state), v(m.migration), v(m.peer_class);
  v(m.local), v(m.peer);
  v(m.epoch), v(m.next_psn), v(m.first_unacked_psn), v(m.expected_psn), v(m.resume_pending);
  v(m.sent_packets), v(m.received_packets), v(m.sent_bytes), v(m.received_bytes);
  v(m.retransmitted_packets), v(m.timeouts), v(m.rnr_naks), v(m.dropped), v(m.last_pause_ns);
  v(m.peer_retries.timeout), v(m.peer_retries.retry_count), v(m.peer_retries.rnr_retry);
  v(m.peer_retries.known);
}
// A body has the number of a parcel's descriptors, not the descriptors.
template <typename V, Is<device::Parcel> T>
void visit(V& v, T& m) {
  v(m.kind), v.count(m.descriptors), v(m.bytes);
}
template <typename V, Is<Register> T>
void visit(V& v, T& m) {
  v(m.version), v(m.build), v(m.control_block);
}
template <typename V, Is<CounterStatus> T>
void visit(V& v, T& m) {
  v(m.name), v(m.value);
}
template <typename V, Is<ContextStatus> T>
void visit(V& v, T& m) {
  v(m.device), v(m.netdev), v(m.qps), v(m.place), v(m.counters);
  v(m.obstacle), v(m.needs), v(m.datagram_destinations);
}
template <typename V, Is<RdmaCmBound> T>
void visit(V& v, T& m) {
  v(m.port_space), v(m.local), v(m.shares_port), v(m.is_ipv6_only);
}
template <typename V, Is<RdmaCmStatus> T>
void visit(V& v, T& m) {
  v(m.channels), v(m.obstacle), v(m.half_made), v(m.bound);
}
template <typename V, Is<StatusReply> T>
void visit(V& v, T& m) {
  v(m.contexts);
  if (v.goes_on(m.rdma_cm.channels > 0)) v(m.rdma_cm);
}
template <typename V, Is<ParkedContext> T>
void visit(V& v, T& m) {
  v(m.netdev), v(m.parcel), v(m.names);
}
template <typename V, Is<device::Letter::End> T>
void visit(V& v, T& m) {
  v(m.gid), v(m.qpn);
}
template <typename V, Is<device::Letter> T>
void visit(V& v, T& m) {
  v(m.from), v(m.to), v(m.bytes);
}
template <typename V, Is<Suspend> T>
void visit(V& v, T& m) {
  v(m.move_id), v(m.limit_ms), v(m.release);
}
template <typename V, Is<Suspending> T>
void visit(V& v, T& m) {
  v(m.move_id), v(m.done);
}
template <typename V, Is<Letters> T>
void visit(V& v, T& m) {
  v(m.letters);
}
template <typename V, Is<Delivered> T>
void visit(V& v, T& m) {
  v(m.errors);
}
template <typename V, Is<device::DatagramQps::Gid> T>
void visit(V& v, T& m) {
  v(m.known), v(m.real);
}
template <typename V, Is<device::DatagramQps::Qpn> T>
void visit(V& v, T& m) {
  v(m.known), v(m.real);
}
template <typename V, Is<device::DatagramQps> T>
void visit(V& v, T& m) {
  v(m.gids), v(m.qpns);
}
template <typename V, Is<DatagramQps> T>
void visit(V& v, T& m) {
  v(m.contexts);
}
template <typename V, Is<device::MovedNames> T>
void visit(V& v, T& m) {
  v(m.gids), v(m.datagram_qps);
}
template <typename V, Is<Locate> T>
void visit(V& v, T& m) {
  v(m.names);
}
template <typename V, Is<LocatedPlace> T>
void visit(V& v, T& m) {
  v(m.name), v(m.location), v(m.epoch);
}
template <typename V, Is<Located> T>
void visit(V& v, T& m) {
  v(m.places);
}
template <typename V, Is<Stop> T>
void visit(V& v, T& m) {
  v(m.move_id), v(m.deadline_ms);
}
template <typename V, Is<Stopped> T>
void visit(V& v, T& m) {
  v(m.move_id), v(m.error), v(m.prepare_ns), v(m.suspend_ns), v(m.detach_ns);
  v(m.qps), v(m.unacked_psns), v(m.contexts);
}
template <typename V, Is<Tracked> T>
void visit(V& v, T& m) {
  v(m.error);
}
template <typename V, Is<Awake> T>
void visit(V& v, T& m) {
  v(m.move_id), v(m.registration);
}
template <typename V, Is<Resume> T>
void visit(V& v, T& m) {
  v(m.rollback), v(m.contexts);
}
template <typename V, Is<Stay> T>
void visit(V& v, T& m) {
  v(m.retry_ms);
}
template <typename V, Is<Resumed> T>
void visit(V& v, T& m) {
  v(m.move_id), v(m.error), v(m.attach_ns), v(m.resume_ns);
}
template <typename V, Is<PeersKnow> T>
void visit(V& v, T& m) {
  v(m.move_id), v(m.remaining), v(m.qpns), v(m.retransmitted_packets);
}
template <typename V, typename T>
requires Is<T, PauseTree> || Is<T, Frozen> || Is<T, DumpFailed>
void visit(V& v, T& m) {
  v(m.pid);
}
template <typename V, Is<Action> T>
void visit(V& v, T& m) {
  v(m.name), v(m.pid), v(m.move_id);
}
template <typename V, Is<Done> T>
void visit(V& v, T& m) {
  v(m.code), v(m.error), v(m.note);
}
template <typename V, typename T>
requires Is<T, Claim> || Is<T, RestoreFailed>
void visit(V& v, T& m) {
  v(m.note);
}
template <typename V, Is<Restored> T>
void visit(V& v, T& m) {
  v(m.note), v(m.pid), v(m.waits);
}
template <typename V, Is<Ticket> T>
void visit(V& v, T& m) {
  v(m.text);
}

// Writes integers as they are, bool as one byte; strings, byte strings and lists with a 32-bit count
// in front.
class Writer {
 public:
  explicit Writer(std::vector<std::byte>* out) : out_(out) {}
  template <typename T>
  void operator()(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      out_.put<std::uint8_t>(value ? 1 : 0);
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
      out_.put(value);
    } else {
      visit(*this, value);
    }
  }
  void operator()(const std::string& text) {
    out_.put(static_cast<std::uint32_t>(text.size()));
    out_.append(text.data(), text.size());
  }
  template <typename T>
  void operator()(const std::vector<T>& list) {
    out_.put(static_cast<std::uint32_t>(list.size()));
    if constexpr (std::is_same_v<T, std::byte>) {
      out_.append(list.data(), list.size());
    } else {
      for (const T& item : list) (*this)(item);
    }
  }
  void count(const std::vector<int>& descriptors) {
    out_.put(static_cast<std::uint32_t>(descriptors.size()));
  }
  bool goes_on(bool is_there) const { return is_there; }

 private:
  wire::ByteWriter out_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) : in_(in) {}
  template <typename T>
  void operator()(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      const auto byte = in_.get<std::uint8_t>();
      if (byte > 1) in_.fail();
      value = byte == 1;
    } else if constexpr (std::is_integral_v<T>) {
      value = in_.get<T>();
    } else if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(in_.get<std::underlying_type_t<T>>());
    } else {
      visit(*this, value);
    }
  }
  void operator()(std::string& text) {
    const auto bytes = in_.take(in_.get<std::uint32_t>());
    text.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  template <typename T>
  void operator()(std::vector<T>& list) {
    const auto count = in_.get<std::uint32_t>();
    if constexpr (std::is_same_v<T, std::byte>) {
      const auto bytes = in_.take(count);
      list.assign(bytes.begin(), bytes.end());
    } else {
      // Items are added one by one, while bytes last: a false count cannot claim memory.
      list.clear();
      for (std::uint32_t i = 0; i < count && in_.ok(); ++i) {
        if (in_.remaining() == 0) in_.fail();
        (*this)(list.emplace_back());
      }
    }
  }
  void count(std::vector<int>& descriptors) {
    const auto count = in_.get<std::uint32_t>();
    if (count > kMaxDescriptors - descriptors_) return in_.fail();
    descriptors_ += count;
    descriptors.assign(count, -1);
  }
  // Whether a part follows that is not in every message.
  bool goes_on(bool /*is_there*/) const { return in_.remaining() > 0; }
  bool finished() const { return in_.ok() && in_.remaining() == 0; }

 private:
  wire::ByteReader in_;
  std::size_t descriptors_ = 0;  // counted so far
};

template <typename T>
std::vector<std::byte> encode_body(const T& message) {
  std::vector<std::byte> body;
  Writer writer(&body);
  writer(message);
  return body;
}

template <typename T>
bool parse_body(std::span<const std::byte> body, T* out) {
  *out = T{};
  Reader reader(body);
  reader(*out);
  return reader.finished();
}

struct Header {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t type;
  std::uint32_t length;
};
static_assert(sizeof(Header) == 12);

constexpr std::size_t kDescriptorsPerCall = 253;  // SCM_MAX_FD of the kernel
static_assert(kMaxDescriptors <= kDescriptorsPerCall * (sizeof(Header) - 1));

std::int64_t now_ms() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

// 0, ETIMEDOUT or errno.
int wait_for(int socket, short events, int timeout_ms) {
  const std::int64_t deadline = now_ms() + timeout_ms;
  for (;;) {
    pollfd p{socket, events, 0};
    const int left =
        timeout_ms < 0
            ? -1
            : static_cast<int>(std::clamp<std::int64_t>(deadline - now_ms(), 0, timeout_ms));
    const int ready = ::poll(&p, 1, left);
    if (ready > 0) return 0;
    if (ready == 0) return ETIMEDOUT;
    if (errno != EINTR) return errno;
  }
}

// Sends all of `bytes`, and the descriptors with the first of them.
int send_part(int socket, std::span<const std::byte> bytes, std::span<const int> descriptors) {
  while (!bytes.empty()) {
    iovec vector{const_cast<std::byte*>(bytes.data()), bytes.size()};
    msghdr header{};
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    alignas(cmsghdr) std::byte control[CMSG_SPACE(kDescriptorsPerCall * sizeof(int))];
    if (!descriptors.empty()) {
      header.msg_control = control;
      header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
      std::memset(control, 0, header.msg_controllen);
      cmsghdr* c = CMSG_FIRSTHDR(&header);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(descriptors.size_bytes());
      std::memcpy(CMSG_DATA(c), descriptors.data(), descriptors.size_bytes());
    }
    const ssize_t sent = ::sendmsg(socket, &header, MSG_NOSIGNAL);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
      descriptors = {};
    } else if (errno == EAGAIN) {
      if (int error = wait_for(socket, POLLOUT, kMessageTimeMs)) return error;
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

// Fills `bytes`; descriptors that come along are appended. A message that has begun must be
// finished in time.
int receive_part(int socket, std::span<std::byte> bytes, std::vector<int>* descriptors,
                 const std::atomic<bool>* takes_descriptors, std::int64_t deadline) {
  while (!bytes.empty()) {
    const std::int64_t left = deadline - now_ms();
    if (left <= 0) return EPROTO;
    if (int error = wait_for(socket, POLLIN, static_cast<int>(left))) {
      return error == ETIMEDOUT ? EPROTO : error;
    }
    iovec vector{bytes.data(), bytes.size()};
    alignas(cmsghdr) std::byte control[CMSG_SPACE(kDescriptorsPerCall * sizeof(int))];
    msghdr header{};
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    // Without room for them the kernel keeps descriptors to itself, and says so: MSG_CTRUNC.
    const bool takes = takes_descriptors == nullptr || *takes_descriptors;
    header.msg_control = takes ? control : nullptr;
    header.msg_controllen = takes ? sizeof control : 0;
    const ssize_t got = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) return errno;
    for (cmsghdr* c = CMSG_FIRSTHDR(&header); c; c = CMSG_NXTHDR(&header, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
      const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      const std::size_t old = descriptors->size();
      descriptors->resize(old + count);
      std::memcpy(descriptors->data() + old, CMSG_DATA(c), count * sizeof(int));
    }
    if ((header.msg_flags & MSG_CTRUNC) || descriptors->size() > kMaxDescriptors) return EPROTO;
    if (got == 0) return EPIPE;
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
  return 0;
}

int receive_into(int socket, Message* out, int timeout_ms,
                 const std::atomic<bool>* takes_descriptors) {
  if (int error = wait_for(socket, POLLIN, timeout_ms)) return error;
  const std::int64_t deadline = now_ms() + kMessageTimeMs;
  Header header;
  auto bytes = std::as_writable_bytes(std::span(&header, 1));
  if (int error = receive_part(socket, bytes, &out->descriptors, takes_descriptors, deadline)) {
    return error;
  }
  if (header.magic != kMagic || header.length > kMaxBody) return EPROTO;
  out->type = static_cast<MessageType>(header.type);
  out->version = header.version;
  // Grows as bytes arrive: a header alone cannot claim 64 MiB.
  constexpr std::size_t kStep = 1u << 20;
  while (out->body.size() < header.length) {
    const std::size_t old = out->body.size();
    out->body.resize(std::min<std::size_t>(header.length, old + kStep));
    if (int error = receive_part(socket, std::span(out->body).subspan(old), &out->descriptors,
                                 takes_descriptors, deadline)) {
      return error;
    }
  }
  return 0;
}

}  // namespace

std::vector<std::byte> encode(const Register& m) {
  return encode_body(m);
}
std::vector<std::byte> encode(const StatusReply& m) {
  return encode_body(m);
}
std::vector<std::byte> encode(const Suspend& m) {
  return encode_body(m);
}
std::vector<std::byte> encode(const Suspending& m) {
  return encode_body(m);
}
std::vector<std::byte> encode(const Letters& m) {
  return encode_body(m);
}
std::vector<std::byte> encode(const Delivered& m) {
  return encode_body(m);
}
std::vector<std::byte> encode(const DatagramQps& m) {
  return encode_body(m);
}
std::vector<std::byte> encode(const device::MovedNames& m) {
  return encode_body(m);
}
std::vector<std::byte> encode(const Stop& m) {
  return encode_body(m);
}
std::vector<std::byte> encode(const Stopped& m) {
  return encode_body(m);
}
std::vector<std::byte> encode(const Tracked& m) {
  return encode_body(m);
}
std::vector<std::byte> encode(const Awake& m) {
  return encode_body(m);
}
std::vector<std::byte> encode(const Resume& m) {
  return encode_body(m);
}
std::vector<std::byte> encode(const Stay& m) {
  return encode_body(m);
}
std::vector<std::byte> encode(const Resumed& m) {
  return encode_body(m);
}
std::vector<std::byte> encode(const PeersKnow& m) {
  return encode_body(m);
}
std::vector<std::byte> encode(const Locate& m) {
  return encode_body(m);
}
std::vector<std::byte> encode(const Located& m) {
  return encode_body(m);
}
std::vector<std::byte> encode(const PauseTree& m) {
  return encode_body(m);
}
std::vector<std::byte> encode(const Frozen& m) {
  return encode_body(m);
}
std::vector<std::byte> encode(const DumpFailed& m) {
  return encode_body(m);
}
std::vector<std::byte> encode(const Claim& m) {
  return encode_body(m);
}
std::vector<std::byte> encode(const RestoreFailed& m) {
  return encode_body(m);
}
std::vector<std::byte> encode(const Restored& m) {
  return encode_body(m);
}
std::vector<std::byte> encode(const Action& m) {
  return encode_body(m);
}
std::vector<std::byte> encode(const Done& m) {
  return encode_body(m);
}
std::vector<std::byte> encode(const Ticket& m) {
  return encode_body(m);
}

bool parse(std::span<const std::byte> body, Register* out) {
  return parse_body(body, out);
}
bool parse(std::span<const std::byte> body, StatusReply* out) {
  return parse_body(body, out);
}
bool parse(std::span<const std::byte> body, Suspend* out) {
  return parse_body(body, out);
}
bool parse(std::span<const std::byte> body, Suspending* out) {
  return parse_body(body, out);
}
bool parse(std::span<const std::byte> body, Letters* out) {
  return parse_body(body, out);
}
bool parse(std::span<const std::byte> body, Delivered* out) {
  return parse_body(body, out);
}
bool parse(std::span<const std::byte> body, DatagramQps* out) {
  return parse_body(body, out);
}
bool parse(std::span<const std::byte> body, device::MovedNames* out) {
  return parse_body(body, out);
}
bool parse(std::span<const std::byte> body, Stop* out) {
  return parse_body(body, out);
}
bool parse(std::span<const std::byte> body, Stopped* out) {
  return parse_body(body, out);
}
bool parse(std::span<const std::byte> body, Tracked* out) {
  return parse_body(body, out);
}
bool parse(std::span<const std::byte> body, Awake* out) {
  return parse_body(body, out);
}
bool parse(std::span<const std::byte> body, Resume* out) {
  return parse_body(body, out);
}
bool parse(std::span<const std::byte> body, Stay* out) {
  return parse_body(body, out);
}
bool parse(std::span<const std::byte> body, Resumed* out) {
  return parse_body(body, out);
}
bool parse(std::span<const std::byte> body, PeersKnow* out) {
  return parse_body(body, out);
}
bool parse(std::span<const std::byte> body, Locate* out) {
  return parse_body(body, out);
}
bool parse(std::span<const std::byte> body, Located* out) {
  return parse_body(body, out);
}
bool parse(std::span<const std::byte> body, PauseTree* out) {
  return parse_body(body, out);
}
bool parse(std::span<const std::byte> body, Frozen* out) {
  return parse_body(body, out);
}
bool parse(std::span<const std::byte> body, DumpFailed* out) {
  return parse_body(body, out);
}
bool parse(std::span<const std::byte> body, Claim* out) {
  return parse_body(body, out);
}
bool parse(std::span<const std::byte> body, RestoreFailed* out) {
  return parse_body(body, out);
}
bool parse(std::span<const std::byte> body, Restored* out) {
  return parse_body(body, out);
}
bool parse(std::span<const std::byte> body, Action* out) {
  return parse_body(body, out);
}
bool parse(std::span<const std::byte> body, Done* out) {
  return parse_body(body, out);
}
bool parse(std::span<const std::byte> body, Ticket* out) {
  return parse_body(body, out);
}

std::vector<int> descriptors_of(const std::vector<ParkedContext>& contexts) {
  std::vector<int> result;
  for (const ParkedContext& context : contexts) {
    const auto& own = context.parcel.descriptors;
    result.insert(result.end(), own.begin(), own.end());
  }
  return result;
}

bool give_descriptors(std::vector<int>* descriptors, std::vector<ParkedContext>* contexts) {
  std::size_t count = 0;
  for (const ParkedContext& context : *contexts) count += context.parcel.descriptors.size();
  if (count != descriptors->size()) return false;
  auto next = descriptors->begin();
  for (ParkedContext& context : *contexts) {
    for (int& descriptor : context.parcel.descriptors) descriptor = *next++;
  }
  descriptors->clear();
  return true;
}

void close_descriptors(std::vector<int>* descriptors) {
  for (int descriptor : *descriptors) ::close(descriptor);
  descriptors->clear();
}

int send_message(int socket, MessageType type, std::span<const std::byte> body,
                 std::span<const int> descriptors) {
  if (body.size() > kMaxBody) return EMSGSIZE;
  if (descriptors.size() > kMaxDescriptors) return E2BIG;
  const Header header{kMagic, kVersion, static_cast<std::uint16_t>(type),
                      static_cast<std::uint32_t>(body.size())};
  std::vector<std::byte> bytes(sizeof header + body.size());
  std::memcpy(bytes.data(), &header, sizeof header);
  if (!body.empty()) std::memcpy(bytes.data() + sizeof header, body.data(), body.size());
  std::span<const std::byte> rest = bytes;
  while (descriptors.size() > kDescriptorsPerCall) {
    if (int error = send_part(socket, rest.first(1), descriptors.first(kDescriptorsPerCall)))
      return error;
    rest = rest.subspan(1);
    descriptors = descriptors.subspan(kDescriptorsPerCall);
  }
  return send_part(socket, rest, descriptors);
}

int receive_message(int socket, Message* out, int timeout_ms,
                    const std::atomic<bool>* takes_descriptors) {
  *out = Message{};
  const int error = receive_into(socket, out, timeout_ms, takes_descriptors);
  if (error) close_descriptors(&out->descriptors);
  return error;
}

int connect_to_ferryd() {
  const char* path = ::secure_getenv(kSocketVariable);
  if (!path || !*path) path = kSocketPath;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (std::strlen(path) >= sizeof address.sun_path) return -ENAMETOOLONG;
  std::strcpy(address.sun_path, path);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return -errno;
  // A listener whose backlog is full must not hold this process for ever.
  const timeval limit{1, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    const int error = errno;
    ::close(socket);
    return -error;
  }
  return socket;
}

}  // namespace ferry::agent
