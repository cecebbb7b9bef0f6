#include "host/control/control_server.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

extern "C" {
#include <sys/pidfd.h>  // glibc 2.36 forgets that C++ includes it
}

#include "base/failure.h"
#include "base/log.h"
#include "base/net.h"
#include "host/control/caused_lines.h"
#include "host/proc/process_tree.h"

namespace ferry::host {

using agent::Message;
using agent::MessageType;

struct ControlServer::Connection {
  UniqueFd socket;
  pid_t peer = 0;
  uid_t user = 0;
  bool programs_only = false;   // connected to the socket that containers have
  std::uint64_t container = 0;  // outermost_pid_namespace() of `peer` at first; 0: not known
  UniqueFd pidfd;               // of `peer`, whose number may be another process's one day
  std::string ticket;           // guarded by the server's mutex
  std::optional<FerryProcess> process;

  std::mutex asking;  // one question at a time
  std::mutex mutex;
  std::condition_variable arrived;
  std::optional<MessageType> awaited;  // the answer that somebody waits for; others are dropped
  // True while an answer that brings descriptors is awaited. At any other time anybody could make
  // ferryd hold descriptors of theirs for as long as a message takes.
  std::atomic<bool> takes_descriptors{false};
  std::deque<Message> answers;
  bool closed = false;
  std::timed_mutex sending;  // one message at a time
  // Those that wait for the process's status. One question serves all, so that a mute process is
  // asked only once.
  std::vector<TakeStatus> status_takers;

  int send(MessageType type, std::span<const std::byte> body,
           std::span<const int> descriptors = {}) {
    const std::lock_guard lock(sending);
    return agent::send_message(socket.get(), type, body, descriptors);
  }
  ~Connection() {
    for (auto& message : answers) agent::close_descriptors(&message.descriptors);
  }
};

namespace {

constexpr std::size_t kMostTakers = 256;           // of the status of one process
constexpr std::chrono::milliseconds kBusy{100};    // while another message is sent
constexpr std::chrono::milliseconds kGlance{100};  // between looks whether a process has ended

bool brings_descriptors(MessageType type) {
  return type == MessageType::kStopped || type == MessageType::kTracked;
}

// A folder that programs of every user can reach.
void make_folder(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (std::filesystem::create_directories(folder, ignored)) ::chmod(folder.c_str(), 0755);
}

UniqueFd listen_on(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    throw Failure(fmt::format("the path {} is too long for a socket", path));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ::unlink(path.c_str());
  if (!socket || ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(socket.get(), 128) != 0) {
    throw Failure(fmt::format("cannot listen on {}: {}", path, error_text(errno)));
  }
  // Programs of every user may register; what else a peer may ask depends on its user.
  ::chmod(path.c_str(), 0666);
  return socket;
}

}  // namespace

ControlServer::ControlServer(std::string path, std::size_t connections_of_user)
    : path_(std::move(path)), connections_of_user_(connections_of_user) {
  make_folder(std::filesystem::path(path_).parent_path());
  make_folder(programs_folder(path_));
  lock_.reset(::open((path_ + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock_) throw Failure(fmt::format("cannot open {}.lock: {}", path_, error_text(errno)));
  // A lock of this process alone, unlike that of flock(2): a process that a ferryd had just started
  // when it was killed may live on for a moment with all its descriptors.
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(lock_.get(), F_SETLK, &lock) != 0) {
    throw Failure(fmt::format("another ferryd is running on {}; stop it first", path_));
  }
  listener_ = listen_on(path_);
  programs_listener_ = listen_on(programs_socket(path_));
}

void ControlServer::start(ControlHandler& handler) {
  handler_ = &handler;
  acceptor_ = std::thread([this] { accept_loop(listener_, false); });
  programs_acceptor_ = std::thread([this] { accept_loop(programs_listener_, true); });
}

ControlServer::~ControlServer() {
  shut_down();
  ::unlink(path_.c_str());
  ::unlink(programs_socket(path_).c_str());
}

void ControlServer::shut_down() {
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    ::shutdown(listener_.get(), SHUT_RDWR);
    ::shutdown(programs_listener_.get(), SHUT_RDWR);
    for (auto& [raw, connection] : connections_) ::shutdown(connection->socket.get(), SHUT_RDWR);
    ended_.wait(lock, [this] { return connections_.empty(); });
  }
  if (acceptor_.joinable()) acceptor_.join();
  if (programs_acceptor_.joinable()) programs_acceptor_.join();
}

std::string ControlServer::programs_folder(const std::string& socket) {
  return std::filesystem::path(socket).parent_path() / "programs";
}

std::string ControlServer::programs_socket(const std::string& socket) {
  return programs_folder(socket) + "/ferryd.sock";
}

void ControlServer::accept_loop(const UniqueFd& listener, bool programs_only) {
  for (;;) {
    UniqueFd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket && !pause_after_accept(errno)) return;
    std::lock_guard lock(mutex_);
    if (stopping_) return;
    if (socket) serve_new(std::move(socket), programs_only);
  }
}

// With mutex_ held.
void ControlServer::serve_new(UniqueFd socket, bool programs_only) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return;
  auto connection = std::make_shared<Connection>();
  connection->socket = std::move(socket);
  connection->peer = peer.pid;
  connection->user = peer.uid;
  connection->programs_only = programs_only;
  // Root is counted by container. Users are not: they make namespaces as they like.
  if (peer.uid == 0) connection->container = outermost_pid_namespace(peer.pid);
  connection->pidfd.reset(::pidfd_open(peer.pid, 0));
  // Each connection costs ferryd a thread and two descriptors: neither one user nor one container
  // may take them all.
  const auto others =
      std::count_if(connections_.begin(), connections_.end(), [&](const auto& each) {
        return each.second->user == peer.uid &&
               (peer.uid != 0 || each.second->programs_only == programs_only) &&
               each.second->container == connection->container;
      });
  if ((programs_only || peer.uid != 0) &&
      static_cast<std::size_t>(others) >= connections_of_user_) {
    warn_of(peer.pid, "user {}{} has {} connections: no more", peer.uid,
            programs_only ? " of a container" : "", others);
    return;
  }
  connections_.emplace(connection.get(), connection);
  try {
    std::thread([this, connection] {
      serve(connection);
      std::lock_guard done(mutex_);
      const auto found = processes_.find(connection->peer);
      if (found != processes_.end() && found->second == connection) processes_.erase(found);
      tickets_.erase(connection->ticket);
      connections_.erase(connection.get());
      ended_.notify_all();
    }).detach();
  } catch (const std::system_error& error) {
    log::warn("cannot serve process {}: {}", connection->peer, error.what());
    connections_.erase(connection.get());
  }
}

void ControlServer::serve(const std::shared_ptr<Connection>& connection) {
  for (;;) {
    Message message;
    const int error = agent::receive_message(connection->socket.get(), &message, -1,
                                             &connection->takes_descriptors);
    if (brings_descriptors(message.type)) connection->takes_descriptors = false;
    if (error == 0 && message.version == agent::kVersion) {
      try {
        handle(connection, message);
      } catch (const std::exception& failure) {
        warn_of(connection->peer, "a message of process {}: {}", connection->peer, failure.what());
      }
      agent::close_descriptors(&message.descriptors);
      continue;
    }
    if (error == 0) {
      warn_of(connection->peer,
              "process {} speaks version {} of the control protocol, this ferryd version {}",
              connection->peer, message.version, agent::kVersion);
      agent::close_descriptors(&message.descriptors);
    }
    close(*connection);
    return;
  }
}

// Ends all waiting for an answer of this connection.
void ControlServer::close(Connection& connection) {
  std::vector<TakeStatus> takers;
  {
    std::lock_guard lock(connection.mutex);
    connection.closed = true;
    connection.arrived.notify_all();
    takers.swap(connection.status_takers);
  }
  for (const auto& take : takers) take(nullptr);
}

void ControlServer::register_process(const std::shared_ptr<Connection>& connection,
                                     const agent::Register& registration) {
  std::lock_guard lock(mutex_);
  connection->process =
      FerryProcess{connection->peer, registration.control_block, registration.build};
  processes_[connection->peer] = connection;
}

void ControlServer::take(const std::shared_ptr<Connection>& connection,
                         const agent::Register& registration) {
  register_process(connection, registration);
  handler_->registered(connection->peer);
}

void ControlServer::take(const std::shared_ptr<Connection>& connection, const agent::Awake& awake) {
  WakeUp decision = handler_->awake(connection->peer, awake);
  if (!decision.resume) {
    connection->send(MessageType::kStay, agent::encode(agent::Stay{decision.retry_ms}));
    return;
  }
  const agent::Resume resume{decision.resume->rollback, to_parked(decision.resume->contexts)};
  const auto descriptors = agent::descriptors_of(resume.contexts);
  const int error = connection->send(MessageType::kResume, agent::encode(resume), descriptors);
  for (const int fd : descriptors) ::close(fd);
  // Not before: it expects nothing else until then.
  register_process(connection, awake.registration);
  if (error != 0) {
    log::error("cannot resume process {}: {}", connection->peer, error_text(error));
  }
}

void ControlServer::take(const std::shared_ptr<Connection>& connection,
                         const agent::Resumed& resumed) {
  handler_->resumed(connection->peer, resumed);
  handler_->registered(connection->peer);
}

void ControlServer::take(const std::shared_ptr<Connection>& connection,
                         const agent::Locate& question) {
  handler_->locate(connection->peer, question);
}

void ControlServer::take(const std::shared_ptr<Connection>& connection, agent::Letters letters) {
  handler_->letters(connection->peer, std::move(letters));
}

void ControlServer::take(const std::shared_ptr<Connection>& connection,
                         const agent::DatagramQps& qps) {
  handler_->datagram_qps(connection->peer, qps.contexts);
  connection->send(MessageType::kDatagramQpsTold, {});
}

void ControlServer::take(const std::shared_ptr<Connection>& connection,
                         const agent::PeersKnow& peers) {
  handler_->peers_know(connection->peer, peers);
}

// A malformed message is dropped.
template <typename Body>
void ControlServer::parse_and_take(const std::shared_ptr<Connection>& connection,
                                   const Message& message) {
  Body body;
  if (agent::parse(message.body, &body)) take(connection, std::move(body));
}

// Gives the message to the thread that waits for it, if there is one.
void ControlServer::take_answer(Connection& connection, Message& message) {
  std::lock_guard lock(connection.mutex);
  if (connection.awaited != message.type) return;
  connection.awaited.reset();
  connection.answers.push_back(std::move(message));
  message.descriptors.clear();
  connection.arrived.notify_all();
}

// Answers the plugin or a script of CRIU with what `call` gives. Only root drives CRIU: both run as
// CRIU does. A container's root does not count as root.
template <typename Body, typename Call>
void ControlServer::answer_criu(Connection& connection, const Message& message, Call call) {
  Body body{};
  agent::Done reply;
  if (!agent::parse(message.body, &body)) {
    reply = {EPROTO, "malformed message", {}};
  } else if (connection.user != 0 || connection.programs_only) {
    reply = {EPERM, "only root may do this", {}};
  } else {
    try {
      reply = call(body);
    } catch (const std::exception& failure) {
      reply = {EIO, failure.what(), {}};
    }
  }
  connection.send(MessageType::kDone, agent::encode(reply));
}

void ControlServer::answer_ticket(const std::shared_ptr<Connection>& connection) {
  if (connection->programs_only) {
    ::shutdown(connection->socket.get(), SHUT_RDWR);
    return;
  }
  connection->send(MessageType::kTicket, agent::encode(agent::Ticket{give_ticket(connection)}));
}

void ControlServer::handle(const std::shared_ptr<Connection>& connection, Message& message) {
  switch (message.type) {
    case MessageType::kRegister: return parse_and_take<agent::Register>(connection, message);
    case MessageType::kAwake: return parse_and_take<agent::Awake>(connection, message);
    case MessageType::kResumed: return parse_and_take<agent::Resumed>(connection, message);
    case MessageType::kLocate: return parse_and_take<agent::Locate>(connection, message);
    case MessageType::kLetters: return parse_and_take<agent::Letters>(connection, message);
    case MessageType::kDatagramQps: return parse_and_take<agent::DatagramQps>(connection, message);
    case MessageType::kPeersKnow: return parse_and_take<agent::PeersKnow>(connection, message);
    case MessageType::kWhoAmI: return answer_ticket(connection);
    case MessageType::kPauseTree:
      return answer_criu<agent::PauseTree>(
          *connection, message, [&](const auto& body) { return handler_->pause_tree(body.pid); });
    case MessageType::kFrozen:
      return answer_criu<agent::Frozen>(
          *connection, message, [&](const auto& body) { return handler_->frozen(body.pid); });
    case MessageType::kDumpFailed:
      return answer_criu<agent::DumpFailed>(
          *connection, message, [&](const auto& body) { return handler_->dump_failed(body.pid); });
    case MessageType::kClaim:
      return answer_criu<agent::Claim>(*connection, message, [&](const auto& body) {
        return handler_->claim(connection->peer, body.note);
      });
    case MessageType::kRestoreFailed:
      return answer_criu<agent::RestoreFailed>(*connection, message, [&](const auto& body) {
        return handler_->restore_failed(connection->peer, body.note);
      });
    case MessageType::kRestored:
      return answer_criu<agent::Restored>(
          *connection, message, [&](const auto& body) { return handler_->restored(body); });
    case MessageType::kAction:
      return answer_criu<agent::Action>(*connection, message,
                                        [&](const auto& body) { return handler_->action(body); });
    case MessageType::kStatusReply:
      if (!take_status(*connection, message)) {
        warn_of(connection->peer, "process {} gave a malformed answer", connection->peer);
      }
      return;
    default: take_answer(*connection, message);
  }
}

std::vector<FerryProcess> ControlServer::processes() const {
  std::lock_guard lock(mutex_);
  std::vector<FerryProcess> all;
  for (const auto& [pid, connection] : processes_) {
    if (!has_ended(connection->pidfd)) all.push_back(*connection->process);
  }
  return all;
}

std::string ControlServer::give_ticket(const std::shared_ptr<Connection>& connection) {
  std::array<unsigned char, 16> random;
  if (::getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
    throw Failure("cannot get random bytes");
  }
  std::lock_guard lock(mutex_);
  tickets_.erase(connection->ticket);
  connection->ticket.clear();
  for (const auto byte : random) connection->ticket += fmt::format("{:02x}", byte);
  tickets_[connection->ticket] = connection->user;
  return connection->ticket;
}

std::optional<uid_t> ControlServer::user_of(const std::string& ticket) const {
  std::lock_guard lock(mutex_);
  const auto found = tickets_.find(ticket);
  if (found == tickets_.end()) return std::nullopt;
  return found->second;
}

std::shared_ptr<ControlServer::Connection> ControlServer::find(pid_t pid) const {
  std::lock_guard lock(mutex_);
  const auto found = processes_.find(pid);
  if (found == processes_.end() || has_ended(found->second->pidfd)) {
    throw Failure(fmt::format("process {} is not registered with ferryd", pid));
  }
  return found->second;
}

Message ControlServer::ask(Connection& connection, MessageType type,
                           std::span<const std::byte> body, std::span<const int> descriptors,
                           MessageType answer, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  std::lock_guard turn(connection.asking);
  {
    std::lock_guard lock(connection.mutex);
    for (auto& late : connection.answers) agent::close_descriptors(&late.descriptors);
    connection.answers.clear();
    connection.awaited = answer;
    if (brings_descriptors(answer)) connection.takes_descriptors = true;
  }
  if (const int error = connection.send(type, body, descriptors)) {
    throw Failure(fmt::format("cannot reach process {}: {}", connection.peer, error_text(error)));
  }
  std::unique_lock lock(connection.mutex);
  for (;;) {
    if (!connection.answers.empty()) {
      Message message = std::move(connection.answers.front());
      connection.answers.pop_front();
      return message;
    }
    if (connection.closed) throw Failure(fmt::format("process {} has ended", connection.peer));
    if (connection.arrived.wait_until(lock, deadline) == std::cv_status::timeout &&
        connection.answers.empty()) {
      connection.awaited.reset();
      throw Failure(
          fmt::format("process {} does not answer within {} ms", connection.peer, timeout.count()));
    }
  }
}

// Throws Failure when the process has ended.
void ControlServer::ask_status(Connection& connection, TakeStatus take) {
  {
    std::lock_guard lock(connection.mutex);
    if (connection.closed) throw Failure(fmt::format("process {} has ended", connection.peer));
    auto& takers = connection.status_takers;
    takers.push_back(std::move(take));
    if (takers.size() > kMostTakers) takers.erase(takers.begin());  // that one has long given up
    if (takers.size() > 1) return;
  }
  // When this fails the connection ends, and with it the wait.
  connection.send(MessageType::kStatus, {});
}

// False when the answer is malformed: then those who wait for it wait in vain.
bool ControlServer::take_status(Connection& connection, const Message& message) {
  std::vector<TakeStatus> takers;
  {
    std::lock_guard lock(connection.mutex);
    takers.swap(connection.status_takers);
  }
  agent::StatusReply reply;
  if (takers.empty()) return true;  // nobody has asked
  if (!agent::parse(message.body, &reply)) return false;
  for (const auto& take : takers) take(&reply);
  return true;
}

namespace {

// The answers that a call waits for. Their takers may outlive the call.
struct Answers {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<pid_t, agent::StatusReply> replies;
  std::size_t ended = 0;

  static auto taker(const std::shared_ptr<Answers>& self, pid_t pid) {
    return [self, pid](const agent::StatusReply* reply) {
      std::lock_guard lock(self->mutex);
      if (reply != nullptr) {
        self->replies[pid] = *reply;
      } else {
        ++self->ended;
      }
      self->changed.notify_all();
    };
  }
};

}  // namespace

agent::StatusReply ControlServer::status(pid_t pid, std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const auto connection = find(pid);
  const auto answers = std::make_shared<Answers>();
  ask_status(*connection, answers->taker(answers, pid));
  const auto glance = [&] {
    return std::min(deadline, std::chrono::steady_clock::now() + kGlance);
  };
  std::unique_lock lock(answers->mutex);
  const auto is_over = [&] { return answers->ended > 0 || !answers->replies.empty(); };
  while (!answers->changed.wait_until(lock, glance(), is_over)) {
    if (has_ended(connection->pidfd)) break;
    if (std::chrono::steady_clock::now() < deadline) continue;
    throw Failure(fmt::format("process {} does not answer within {} ms", pid, timeout.count()));
  }
  if (answers->replies.empty()) throw Failure(fmt::format("process {} has ended", pid));
  return answers->replies.begin()->second;
}

std::map<pid_t, agent::StatusReply> ControlServer::statuses(std::chrono::milliseconds timeout) {
  std::set<pid_t> all;
  for (const auto& process : processes()) all.insert(process.pid);
  return statuses(all, timeout);
}

std::map<pid_t, agent::StatusReply> ControlServer::statuses(const std::set<pid_t>& pids,
                                                            std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  const auto answers = std::make_shared<Answers>();
  std::size_t asked = 0;
  for (const pid_t pid : pids) {
    if (is_halted(pid)) continue;
    try {
      ask_status(*find(pid), answers->taker(answers, pid));
      ++asked;
    } catch (const Failure&) {
      // The process has ended.
    }
  }
  std::unique_lock lock(answers->mutex);
  answers->changed.wait_until(lock, deadline,
                              [&] { return answers->replies.size() + answers->ended >= asked; });
  return answers->replies;
}

UniqueFd ControlServer::track(pid_t pid, std::chrono::milliseconds timeout) {
  const auto connection = find(pid);
  const UniqueFd device(::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
  std::vector<int> descriptors;
  if (device) descriptors.push_back(device.get());
  Message message =
      ask(*connection, MessageType::kTrack, {}, descriptors, MessageType::kTracked, timeout);
  agent::Tracked tracked;
  const bool understood = agent::parse(message.body, &tracked);
  UniqueFd userfaultfd(message.descriptors.size() == 1 ? message.descriptors.front() : -1);
  if (!userfaultfd) agent::close_descriptors(&message.descriptors);
  // A program may have sent something else, made to be used by root.
  std::error_code ignored;
  const auto kind =
      std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", userfaultfd.get()), ignored);
  if (understood && kind == "anon_inode:[userfaultfd]") return userfaultfd;
  throw Failure(fmt::format("process {} cannot track what it writes: {}", pid,
                            error_text(understood ? tracked.error : EPROTO)));
}

bool ControlServer::suspend(pid_t pid, const agent::Suspend& request,
                            std::chrono::milliseconds timeout) {
  const Message message = ask(*find(pid), MessageType::kSuspend, agent::encode(request), {},
                              MessageType::kSuspending, timeout);
  agent::Suspending answer;
  if (!agent::parse(message.body, &answer) || answer.move_id != request.move_id) {
    throw Failure(fmt::format("process {} gave a malformed answer to a suspension", pid));
  }
  return answer.done;
}

agent::Delivered ControlServer::deliver(pid_t pid, const agent::Letters& letters,
                                        std::chrono::milliseconds timeout) {
  const Message message = ask(*find(pid), MessageType::kDeliver, agent::encode(letters), {},
                              MessageType::kDelivered, timeout);
  agent::Delivered delivered;
  if (!agent::parse(message.body, &delivered) ||
      delivered.errors.size() != letters.letters.size()) {
    throw Failure(fmt::format("process {} gave a malformed answer to letters", pid));
  }
  return delivered;
}

agent::Stopped ControlServer::stop(pid_t pid, const agent::Stop& request,
                                   std::chrono::milliseconds timeout) {
  const auto connection = find(pid);
  Message message = ask(*connection, MessageType::kStop, agent::encode(request), {},
                        MessageType::kStopped, timeout);
  agent::Stopped stopped;
  if (!agent::parse(message.body, &stopped) || stopped.move_id != request.move_id ||
      !agent::give_descriptors(&message.descriptors, &stopped.contexts)) {
    agent::close_descriptors(&message.descriptors);
    throw Failure(fmt::format("process {} gave a malformed answer to a stop", pid));
  }
  return stopped;
}

void ControlServer::stop_taken(pid_t pid, std::chrono::milliseconds timeout) {
  const auto connection = find(pid);
  const int error = connection->send(MessageType::kStopTaken, {});
  if (error != 0) {
    throw Failure(fmt::format("cannot reach process {}: {}", pid, error_text(error)));
  }
  std::unique_lock lock(connection->mutex);
  if (!connection->arrived.wait_for(lock, timeout, [&] { return connection->closed; })) {
    throw Failure(fmt::format("process {} does not let go of its sockets", pid));
  }
}

void ControlServer::located(pid_t pid, const agent::Located& answer) {
  try {
    find(pid)->send(MessageType::kLocated, agent::encode(answer));
  } catch (const Failure&) {
    // The process has ended.
  }
}

void ControlServer::moved_names(pid_t pid, const device::MovedNames& moved) {
  try {
    const auto connection = find(pid);
    // Nobody waits for one that reads nothing. It registers again when it does.
    const std::unique_lock lock(connection->sending, kBusy);
    pollfd writable{connection->socket.get(), POLLOUT, 0};
    if (!lock || ::poll(&writable, 1, 0) != 1 || (writable.revents & POLLOUT) == 0 ||
        agent::send_message(writable.fd, MessageType::kMovedNames, agent::encode(moved)) != 0)
      ::shutdown(connection->socket.get(), SHUT_RDWR);
  } catch (const Failure&) {
    // The process has ended.
  }
}

void ControlServer::drop(pid_t pid) {
  std::lock_guard lock(mutex_);
  const auto found = processes_.find(pid);
  if (found != processes_.end()) ::shutdown(found->second->socket.get(), SHUT_RDWR);
}

}  // namespace ferry::host
