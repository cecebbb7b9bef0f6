// The thread of a program that uses the pipe: when ferry-piped was killed it finds the next one and says what the
// program has, and it closes sockets whose bytes were not all sent when pd_close() was called.

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "pipe/library/exchange.h"
#include "pipe/library/program.h"

namespace ferry::pd {
namespace {

using pipe::Call;
using pipe::ControlReply;
using pipe::ControlRequest;
using SteadyClock = std::chrono::steady_clock;

// Between two looks for a driver that is not there, and for a socket that a call has.
constexpr std::chrono::milliseconds kLookAgain{10}, kTryAgain{1};

ControlRequest about(Call call, const Socket& socket, std::uint32_t number = 0,
                     std::uint64_t first = 0, std::uint64_t second = 0) {
  ControlRequest request;
  request.call = call;
  request.socket = socket.id;
  request.number = number;
  request.sizes[0] = first;
  request.sizes[1] = second;
  return request;
}

void break_off(Socket& socket) {
  socket.flags |= pipe::kReset;
  socket.wake_watches();
}

bool has_hung_up(int socket) {
  pollfd hung_up{socket, POLLRDHUP, 0};
  return ::poll(&hung_up, 1, 0) > 0;
}

}  // namespace

void Program::begin_thread() {
  // The program's signals are for its own threads.
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Program::run() {
  while (!stops_) {
    if (is_lost(epoch_)) {
      if (!find_driver()) {
        if (!stops_) set_over();
        return;
      }
      restore_all();
      continue;
    }
    if (closing_ != 0) {
      finish_closing();
      // From now on the others take notices themselves.
      if (closing_ == 0) pass_notice_on();
    }
    rest();
  }
}

// Until the driver is killed, the program ends, or something may be sent that was not when its socket was closed.
void Program::rest() {
  const bool closes = closing_ != 0;
  if (closes) {
    ++sleepers;
    want_notice();
  }
  if (!closes || !has_completions()) {
    std::array<pollfd, 3> watched{pollfd{wake_.get(), POLLIN, 0},
                                  pollfd{control_.get(), POLLRDHUP, 0},
                                  pollfd{closes ? notice_.get() : -1, POLLIN, 0}};
    ::poll(watched.data(), watched.size(), -1);
    std::uint64_t times = 0;
    if (watched[0].revents != 0) ::eventfd_read(wake_.get(), &times);
    if (watched[2].revents != 0) ::eventfd_read(notice_.get(), &times);
  }
  if (!closes) return;
  // Wakes those whom it concerns. To pass the notice on would wake this thread again, without end.
  reap();
  --sleepers;
}

void Program::set_over() {
  {
    const std::lock_guard lock(control_mutex_);
    over_ = true;
  }
  changed_.notify_all();
  ::eventfd_write(ended_.get(), 1);
  for (std::size_t index = 0; index < places_; ++index) {
    if (Socket* socket = table_[index]) socket->wake_watches();
  }
}

// The caller has control_mutex_.
void Program::lose() {
  is_connected_ = false;
  changed_.notify_all();
  ::eventfd_write(wake_.get(), 1);
}

bool Program::is_lost(std::uint64_t epoch) {
  const std::lock_guard lock(control_mutex_);
  if (is_connected_ && has_hung_up(control_.get())) lose();
  return !is_connected_ || epoch != epoch_;
}

// True: the program ends.
bool Program::await_stop(std::chrono::milliseconds time) {
  pollfd woken{wake_.get(), POLLIN, 0};
  std::uint64_t times = 0;
  if (::poll(&woken, 1, static_cast<int>(time.count())) > 0) ::eventfd_read(wake_.get(), &times);
  return stops_;
}

bool Program::find_driver() {
  const auto until = SteadyClock::now() + session_.away;
  while (!stops_ && SteadyClock::now() < until) {
    UniqueFd control = connect_driver(session_.path, true);
    const int error = control ? resume(control.get(), until) : EPIPE;
    if (error == 0) {
      {
        const std::lock_guard lock(control_mutex_);
        control_ = std::move(control);
        ++epoch_;
        is_connected_ = true;
      }
      changed_.notify_all();
      return true;
    }
    // ENOBUFS: what others have, they may give back.
    if (error != EPIPE && error != ENOBUFS) return false;  // it does not want this program
    await_stop(kLookAgain);
  }
  return false;
}

int Program::resume(int control, SteadyClock::time_point until) {
  {
    // From here on completion queues are empty, until the next driver writes.
    const std::lock_guard lock(reap_mutex_);
    reap_all();
    early_.clear();
  }
  // The driver may have been killed when it was about to give one.
  want_notice();
  ControlRequest request;
  request.call = Call::kResume;
  request.number = pipe::kControlVersion;
  request.sizes[0] = session_.name;
  request.sizes[1] = session_.completion_batch;
  {
    const std::lock_guard lock(control_mutex_);
    request.socket = {static_cast<std::uint32_t>(places_), newest_};
  }
  if (!send_request(control, request, {memory_.get(), doorbell_.get(), notice_.get()}))
    return EPIPE;
  // One may listen, by systemd, that is not there yet.
  for (;;) {
    std::array<pollfd, 2> watched{pollfd{control, POLLIN, 0}, pollfd{wake_.get(), POLLIN, 0}};
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - SteadyClock::now()).count();
    if (left <= 0) return EPIPE;
    if (::poll(watched.data(), watched.size(), static_cast<int>(left)) < 0) continue;
    if (watched[0].revents != 0) break;
    std::uint64_t times = 0;
    if (watched[1].revents != 0) ::eventfd_read(wake_.get(), &times);
    if (stops_) return EPIPE;
  }
  ControlReply reply;
  return take_answer(control, &reply, nullptr);
}

int Program::tell(std::uint64_t epoch, const ControlRequest& request,
                  const std::vector<int>& descriptors, const std::function<void()>& then) {
  const std::lock_guard lock(control_mutex_);
  if (!is_connected_ || over_ || epoch != epoch_) return EPIPE;
  ControlReply reply;
  const int error = exchange(control_.get(), request, descriptors, &reply, nullptr);
  if (error == EPIPE) lose();
  if (error == 0 && then) then();
  return error;
}

// A socket that a call has is said by that call, or waits for it: which may itself wait for the driver, so that nobody
// waits for a socket here.
void Program::restore_all() {
  const std::uint64_t epoch = epoch_;
  const auto until = SteadyClock::now() + session_.away;
  for (bool any = true; any;) {
    any = false;
    for (std::size_t index = 0; index < places_; ++index) {
      Socket* socket = table_[index];
      if (socket == nullptr || socket->generation == 0 || socket->epoch == epoch) continue;
      const std::unique_lock lock(socket->mutex, std::try_to_lock);
      if (!lock) {
        any = true;
        continue;
      }
      if (socket->generation == 0 || socket->epoch == epoch) continue;
      const Restored restored = restore(*socket, epoch);
      if (restored == Restored::kLost) return;
      if (restored == Restored::kYes || !socket->joined) continue;
      if (SteadyClock::now() < until) {
        any = true;
      } else if (!give_up(*socket, epoch)) {
        return;
      }
    }
    if (any && (await_stop(kTryAgain) || is_lost(epoch))) return;
  }
  ControlRequest request;
  request.call = Call::kResumed;
  tell(epoch, request, {}, [&] { restored_ = epoch; });
  changed_.notify_all();
}

Program::Restored Program::restore(Socket& socket, std::uint64_t epoch) {
  int error = 0;
  bool has_all = true;
  const auto say = [&](const ControlRequest& request, const std::vector<int>& descriptors = {}) {
    if (error != EPIPE) error = tell(epoch, request, descriptors);
  };
  if (socket.begun != epoch) {
    say(about(Call::kRestore, socket, socket.family, socket.wanted_sizes[0],
              socket.wanted_sizes[1]));
    has_all = error == 0;
    const auto kind = socket.kind.load();
    if (socket.tcp && (kind == Socket::Kind::kFresh || kind == Socket::Kind::kListening)) {
      ControlRequest request = about(Call::kBind, socket);
      request.address = socket.local;
      say(request, {socket.tcp.get()});
    }
    if (kind == Socket::Kind::kListening) {
      ControlRequest request =
          about(Call::kListen, socket, static_cast<std::uint32_t>(socket.backlog));
      request.count = socket.handed + (socket.accepted != nullptr ? 1 : 0);
      {
        // What waits, the driver tells again.
        const std::lock_guard reaping(reap_mutex_);
        socket.received = request.count;
      }
      say(request);
    }
    if (error == EPIPE) return Restored::kLost;
    socket.begun = epoch;
  }
  const auto say_need = [&](const ControlRequest& request,
                            const std::vector<int>& descriptors = {}) {
    say(request, descriptors);
    has_all &= error == 0;
  };
  if (socket.send_ring) {
    say_need(about(Call::kGiveRings, socket),
             {socket.ring_memory[0].get(), socket.ring_memory[1].get()});
    // For those of a connection there is, unless the host has none.
    if (error == ENOBUFS) return Restored::kLater;
  }
  socket.forget_freed();
  for (const auto* blocks : {&socket.blocks, &socket.freed}) {
    for (const auto& [offset, block] : *blocks) {
      say_need(about(Call::kRestoreBlock, socket, block.index, offset, block.size));
    }
  }
  if (error == EPIPE) return Restored::kLost;
  // Else what the program has and what the driver has would not be the same.
  if (!has_all) return give_up(socket, epoch) ? Restored::kYes : Restored::kLost;
  if (socket.joined && !restore_connection(socket, epoch)) return Restored::kLost;
  for (const auto& [offset, block] : socket.freed) say(about(Call::kFree, socket, block.index));
  if (error == EPIPE) return Restored::kLost;
  socket.epoch = epoch;
  return Restored::kYes;
}

// The driver has nothing of it any more. False: that was killed.
bool Program::give_up(Socket& socket, std::uint64_t epoch) {
  if (tell(epoch, about(Call::kGiveUp, socket)) == EPIPE) return false;
  break_off(socket);
  socket.epoch = epoch;
  return true;
}

bool Program::restore_connection(Socket& socket, std::uint64_t epoch) {
  const std::uint64_t done = socket.done, following = socket.sent - done;
  std::uint64_t bytes = socket.sent_bytes;
  if (following != 0) bytes = socket.logged(done + 1).end - socket.logged(done + 1).length;
  ControlRequest request =
      about(Call::kRejoin, socket, static_cast<std::uint32_t>(following), bytes, socket.given_back);
  request.count = done;
  int error = tell(epoch, request);
  if (error == EPIPE) return false;
  if (error != 0) {
    break_off(socket);  // the driver knows nothing of it any more
    return true;
  }
  if (!say_sends(socket, epoch)) return false;
  // What follows is of what is behind all sends.
  settle(socket);
  socket.told = socket.given_back;
  if (socket.read_shut) error = tell(epoch, about(Call::kShutdown, socket, SHUT_RD));
  if (error != EPIPE && socket.write_shut) {
    error = tell(epoch, about(Call::kShutdown, socket, SHUT_WR));
  }
  if (error != EPIPE && socket.kind == Socket::Kind::kEnding) {
    error = tell(epoch, about(Call::kEnd, socket));
  }
  return error != EPIPE;
}

// In the queue, in which some may be already: the driver takes each once, in their order.
bool Program::say_sends(Socket& socket, std::uint64_t epoch) {
  const std::uint64_t last = socket.sent;
  for (std::uint64_t send = socket.done + 1; send <= last; ++send) {
    while (!submit(socket, socket.entry_of(socket.logged(send), send))) {
      ring(true);
      std::this_thread::yield();
      if (is_lost(epoch)) return false;
    }
  }
  ring(true);
  return true;
}

void Program::close_later(Socket& socket) {
  {
    const std::lock_guard watching(socket.watch_mutex);
    socket.kind = Socket::Kind::kEnding;
    for (const auto& watch : socket.watches) watch->wake();
    socket.watches.clear();
  }
  ++closing_;
  ::eventfd_write(wake_.get(), 1);
}

void Program::finish_closing() {
  reap();
  const std::uint64_t epoch = epoch_;
  for (std::size_t index = 0; index < places_; ++index) {
    Socket* socket = table_[index];
    if (socket == nullptr || socket->kind != Socket::Kind::kEnding) continue;
    const std::unique_lock lock(socket->mutex, std::try_to_lock);
    if (!lock) continue;  // pd_release() has it
    const bool ends =
        socket->under_way() == 0 || (socket->flags & (pipe::kReset | pipe::kReadClosed)) != 0;
    if (socket->kind != Socket::Kind::kEnding || !ends) continue;
    const auto done = [&] {
      clear(*socket);
      --closing_;
    };
    const ControlRequest request = about(Call::kClose, *socket);
    const int error = tell(epoch, request, {}, done);
    if (error == EPIPE) return;
    // The driver does not know it any more.
    if (error != 0 && socket->generation == request.socket.generation) done();
  }
}

}  // namespace ferry::pd
