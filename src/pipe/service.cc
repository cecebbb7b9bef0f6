#include "pipe/service.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/failure.h"
#include "base/log.h"
#include "base/net.h"
#include "pipe/programs.h"

namespace ferry::pipe {
namespace {

// What an event of epoll is of, beside a session's number, which is at least 1.
constexpr std::uint64_t kListener = 0;
constexpr std::uint64_t kStop = ~std::uint64_t{0};

UniqueFd listen_at(const std::string& path) {
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
  // Programs of all users connect.
  if (::bind(socket.get(), name, sizeof address) != 0 || ::chmod(path.c_str(), 0666) != 0 ||
      ::listen(socket.get(), 128) != 0) {
    throw Failure("cannot listen at " + path + ": " + error_text(errno));
  }
  return socket;
}

void watch(int epoll, int descriptor, std::uint64_t what) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = what;
  ::epoll_ctl(epoll, EPOLL_CTL_ADD, descriptor, &event);
}

// The descriptors that came with a message; only the first is ever asked for.
UniqueFd descriptor_of(msghdr& message) {
  UniqueFd first;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
       head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t index = 0; index < count; ++index) {
      int descriptor = -1;
      std::memcpy(&descriptor, CMSG_DATA(head) + index * sizeof(int), sizeof descriptor);
      UniqueFd owned(descriptor);
      if (!first) first = std::move(owned);
    }
  }
  return first;
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
  UniqueFd socket, process;
  Copier* copier = nullptr;  // since hello
};

Service::Service(Settings settings, Driver& driver, Engine& engine)
    : settings_(std::move(settings)),
      driver_(driver),
      listener_(listen_at(settings_.socket)),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)) {
  watch(epoll_.get(), listener_.get(), kListener);
  watch(epoll_.get(), stop_.get(), kStop);
  for (unsigned number = 0; number < settings_.threads; ++number) {
    std::optional<int> processor;
    if (!settings_.processors.empty()) {
      processor = settings_.processors[number % settings_.processors.size()];
    }
    copiers_.push_back(std::make_unique<Copier>(driver, processor, settings_.patience,
                                                number == 0 ? engine.descriptor() : -1));
  }
}

Service::~Service() {
  while (!clients_.empty()) end(clients_.begin()->first);
  copiers_.clear();
  ::unlink(settings_.socket.c_str());
}

void Service::stop() {
  ::eventfd_write(stop_.get(), 1);
}

void Service::run() {
  for (;;) {
    std::array<epoll_event, 64> events;
    const int count =
        ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
    for (int index = 0; index < count; ++index) {
      const std::uint64_t what = events[static_cast<std::size_t>(index)].data.u64;
      if (what == kStop) return;
      if (what == kListener) {
        accept_program();
        continue;
      }
      const auto client = clients_.find(what);
      if (client != clients_.end() && !answer(*client->second)) end(what);
    }
    driver_.announce();
  }
}

void Service::accept_program() {
  UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    if (errno != EAGAIN) pause_after_accept(errno);
    return;
  }
  auto program = program_behind(socket.get());
  if (!program) return;
  auto session = driver_.open(std::move(program->peer));
  if (!session) return;
  const std::uint64_t number = session->number;
  auto client = std::make_unique<Client>();
  watch(epoll_.get(), socket.get(), number);
  watch(epoll_.get(), program->process.get(), number);
  client->session = std::move(session);
  client->socket = std::move(socket);
  client->process = std::move(program->process);
  log::debug("process {} of user {} has come as session {}", client->session->peer.pid,
             client->session->peer.user, number);
  clients_[number] = std::move(client);
}

bool Service::answer(Client& client) {
  ControlRequest request;
  iovec bytes{&request, sizeof request};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(client.socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (got < 0) {
    // Nothing to read: then it is the process that has ended, and somebody else has its socket.
    return errno == EINTR;
  }
  UniqueFd descriptor = descriptor_of(message);
  if (got != sizeof request || (message.msg_flags & MSG_TRUNC) != 0) return false;
  Driver::Answer answer = driver_.handle(client.session, request, std::move(descriptor));
  if (client.copier == nullptr && client.session->is_open()) {
    client.copier = copiers_[client.session->number % copiers_.size()].get();
    client.copier->add(client.session);
  }
  return send_answer(client.socket.get(), answer);
}

void Service::end(std::uint64_t number) {
  const auto client = clients_.find(number);
  driver_.close(client->second->session);
  if (client->second->copier != nullptr) client->second->copier->remove(*client->second->session);
  clients_.erase(client);
  log::debug("session {} is over", number);
}

}  // namespace ferry::pipe
