// pd_getsockopt() and pd_setsockopt().

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "ferry/pd.h"
#include "pipe/library/call.h"

namespace ferry::pd {
namespace {

constexpr int kLongestPatience = 1'000'000;  // microseconds
constexpr int kDefaultRing = 4 << 20;

int carrier(const Socket& socket) {
  if (socket.kind == Socket::Kind::kPipe) return PD_CARRIER_PIPE;
  return socket.kind == Socket::Kind::kTcp ? PD_CARRIER_TCP : PD_CARRIER_NONE;
}

int take_error(Socket& socket) {
  if (socket.kind == Socket::Kind::kConnecting) {
    const int error = finish_connecting(socket);
    return error == EAGAIN ? 0 : error;
  }
  const int error = std::exchange(socket.error, 0);
  return error == 0 && (socket.flags & pipe::kReset) != 0 ? ECONNRESET : error;
}

int ring_size(const Mapping& ring) {
  return ring ? static_cast<int>(ring.size()) : kDefaultRing;
}

// False: there is no such option.
bool read_option(Socket& socket, int level, int option, int* value) {
  if (level == PD_SOL_PIPE && option == PD_SO_CARRIER) {
    *value = carrier(socket);
    return true;
  }
  if (level != SOL_SOCKET) return false;
  switch (option) {
    case SO_SNDBUF: *value = ring_size(socket.send_ring); return true;
    case SO_RCVBUF: *value = ring_size(socket.receive_ring); return true;
    case SO_BUSY_POLL: *value = socket.patience; return true;
    case SO_ERROR: *value = take_error(socket); return true;
    case SO_TYPE: *value = SOCK_STREAM; return true;
    case SO_DOMAIN: *value = socket.family; return true;
    case SO_PROTOCOL: *value = IPPROTO_TCP; return true;
    case SO_ACCEPTCONN: *value = socket.kind == Socket::Kind::kListening; return true;
    default: return false;
  }
}

}  // namespace
}  // namespace ferry::pd

using namespace ferry;
using namespace ferry::pd;

extern "C" {

int pd_getsockopt(int sid, int level, int optname, void* optval, socklen_t* optlen) {
  const Call call(sid);
  if (!call) return -1;
  const auto lock = call.lock();
  if (!lock) return -1;
  int value = 0;
  if (optval == nullptr || optlen == nullptr) return fail(EINVAL);
  if (!read_option(*call.socket, level, optname, &value)) return fail(ENOPROTOOPT);
  *optlen = std::min<socklen_t>(*optlen, sizeof value);
  std::memcpy(optval, &value, *optlen);
  return 0;
}

int pd_setsockopt(int sid, int level, int optname, const void* optval, socklen_t optlen) {
  const Call call(sid);
  if (!call) return -1;
  Socket& socket = *call.socket;
  const auto lock = call.lock();
  if (!lock) return -1;
  int value = 0;
  if (level != SOL_SOCKET ||
      (optname != SO_SNDBUF && optname != SO_RCVBUF && optname != SO_BUSY_POLL)) {
    return fail(ENOPROTOOPT);
  }
  if (optval == nullptr || optlen < sizeof value) return fail(EINVAL);
  std::memcpy(&value, optval, sizeof value);
  if (optname == SO_BUSY_POLL) {
    if (value < 0 || value > kLongestPatience) return fail(EINVAL);
    socket.patience = value;
    return 0;
  }
  if (value <= 0) return fail(EINVAL);
  pipe::ControlRequest request;
  pipe::ControlReply reply;
  request.call = pipe::Call::kBufferSizes;
  request.socket = socket.id;
  request.sizes[optname == SO_SNDBUF ? 0 : 1] = static_cast<std::uint64_t>(value);
  const int error = call.program->ask(request, &reply);
  if (error != 0) return fail(error);
  socket.wanted_sizes[optname == SO_SNDBUF ? 0 : 1] = static_cast<std::uint64_t>(value);
  return 0;
}

}  // extern "C"
