#include "agent/agent.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "agent/clock.h"
#include "agent/userfaultfd.h"
#include "base/build_id.h"
#include "base/own_thread.h"
#include "device/gids.h"
#include "device/parcel.h"

namespace ferry::agent {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kRetry{1000};        // between looks for a ferryd
constexpr std::uint32_t kStopMs = 5000;     // deadline of a STOP that names none
constexpr std::uint32_t kAnswerMs = 10000;  // for ferryd's answer to AWAKE
// A Stopped process that was neither frozen nor told anything for so long asks by itself.
constexpr std::uint32_t kUntoldMs = 10000;
constexpr long kWatchNs = 500000;
constexpr milliseconds kToldLimit{1500};  // for ferryd's answer to DATAGRAM_QPS

// The time since now_ns() gave `start`.
std::uint64_t since(std::int64_t start) {
  return static_cast<std::uint64_t>(now_ns() - start);
}

// The names by which peers know the context's QPs; none for a context of our RNIC. The program has not said yet under
// which of its GIDs peers will know a QP that has no peer: such a QP has a name under each GID. QPN 0 stands for QPs
// that are made later.
std::vector<device::Letter::End> names_of(device::MovableContext& context) {
  std::vector<device::Letter::End> names;
  if (context.place().kind == device::Kind::kFerry) return names;
  std::vector<device::QpStatus> qps;
  context.status(&qps);
  const std::vector<ibv_gid_entry> gids = context.gids();
  const auto add_all = [&](std::uint32_t qpn) {
    for (const ibv_gid_entry& entry : gids) names.push_back({device::address_of(entry.gid), qpn});
  };
  add_all(0);
  for (const device::QpStatus& qp : qps) {
    if (qp.peer_qpn == 0) {
      add_all(qp.qpn);
    } else {
      names.push_back({qp.local.address, qp.qpn});
    }
  }
  return names;
}

// Sleeps by the system call itself: a restore must wake the thread, but this library's nanosleep()
// goes on after one (verbs/restart.cc).
void doze(long nanoseconds) {
  timespec t{0, nanoseconds};
  ::syscall(SYS_nanosleep, &t, nullptr);
}

}  // namespace

// The contexts of a stop. Whatever ends the stop early, an exception too, the destructor lets them
// go on.
struct Agent::Halt {
  explicit Halt(Registry& r) : registry(r) {}
  ~Halt() {
    if (!released) roll_back();
    if (begun) registry.end_stop();
  }

  struct Item {
    device::MovableContext* context;
    std::string netdev;
    std::vector<device::Letter::End> names;  // names_of() the context
    device::Parcel parcel;                   // while the context is parked
    bool quiesced = false, parked = false;
    bool has_returned = false;  // it is unparked; another one of the process may not be yet
  };

  // Stops the contexts and the companion. Gives 0 or errno.
  int run(Clock::time_point deadline, Stopped* reply) {
    registry.for_each([&](Registry::Entry& e) {
      items.push_back({e.context, e.netdev, names_of(*e.context), {}});
    });
    std::int64_t start = now_ns();
    for (Item& item : items) item.context->prepare();
    reply->qps = count_qps();
    reply->prepare_ns = since(start);

    if (Companion* const all = registry.companion()) {
      if (const int error = all->stop(deadline)) return error;
      companion = all;
    }

    start = now_ns();
    for (Item& item : items) {
      std::uint32_t unacked = 0;
      if (int error = item.context->quiesce(deadline - Clock::now(), &unacked)) return error;
      item.quiesced = true;
      reply->unacked_psns += unacked;
    }
    reply->suspend_ns = since(start);

    start = now_ns();
    for (Item& item : items) {
      if (int error = item.context->park(&item.parcel)) return error;
      item.parked = true;
    }
    if (companion != nullptr) companion->park();
    reply->detach_ns = since(start);
    for (const Item& item : items)
      reply->contexts.push_back({item.netdev, item.parcel, item.names});
    return 0;
  }

  std::uint32_t count_qps() const {
    std::vector<device::QpStatus> qps;
    for (const Item& item : items) item.context->status(&qps);
    return static_cast<std::uint32_t>(qps.size());
  }

  void roll_back() noexcept {
    for (Item& item : items) {
      if (item.parked) unpark(*item.context, item.parcel);
      if (item.quiesced) {
        item.context->resume(/*rollback=*/true);
      } else {
        item.context->release_peers();
      }
    }
    resume_companion();
    released = true;
  }

  int resume_companion() {
    Companion* const stopped = std::exchange(companion, nullptr);
    return stopped != nullptr ? stopped->resume() : 0;
  }

  // Closes the sockets, of which ferryd has duplicates.
  void give_away() {
    for (Item& item : items) {
      close_descriptors(&item.parcel.descriptors);
      item.parcel = {};
    }
    released = true;
  }

  // Gives 0; or errno, and then the sockets are closed.
  static int unpark(device::MovableContext& context, device::Parcel& parcel) {
    const int error = context.unpark(parcel);
    if (error) close_descriptors(&parcel.descriptors);
    return error;
  }

  // After a stop that ferryd has taken. Gives 0 or errno; EAGAIN: the context goes on with a device of the kernel that
  // it has left on this host, and that cannot be entered yet, because it has been made anew just now.
  static int take_back(Item& item, device::Parcel& parcel, bool is_rollback) {
    if (item.has_returned) {
      close_descriptors(&parcel.descriptors);
      return 0;
    }
    const bool has_kernels_device = !device::device_behind(parcel).empty();
    const int error = unpark(*item.context, parcel);
    item.has_returned = error == 0;
    return error != 0 && is_rollback && has_kernels_device ? EAGAIN : error;
  }

  Registry& registry;
  std::vector<Item> items;
  Companion* companion = nullptr;  // while it is stopped
  bool begun = false;
  bool released = false;
};

Agent::Agent(Registry& registry, ControlBlock& control)
    : registry_(registry), control_(control), build_(build_id()), correspondence_(registry) {}

Agent::~Agent() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    if (const int socket = socket_; socket >= 0) ::shutdown(socket, SHUT_RDWR);
    wake_.notify_all();
  }
  if (started_) ::pthread_join(thread_, nullptr);
}

int Agent::start() {
  std::lock_guard lock(mutex_);
  if (started_) return 0;
  const int error = start_own_thread(&thread_, thread_main, this);
  started_ = error == 0;
  return error;
}

void Agent::abandon_in_child() {
  if (const int socket = socket_.exchange(-1); socket >= 0) ::close(socket);
  if (news_event_ >= 0) ::close(news_event_);
  news_event_ = -1;
}

void Agent::has_news() {
  std::lock_guard lock(telling_);
  const std::uint64_t one = 1;
  if (news_event_ >= 0) {
    [[maybe_unused]] const ssize_t written = ::write(news_event_, &one, sizeof one);
  }
}

void* Agent::thread_main(void* self) {
  ::pthread_setname_np(::pthread_self(), "ferry-agent");
  static_cast<Agent*>(self)->run();
  return nullptr;
}

void Agent::run() {
  while (!ending_) {
    // Out of memory is no reason to take the program down, nor to give up.
    try {
      const int socket = connect_to_ferryd();
      set_socket(socket);
      if (socket >= 0 && !ending_) {
        told_ = {};  // this may be another ferryd
        postponed_.reset();
        if (send_message(socket, MessageType::kRegister, encode(registration())) == 0 &&
            tell_datagram_qps(socket)) {
          correspondence_.begin_anew();
          serve(socket);
        }
      }
      correspondence_.release();
    } catch (...) {
    }
    set_socket(-1);
    if (Companion* const companion = registry_.companion()) companion->tend();
    pause(kRetry);
  }
}

void Agent::serve(int socket) {
  while (!ending_) {
    if (!send_letters(socket)) return;
    Message message;
    int error = 0;
    if (postponed_) {
      message = std::move(*std::exchange(postponed_, std::nullopt));
    } else {
      bool asked = false;
      const bool waits = wait(socket, next_look(), &asked);
      if (asked && !(ask_for_peers(socket) && tell_datagram_qps(socket))) return;
      error = waits ? receive_message(socket, &message, 0) : ETIMEDOUT;
    }
    if (error == ETIMEDOUT || error == 0) {
      if (peers_.active() && !tell_peers_know(socket)) return;
    }
    if (error == ETIMEDOUT) continue;
    if (error) return;
    const bool given = message.type != MessageType::kTrack || give_userfaultfd(socket, message);
    close_descriptors(&message.descriptors);  // no other message brings any
    if (!given) return;
    if (message.type == MessageType::kStop) {
      const int next = stop(socket, message);
      if (next == -2) return;
      if (next >= 0) socket = next;
    } else if (!take(socket, message)) {
      return;
    }
  }
}

bool Agent::take(int socket, const Message& message) {
  switch (message.type) {
    case MessageType::kLocated: take_located(message); return true;
    case MessageType::kMovedNames: take_moved_names(message); return true;
    case MessageType::kDatagramQpsTold: are_told_ = true; return true;
    case MessageType::kStatus: return answer_status(socket);
    case MessageType::kSuspend: return suspend(socket, message);
    case MessageType::kDeliver: return take_letters(socket, message);
    default: return true;
  }
}

// How long serve() may wait for a message before it looks by itself, in ms; -1: without limit.
int Agent::next_look() const {
  const int hurry = correspondence_.hurry();
  if (!peers_.active()) return hurry;
  const int interval = static_cast<int>(peers_.interval().count());
  return hurry < 0 ? interval : std::min(hurry, interval);
}

// suspend(), take_letters(), send_letters() and answer_status() give false when the connection is of no more use.
bool Agent::suspend(int socket, const Message& message) {
  Suspend request;
  if (message.version != kVersion || !parse(message.body, &request)) return true;
  Suspending reply{request.move_id, false};
  if (request.release) {
    correspondence_.release();
  } else {
    reply.done = correspondence_.suspend(request);
  }
  return send_message(socket, MessageType::kSuspending, encode(reply)) == 0;
}

bool Agent::take_letters(int socket, const Message& message) {
  Letters letters;
  if (message.version != kVersion || !parse(message.body, &letters)) return true;
  const Delivered reply = correspondence_.deliver(letters);
  return send_message(socket, MessageType::kDelivered, encode(reply)) == 0;
}

bool Agent::send_letters(int socket) {
  std::uint64_t round = 0;
  {
    std::lock_guard lock(mutex_);
    round = ++rounds_begun_;
  }
  Letters letters;
  if (correspondence_.tend(&letters) &&
      send_message(socket, MessageType::kLetters, encode(letters)) != 0)
    return false;
  std::lock_guard lock(mutex_);
  rounds_done_ = round;
  wake_.notify_all();
  return true;
}

void Agent::await_letters_sent(milliseconds limit) {
  std::unique_lock lock(mutex_);
  if (socket_ < 0) return;
  const std::uint64_t round = rounds_begun_ + 1;
  has_news();
  wake_.wait_for(lock, limit, [&] { return rounds_done_ >= round || socket_ < 0; });
}

bool Agent::answer_status(int socket) {
  StatusReply reply;
  registry_.for_each([&](Registry::Entry& entry) {
    ContextStatus status;
    status.device = entry.device;
    status.netdev = entry.netdev;
    entry.context->status(&status.qps);
    status.place = entry.context->place();
    if (const char* obstacle = entry.context->obstacle()) status.obstacle = obstacle;
    status.needs = entry.context->needs();
    status.datagram_destinations = entry.context->datagram_destinations();
    std::vector<device::Counter> counters;
    entry.context->counters(&counters);
    for (const auto& counter : counters) {
      status.counters.push_back({counter.name, counter.value});
    }
    reply.contexts.push_back(std::move(status));
  });
  if (Companion* const companion = registry_.companion()) reply.rdma_cm = companion->status();
  return send_message(socket, MessageType::kStatusReply, encode(reply)) == 0;
}

// False when the connection is of no more use. Only ferryd gets the userfaultfd: CRIU dumps no
// process that holds one.
bool Agent::give_userfaultfd(int socket, const Message& message) {
  const int made = make_userfaultfd(message.descriptors.empty() ? -1 : message.descriptors.front());
  Tracked reply;
  reply.error = made < 0 ? -made : 0;
  std::vector<int> descriptors;
  if (made >= 0) descriptors.push_back(made);
  const int error = send_message(socket, MessageType::kTracked, encode(reply), descriptors);
  close_descriptors(&descriptors);
  return error == 0;
}

// Waits for the socket, for has_news() and for the companion. True when the socket has something, if only its end;
// *asked: there are news.
bool Agent::wait(int socket, int timeout_ms, bool* asked) {
  std::vector<pollfd> descriptors{{socket, POLLIN, 0}, {news_event_, POLLIN, 0}};
  if (Companion* const companion = registry_.companion()) {
    for (const int awaited : companion->awaited()) descriptors.push_back({awaited, POLLIN, 0});
  }
  if (::poll(descriptors.data(), descriptors.size(), timeout_ms) < 0) return false;
  if (descriptors[1].revents != 0) {
    std::uint64_t count;
    *asked = ::read(news_event_, &count, sizeof count) > 0;
  }
  return descriptors[0].revents != 0;
}

bool Agent::ask_for_peers(int socket) {
  Locate message;
  registry_.for_each([&](Registry::Entry& entry) { entry.context->sought(&message.names); });
  if (message.names.empty()) return true;
  return send_message(socket, MessageType::kLocate, encode(message)) == 0;
}

void Agent::take_located(const Message& message) {
  Located answer;
  if (message.version != kVersion || !parse(message.body, &answer)) return;
  for (const LocatedPlace& place : answer.places) {
    registry_.for_each([&](Registry::Entry& entry) {
      entry.context->located(place.name, place.location, place.epoch);
    });
  }
}

void Agent::take_moved_names(const Message& message) {
  device::MovedNames moved;
  if (message.version == kVersion && parse(message.body, &moved))
    registry_.set_moved_names(std::move(moved));
}

bool Agent::tell_datagram_qps(int socket) {
  DatagramQps now;
  registry_.for_each([&](Registry::Entry& entry) {
    device::DatagramQps qps = entry.context->moved_datagram_qps();
    if (!qps.qpns.empty()) now.contexts.push_back(std::move(qps));
  });
  are_told_ = now.contexts == told_.contexts;
  if (are_told_) return true;
  told_ = std::move(now);
  return send_message(socket, MessageType::kDatagramQps, encode(told_)) == 0;
}

// Waits a while until other hosts have heard of the datagram QPs: peers should know from whom datagrams come before
// the first one comes.
void Agent::await_datagram_qps_told(int socket) {
  const auto end = Clock::now() + kToldLimit;
  while (!are_told_ && !postponed_) {
    const auto left = std::chrono::duration_cast<milliseconds>(end - Clock::now()).count();
    Message message;
    if (left <= 0 || receive_message(socket, &message, static_cast<int>(left)) != 0) return;
    // These messages wait until the contexts go on.
    if (message.type == MessageType::kStop || message.type == MessageType::kSuspend ||
        message.type == MessageType::kTrack) {
      postponed_ = std::move(message);
    } else {
      close_descriptors(&message.descriptors);
      if (!take(socket, message)) return;
    }
  }
}

int Agent::stop(int socket, const Message& message) {
  Stop request;
  Stopped reply;
  const bool understood = message.version == kVersion && parse(message.body, &request);
  reply.move_id = request.move_id;
  Halt halt(registry_);
  const std::uint32_t limit_ms = request.deadline_ms ? request.deadline_ms : kStopMs;
  const auto deadline = Clock::now() + milliseconds(limit_ms);
  if (!understood) {
    reply.error = EPROTO;
  } else if (!registry_.begin_stop(deadline)) {
    reply.error = EBUSY;
  } else {
    halt.begun = true;
    correspondence_.stop_begins();
    reply.error = halt.run(deadline, &reply);
  }
  if (reply.error) {
    halt.roll_back();
    reply.contexts.clear();
    return send_message(socket, MessageType::kStopped, encode(reply)) == 0 ? -1 : -2;
  }

  // ferryd may have written a command for an earlier stop when the answer to that stop was here already.
  std::atomic_ref(control_.command).store(ControlBlock::kNone, std::memory_order_release);
  const std::vector<int> sockets = descriptors_of(reply.contexts);
  if (send_message(socket, MessageType::kStopped, encode(reply), sockets)) return -2;
  peers_.stopped(registry_);  // while ferryd takes the sockets
  // A peer that stops as well waits for what the stop has told its QPs.
  if (!send_letters(socket)) return -2;
  for (;;) {
    const auto left = deadline - Clock::now();
    const auto left_ms = std::chrono::duration_cast<milliseconds>(left).count();
    Message answer;
    if (receive_message(socket, &answer, static_cast<int>(std::max<long>(left_ms, 0)))) return -2;
    close_descriptors(&answer.descriptors);
    if (answer.type == MessageType::kStopTaken) break;
    if (answer.type == MessageType::kStatus && !answer_status(socket)) return -2;
    if (answer.type == MessageType::kDeliver && !take_letters(socket, answer)) return -2;
    if (answer.type == MessageType::kMovedNames) take_moved_names(answer);
    if (!send_letters(socket)) return -2;
  }
  halt.give_away();
  set_socket(-1);
  return come_back(halt, request.move_id);
}

// From here on only ferryd can let the process go on: another copy of it may exist.
int Agent::come_back(Halt& halt, std::uint64_t move_id) {
  std::uint32_t limit_ms = kUntoldMs;
  std::uint32_t backoff_ms = 1;
  while (!ending_) {
    try {
      watch(limit_ms);
      const int socket = connect_to_ferryd();
      set_socket(socket);
      Message answer;
      if (socket >= 0 &&
          send_message(socket, MessageType::kAwake, encode(Awake{move_id, registration()})) == 0 &&
          receive_message(socket, &answer, kAnswerMs) == 0) {
        Stay stay;
        if (answer.type == MessageType::kResume && answer.version == kVersion &&
            take_back(halt, answer, move_id, socket)) {
          return socket;
        }
        if (answer.type == MessageType::kStay && parse(answer.body, &stay)) {
          backoff_ms = std::clamp(stay.retry_ms, 1u, 1000u);
        }
        close_descriptors(&answer.descriptors);
      }
    } catch (...) {
    }
    set_socket(-1);
    limit_ms = backoff_ms;
    backoff_ms = std::min(backoff_ms * 2, 200u);
  }
  return -2;
}

bool Agent::take_back(Halt& halt, Message& message, std::uint64_t move_id, int socket) {
  Resume resume;
  if (!parse(message.body, &resume) || resume.contexts.size() != halt.items.size() ||
      !give_descriptors(&message.descriptors, &resume.contexts)) {
    return false;
  }
  Resumed reply;
  reply.move_id = move_id;
  std::int64_t start = now_ns();
  for (std::size_t i = 0; i < halt.items.size(); ++i) {
    const int error = halt.take_back(halt.items[i], resume.contexts[i].parcel, resume.rollback);
    if (error == EAGAIN && resume.rollback) {
      for (auto& rest : resume.contexts) close_descriptors(&rest.parcel.descriptors);
      return false;
    }
    if (error && !reply.error) reply.error = error;
  }
  told_ = {};
  if (tell_datagram_qps(socket)) await_datagram_qps_told(socket);
  reply.attach_ns = since(start);
  start = now_ns();
  for (Halt::Item& item : halt.items) item.context->resume(resume.rollback);
  const int error = halt.resume_companion();
  if (reply.error == 0) reply.error = -error;
  reply.resume_ns = since(start);
  peers_.resumed(move_id);
  // If the connection breaks now, its next user notices.
  send_message(socket, MessageType::kResumed, encode(reply));
  return true;
}

// Waits for a command in the control block, `limit_ms` at most. Counts naps, not time: the clock
// may jump in a restore.
ControlBlock::Command Agent::watch(std::uint32_t limit_ms) {
  std::atomic_ref<std::uint32_t> command(control_.command);
  for (std::uint64_t naps = 0;; ++naps) {
    const std::uint32_t seen = command.exchange(ControlBlock::kNone, std::memory_order_acq_rel);
    if (seen == ControlBlock::kFrozen || seen == ControlBlock::kGo) {
      return static_cast<ControlBlock::Command>(seen);
    }
    if (naps * kWatchNs >= limit_ms * 1000000ull || ending_) return ControlBlock::kNone;
    doze(kWatchNs);
  }
}

bool Agent::tell_peers_know(int socket) {
  PeersKnow message;
  if (!peers_.look(registry_, &message)) return true;
  return send_message(socket, MessageType::kPeersKnow, encode(message)) == 0;
}

Register Agent::registration() const {
  return {kVersion, build_, reinterpret_cast<std::uint64_t>(&control_)};
}

// Closes the former connection, and keeps the new one; -1: there is none. A destructor that waits for the thread has
// shut down the former one only: then the new one is shut down here.
void Agent::set_socket(int socket) {
  {
    std::lock_guard lock(telling_);
    if (socket >= 0 && news_event_ < 0) {
      news_event_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    } else if (socket < 0 && news_event_ >= 0) {
      ::close(news_event_);
      news_event_ = -1;
    }
  }
  std::lock_guard lock(mutex_);
  const int old = socket_.exchange(socket < 0 ? -1 : socket);
  if (old >= 0 && old != socket) ::close(old);
  if (ending_ && socket >= 0) ::shutdown(socket, SHUT_RDWR);
}

void Agent::pause(milliseconds time) {
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, time, [&] { return ending_.load(); });
}

}  // namespace ferry::agent
