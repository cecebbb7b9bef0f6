#include "pipe/library/socket.h"

#include <sys/socket.h>

#include "ferry/pd.h"

namespace ferry::pd {

std::uint32_t Socket::ready() const {
  const Kind now = kind;
  if (now == Kind::kListening) return received != handed ? PD_EPOLLIN : 0;
  if (now == Kind::kClosed) return PD_EPOLLERR | PD_EPOLLHUP;
  if (now == Kind::kFresh) return PD_EPOLLOUT | PD_EPOLLHUP;  // as TCP has it
  if (now != Kind::kPipe) return 0;                           // the kernel tells
  const std::uint16_t what = flags;
  std::uint32_t events = 0;
  if (received != handed || (what & (pipe::kEnd | pipe::kReset)) != 0) events |= PD_EPOLLIN;
  if (under_way() < kMostSends || (what & (pipe::kReadClosed | pipe::kReset)) != 0) {
    events |= PD_EPOLLOUT;
  }
  if ((what & pipe::kReset) != 0) events |= PD_EPOLLERR | PD_EPOLLHUP;
  if ((what & pipe::kEnd) != 0 && ((what & pipe::kReadClosed) != 0 || write_shut)) {
    events |= PD_EPOLLHUP;
  }
  return events;
}

int Socket::descriptor() const {
  const Kind now = kind;
  const bool tells = now == Kind::kListening || now == Kind::kConnecting || now == Kind::kTcp;
  return tells ? tcp.get() : -1;
}

void Socket::stop_listening() const {
  if (kind == Kind::kListening) ::shutdown(tcp.get(), SHUT_RDWR);
}

void Socket::clear() {
  kind = Kind::kClosed;
  id = {};
  local = peer = {};
  send_ring = {};
  receive_ring = {};
  blocks.clear();
  patience = kPatience;
  error = 0;
  tcp.reset();
  accepted = nullptr;
  read_shut = write_shut = false;
  sent = handed = done = received = 0;
  given_back = told = last_position = 0;
  generation = 0;
  flags = 0;
}

void Socket::wake_watches() {
  const std::lock_guard lock(watch_mutex);
  for (const auto& watch : watches) watch->wake();
}

}  // namespace ferry::pd
