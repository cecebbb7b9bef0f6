#include "pipe/service.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/failure.h"
#include "base/log.h"
#include "pipe/admin.h"
#include "pipe/programs.h"

namespace ferry::pipe {
namespace {

// What an event of epoll is of, beside a session's number, which is at least 1.
constexpr std::uint64_t kListener = 0;
constexpr std::uint64_t kStop = ~std::uint64_t{0}, kFound = kStop - 1, kAdminListener = kStop - 2,
                        kAway = kStop - 3;
constexpr std::uint64_t kAdmin = std::uint64_t{1} << 63;   // and its socket
constexpr std::uint64_t kAbsent = std::uint64_t{1} << 62;  // and its pidfd

constexpr unsigned kErrandThreads = 256;
// More than the sockets of a container; and no more programs come while there are so many of all.
constexpr std::size_t kMostErrandsOfParty = 32768, kMostErrands = 131072;
// After which there may be room again, for a program that waits to be accepted.
constexpr int kRestMilliseconds = 50;
constexpr std::size_t kMostAdmins = 64;
// Whose answers are sent one after the other, so that nobody waits for who does not read.
constexpr Errands::Party kAdminParty{0, ~std::uint64_t{0}};
// As many descriptors as a message may have (SCM_MAX_FD): what finds no room, the kernel closes in this thread.
constexpr std::size_t kMostGiven = 253;

// Where a socket of systemd's listens. Empty: at no path.
std::string path_of(int socket) {
  sockaddr_un address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      address.sun_family != AF_UNIX) {
    return {};
  }
  return {address.sun_path, ::strnlen(address.sun_path, sizeof address.sun_path)};
}

bool listens_for_programs(int socket) {
  int type = 0, listens = 0;
  socklen_t size = sizeof type;
  return ::getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET &&
         ::getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0;
}

UniqueFd listen_at(const std::string& path, mode_t mode) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path)
    throw Failure("cannot listen at " + path + ": the path is too long");
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const auto* name = reinterpret_cast<const sockaddr*>(&address);
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  // Of a service that was killed: nobody answers there. Another one that runs does.
  const UniqueFd probe(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (::connect(probe.get(), name, sizeof address) == 0) {
    throw Failure("cannot listen at " + path + ": another ferry-piped does; stop that one first");
  }
  if (errno == ECONNREFUSED) ::unlink(path.c_str());
  if (::bind(socket.get(), name, sizeof address) != 0 || ::chmod(path.c_str(), mode) != 0 ||
      ::listen(socket.get(), 128) != 0) {
    throw Failure("cannot listen at " + path + ": " + error_text(errno));
  }
  return socket;
}

void watch(int epoll, int descriptor, std::uint64_t what, int operation = EPOLL_CTL_ADD,
           std::uint32_t events = EPOLLIN) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = what;
  ::epoll_ctl(epoll, operation, descriptor, &event);
}

// The descriptors that came with a message.
std::vector<UniqueFd> descriptors_of(msghdr& message) {
  std::vector<UniqueFd> all;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
       head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t index = 0; index < count; ++index) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(head) + index * sizeof(int), sizeof descriptor);
      all.emplace_back(descriptor);
    }
  }
  return all;
}

Errands::Party party_of(const Peer& peer) {
  return {peer.network->id(), peer.pid_namespace};
}

// Of whoever is at the other end of a socket and is not let in: by user. No network has the number 0.
Errands::Party party_behind(int socket) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size);
  return {0, credentials.uid};
}

bool send_answer(int socket, Driver::Answer& answer) {
  iovec bytes{&answer.reply, sizeof answer.reply};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(3 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (!answer.descriptors.empty()) {
    const std::size_t size = answer.descriptors.size() * sizeof(int);
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(size);
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(head), answer.descriptors.data(), size);
  }
  // One that asks and asks, and reads no answers, ends its session.
  return ::sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(sizeof answer.reply);
}

}  // namespace

struct Service::Client {
  std::shared_ptr<Session> session;
  Errands::Party party;
  Given socket;  // its close ends what is in messages that nobody has read
  UniqueFd process;
  Copier* copier = nullptr;  // since hello
  bool waits = false;        // for what is found out about a socket that it has given
};

// What errands have found out, for the thread of the control calls.
struct Service::Found {
  struct Bound {
    std::uint64_t session;
    ControlRequest request;
    Given socket;  // null: it is not bound as it should be
  };
  std::mutex mutex;
  std::vector<Bound> bound;
  const UniqueFd some{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

Service::Service(Settings settings, Driver& driver, Engine& engine)
    : settings_(std::move(settings)),
      driver_(driver),
      errands_(kErrandThreads),
      found_(std::make_shared<Found>()),
      listener_(listen_for_programs()),
      admin_listener_(listen_at(settings_.socket + kAdminSuffix, 0600)),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  watch(epoll_.get(), listener_.get(), kListener);
  // An edge: where there is no descriptor, it waits for the next one who comes.
  watch(epoll_.get(), admin_listener_.get(), kAdminListener, EPOLL_CTL_ADD, EPOLLIN | EPOLLET);
  watch(epoll_.get(), stop_.get(), kStop);
  watch(epoll_.get(), found_->some.get(), kFound);
  for (unsigned number = 0; number < settings_.threads; ++number) {
    std::optional<int> processor;
    if (!settings_.processors.empty()) {
      processor = settings_.processors[number % settings_.processors.size()];
    }
    copiers_.push_back(std::make_unique<Copier>(driver, processor, settings_.patience,
                                                number == 0 ? engine.descriptor() : -1));
  }
  watch_absent();
}

Service::~Service() {
  copiers_.clear();
  if (settings_.listening.empty()) ::unlink(settings_.socket.c_str());
  ::unlink((settings_.socket + kAdminSuffix).c_str());
}

UniqueFd Service::listen_for_programs() const {
  const auto& given = settings_.listening;
  if (given.empty()) return listen_at(settings_.socket, 0666);  // programs of all users connect
  if (given.size() != 1 || path_of(given.front()) != settings_.socket ||
      !listens_for_programs(given.front())) {
    throw Failure("systemd does not listen at " + settings_.socket +
                  " alone; give ferry-piped.socket ListenSequentialPacket=" + settings_.socket);
  }
  ::fcntl(given.front(), F_SETFL, ::fcntl(given.front(), F_GETFL) | O_NONBLOCK);
  return UniqueFd(given.front());
}

void Service::stop() {
  ::eventfd_write(stop_.get(), 1);
}

void Service::run() {
  for (;;) {
    std::array<epoll_event, 64> events;
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                   accepts_ ? -1 : kRestMilliseconds);
    if (!accepts_ && errands_.waiting() < kMostErrands) watch_listener(true);
    for (int index = 0; index < count; ++index) {
      const std::uint64_t what = events[static_cast<std::size_t>(index)].data.u64;
      if (what == kStop) return;
      if (what == kListener) {
        accept_program();
        continue;
      }
      if (what == kFound) {
        take_found();
        continue;
      }
      if (what == kAdminListener) {
        accept_admin();
        continue;
      }
      if (what == kAway) {
        give_up_absent();
        continue;
      }
      if ((what & kAdmin) != 0) {
        answer_admin(static_cast<int>(what & ~kAdmin));
        continue;
      }
      if ((what & kAbsent) != 0) {
        end_absent(static_cast<int>(what & ~kAbsent));
        continue;
      }
      const auto client = clients_.find(what);
      if (client != clients_.end() && !answer(*client->second)) end(what);
    }
    driver_.announce();
    // What this thread has moved may be held, and a thread that copies sleeps without knowing it.
    if (driver_.holds_for()) copiers_.front()->wake();
  }
}

void Service::watch_listener(bool on) {
  watch(epoll_.get(), listener_.get(), kListener, EPOLL_CTL_MOD, on ? std::uint32_t{EPOLLIN} : 0);
  accepts_ = on;
}

void Service::accept_program() {
  if (errands_.waiting() >= kMostErrands) return watch_listener(false);
  UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    // There are no descriptors, or there is no memory: programs that are here go on meanwhile.
    if (errno != EAGAIN && errno != ECONNABORTED && errno != EINTR) watch_listener(false);
    return;
  }
  auto program = program_behind(socket.get());
  if (!program) return errands_.close(party_behind(socket.get()), std::move(socket));
  const Errands::Party party = party_of(program->peer);
  auto session = driver_.open(std::move(program->peer));
  if (!session) return errands_.close(party, std::move(socket));
  const std::uint64_t number = session->number;
  auto client = std::make_unique<Client>();
  watch(epoll_.get(), socket.get(), number);
  watch(epoll_.get(), program->process.get(), number);
  client->session = std::move(session);
  client->party = party;
  client->socket = errands_.keep(party, std::move(socket));
  client->process = std::move(program->process);
  log::debug("process {} of user {} has come as session {}", client->session->peer.pid,
             client->session->peer.user, number);
  clients_[number] = std::move(client);
}

void Service::accept_admin() {
  for (;;) {
    UniqueFd socket(::accept4(admin_listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) return;
    if (!is_admin(socket.get()) || admins_.size() >= kMostAdmins) continue;
    const int number = socket.get();
    watch(epoll_.get(), number, kAdmin | static_cast<std::uint64_t>(number));
    admins_[number] = std::move(socket);
  }
}

void Service::answer_admin(int socket) {
  const auto admin = admins_.find(socket);
  if (admin == admins_.end()) return;
  const auto line = line_of_admin(socket);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket, nullptr);
  const auto held = std::make_shared<const UniqueFd>(std::move(admin->second));
  admins_.erase(admin);
  if (!line) return;
  if (*line != "ps") log::info("root asks: {}", printable(*line));
  errands_.run(kAdminParty,
               [held, text = answer_line(*line, driver_)] { send_to_admin(held->get(), text); });
}

bool Service::answer(Client& client) {
  // Its next request is not looked at: it is the process or the connection that has ended.
  if (client.waits) return false;
  // What it has sent stays unread, with all descriptors in it.
  if (errands_.waiting(client.party) >= kMostErrandsOfParty) return false;
  ControlRequest request;
  iovec bytes{&request, sizeof request};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostGiven * sizeof(int))> control;
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(client.socket->get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) {
    // Nothing to read: then it is the process that has ended, and somebody else has its socket.
    return errno == EINTR;
  }
  std::vector<Given> given;
  for (UniqueFd& descriptor : descriptors_of(message)) {
    given.push_back(errands_.keep(client.party, std::move(descriptor)));
  }
  if (got != sizeof request || (message.msg_flags & MSG_TRUNC) != 0) return false;
  const bool gives_many = request.call == Call::kResume || request.call == Call::kGiveRings;
  if (given.empty() || gives_many) return reply(client, request, given);
  if (request.call != Call::kBind || given.size() > 1) return false;  // no program of ours
  ask_about(client, request, std::move(given.front()));
  return true;
}

bool Service::reply(Client& client, const ControlRequest& request,
                    const std::vector<Given>& given) {
  Driver::Answer answer = driver_.handle(client.session, request, given);
  if (client.copier == nullptr && client.session->is_open()) {
    client.copier = copiers_[client.session->number % copiers_.size()].get();
    client.copier->add(client.session);
  }
  if (!send_answer(client.socket->get(), answer)) return false;
  driver_.sent(answer);
  return true;
}

void Service::ask_about(Client& client, const ControlRequest& request, Given socket) {
  client.waits = true;
  const std::uint64_t number = client.session->number;
  watch(epoll_.get(), client.socket->get(), number, EPOLL_CTL_MOD, 0);
  errands_.run(client.party, [network = client.session->peer.network, found = found_, number,
                              request, given = std::move(socket)]() mutable {
    if (!network->has_bound(given->get(), request.address)) given.reset();
    const std::lock_guard lock(found->mutex);
    found->bound.push_back({number, request, std::move(given)});
    ::eventfd_write(found->some.get(), 1);
  });
}

void Service::take_found() {
  std::vector<Found::Bound> all;
  {
    const std::lock_guard lock(found_->mutex);
    std::uint64_t times = 0;
    ::eventfd_read(found_->some.get(), &times);
    all.swap(found_->bound);
  }
  for (auto& [number, request, socket] : all) {
    const auto found = clients_.find(number);
    if (found == clients_.end()) continue;
    Client& client = *found->second;
    client.waits = false;
    watch(epoll_.get(), client.socket->get(), number, EPOLL_CTL_MOD);
    std::vector<Given> given;
    if (socket) given.push_back(std::move(socket));
    if (!reply(client, request, given)) end(number);
  }
}

void Service::watch_absent() {
  const std::vector<Process> all = driver_.absent();
  if (all.empty()) return;
  away_ = UniqueFd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  const auto time = std::max<std::chrono::nanoseconds>(driver_.away(), std::chrono::nanoseconds(1));
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  itimerspec once{};
  once.it_value.tv_sec = seconds.count();
  once.it_value.tv_nsec = (time - seconds).count();
  ::timerfd_settime(away_.get(), 0, &once, nullptr);
  watch(epoll_.get(), away_.get(), kAway);
  for (const Process& process : all) {
    UniqueFd pidfd = open_process(process);
    if (!pidfd) {
      driver_.has_ended(process);
      continue;
    }
    const int number = pidfd.get();
    watch(epoll_.get(), number, kAbsent | static_cast<std::uint64_t>(number));
    absent_[number] = {std::move(pidfd), process};
  }
}

void Service::end_absent(int pidfd) {
  const auto absent = absent_.find(pidfd);
  if (absent == absent_.end()) return;  // given up meanwhile
  driver_.has_ended(absent->second.second);
  absent_.erase(absent);
}

void Service::give_up_absent() {
  driver_.give_up_absent();
  absent_.clear();
  away_.reset();
}

void Service::end(std::uint64_t number) {
  const auto client = clients_.find(number);
  driver_.close(client->second->session);
  if (client->second->copier != nullptr) client->second->copier->remove(*client->second->session);
  // It may be open for a while.
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, client->second->socket->get(), nullptr);
  clients_.erase(client);
  log::debug("session {} is over", number);
}

}  // namespace ferry::pipe
