#include "pipe_calls.h"

#include <ferry/pd.h>
#include <netinet/in.h>

#include <cerrno>

#include "address.h"
#include "failure.h"
#include "retry.h"

namespace carriers {
namespace {

int make_socket(int ring) {
  const int sid = pd_socket(AF_INET, SOCK_STREAM, 0);
  if (sid < 0) give_up("pd_socket");
  if (pd_setsockopt(sid, SOL_SOCKET, SO_SNDBUF, &ring, sizeof ring) != 0 ||
      pd_setsockopt(sid, SOL_SOCKET, SO_RCVBUF, &ring, sizeof ring) != 0) {
    give_up("pd_setsockopt");
  }
  return sid;
}

bool is_over_pipe(int sid) {
  int carrier = PD_CARRIER_NONE;
  socklen_t size = sizeof carrier;
  pd_getsockopt(sid, PD_SOL_PIPE, PD_SO_CARRIER, &carrier, &size);
  return carrier == PD_CARRIER_PIPE;
}

}  // namespace

void begin_pipe() {
  if (pd_init(nullptr, 0, 0) != 0) give_up("pd_init (is ferry-piped running?)");
}

int listen_by_pipe(const std::string& where, int backlog, int ring) {
  const sockaddr_in address = parse(where);
  const int listener = make_socket(ring);
  if (pd_bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      pd_listen(listener, backlog) != 0) {
    give_up("pd_listen");
  }
  return listener;
}

int connect_by_pipe(const std::string& where, int patience, int ring) {
  const sockaddr_in address = parse(where);
  int sid = -1;
  const char* failed = nullptr;
  const bool connected = retry(patience, [&] {
    sid = make_socket(ring);
    failed = "pd_connect";
    if (pd_connect_timed(sid, reinterpret_cast<const sockaddr*>(&address), sizeof address,
                         10'000) == 0) {
      if (is_over_pipe(sid)) return Attempt::kDone;
      // A listener can be reached by TCP a moment before it can by the pipe.
      failed = "the pipe does not lead there";
      errno = EHOSTUNREACH;
    }
    const int error = errno;
    pd_close(sid);
    errno = error;
    return error == ECONNREFUSED || error == EHOSTUNREACH ? Attempt::kLater : Attempt::kFailed;
  });
  if (!connected) give_up((where + ": " + failed).c_str());
  return sid;
}

int accept_by_pipe(int listener, int patience) {
  const int sid = pd_accept_timed(listener, nullptr, nullptr, patience == 0 ? -1 : patience);
  if (sid < 0 && errno == EAGAIN) errno = ETIMEDOUT;
  if (sid < 0) give_up("pd_accept");
  return sid;
}

int accept_only_by_pipe(int listener, int patience) {
  for (;;) {
    const int sid = accept_by_pipe(listener, patience);
    if (is_over_pipe(sid)) return sid;
    pd_close(sid);
  }
}

}  // namespace carriers
