#include "gsi/local.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "cm/destination.h"
#include "gsi/wire_socket.h"

namespace ferry::gsi {
namespace {

constexpr std::uint32_t kMagic = 0x31435146;  // "FQC1"

// Between processes of one host: native byte order.
struct Envelope {
  std::uint32_t magic = kMagic;
  std::array<std::byte, 16> from, to;
  cm::Mad mad;
};
static_assert(sizeof(Envelope) == 4 + 16 + 16 + cm::kMadSize);

std::string hex(const void* data, std::size_t size) {
  std::string text;
  for (std::size_t i = 0; i < size; ++i) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", static_cast<const unsigned char*>(data)[i]);
    text += digits;
  }
  return text;
}

std::string service_text(cm::ServiceId service) {
  char text[24];
  std::snprintf(text, sizeof text, "/%016llx", static_cast<unsigned long long>(service));
  return text;
}

socklen_t to_address(const std::string& name, sockaddr_un* out) {
  *out = {};
  out->sun_family = AF_UNIX;
  std::memcpy(out->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

// How long a sender waits for room in a receiver's queue. The queue holds few datagrams
// (net.unix.max_dgram_qlen, 10), and messages come in bursts: as many as a program opens or closes
// connections at once.
constexpr timeval kPatience{0, 5000};

int unix_socket() {
  return ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

int sending_socket() {
  const int descriptor = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (descriptor >= 0)
    ::setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
  return descriptor;
}

bool send_to(int socket, const std::string& name, const Envelope& envelope) {
  sockaddr_un address;
  const socklen_t length = to_address(name, &address);
  // ECONNREFUSED: nobody is there. After any other error, such as a queue that stays full, the
  // datagram is lost, and its sender repeats it.
  return ::sendto(socket, &envelope, sizeof envelope, MSG_NOSIGNAL,
                  reinterpret_cast<const sockaddr*>(&address), length) >= 0 ||
         errno != ECONNREFUSED;
}

}  // namespace

std::string process_name(std::uint16_t tag) {
  char text[24];
  std::snprintf(text, sizeof text, "ferry-cm/t/%04x", tag);
  return text;
}

std::string listener_name(const port::Address& address, cm::ServiceId service) {
  return "ferry-cm/l/" + hex(address.bytes.data(), address.bytes.size()) + service_text(service);
}

std::string listener_name_any(cm::ServiceId service) {
  return "ferry-cm/l/any" + service_text(service);
}

std::string away_name(const port::Address& address) {
  return "ferry-cm/away/" + hex(address.bytes.data(), address.bytes.size());
}

int open_receiver(const std::string& name, int* error) {
  const int descriptor = unix_socket();
  if (descriptor >= 0) {
    sockaddr_un address;
    const socklen_t length = to_address(name, &address);
    if (::bind(descriptor, reinterpret_cast<const sockaddr*>(&address), length) == 0)
      return descriptor;
  }
  *error = errno;
  if (descriptor >= 0) ::close(descriptor);
  return -1;
}

bool exists(const std::string& name) {
  const int descriptor = unix_socket();
  if (descriptor < 0) return false;
  sockaddr_un address;
  const socklen_t length = to_address(name, &address);
  const bool found = ::connect(descriptor, reinterpret_cast<sockaddr*>(&address), length) == 0;
  ::close(descriptor);
  return found;
}

std::optional<cm::Datagram> receive(int receiver) {
  Envelope envelope;
  const ssize_t size = ::recv(receiver, &envelope, sizeof envelope, MSG_DONTWAIT | MSG_TRUNC);
  if (size != static_cast<ssize_t>(sizeof envelope) || envelope.magic != kMagic)
    return std::nullopt;
  cm::Datagram datagram;
  datagram.from.bytes = envelope.from;
  datagram.to.bytes = envelope.to;
  datagram.mad = envelope.mad;
  return datagram;
}

bool pass_on(const cm::Mad& mad, const port::Address& from, const port::Address& to) {
  const auto whom = cm::destination_of(mad);
  if (!whom) return true;  // nobody is missed
  const int socket = sending_socket();
  if (socket < 0) return true;  // lost, like any datagram
  Envelope envelope;
  envelope.from = from.bytes;
  envelope.to = to.bytes;
  envelope.mad = mad;
  bool taken = false;
  if (whom->process) {
    taken = send_to(socket, process_name(cm::tag_of(*whom->process)), envelope);
  } else {
    taken = send_to(socket, listener_name(to, whom->service), envelope) ||
            send_to(socket, listener_name_any(whom->service), envelope);
  }
  ::close(socket);
  return taken;
}

bool pass_on_to_away(const cm::Mad& mad, const port::Address& from, const port::Address& to) {
  const auto whom = cm::destination_of(mad);
  const int socket = whom && !whom->process ? unix_socket() : -1;
  if (socket < 0) return false;
  const bool taken = send_to(socket, away_name(to), {kMagic, from.bytes, to.bytes, mad});
  ::close(socket);
  return taken;
}

void take(const cm::Mad& mad, const port::Address& from, const port::Address& to) {
  if (pass_on(mad, from, to) || pass_on_to_away(mad, from, to)) return;
  const auto answer = cm::answer_for_nobody(mad);
  if (!answer) return;
  int error = 0;
  if (auto socket = WireSocket::open(to, &error)) socket->send(*answer, from);
}

void take_for_moved(const cm::Mad& mad, const port::Address& from, const port::Address& to) {
  const auto whom = cm::destination_of(mad);
  if (whom && whom->process) {
    pass_on(mad, from, to);
  } else {
    take(mad, from, to);
  }
}

}  // namespace ferry::gsi
