#include "pipe/library/program.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace ferry::pd {
namespace {

using pipe::ControlReply;
using pipe::ControlRequest;
using pipe::Entry;

constexpr std::size_t kMostDescriptors = 3;

std::atomic<Program*> the_program{nullptr};
std::mutex program_mutex;  // of the_program's changes
std::atomic<std::uint64_t> programs{0};

// Generations count up, and begin anew after 2^32.
bool is_newer(std::uint32_t one, std::uint32_t other) {
  return static_cast<std::int32_t>(one - other) > 0;
}

UniqueFd connect_driver() {
  // Whoever starts a setuid program does not say where its driver is.
  const char* path = ::secure_getenv("FERRY_PIPE_SOCKET");
  if (path == nullptr || *path == '\0') path = pipe::kDefaultSocket;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (std::strlen(path) >= sizeof address.sun_path) return {};
  std::strcpy(address.sun_path, path);
  UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return {};
  }
  return socket;
}

// 0, or errno: of the answer, or EPIPE where the driver is gone.
int exchange(int socket, const ControlRequest& request, int descriptor, ControlReply* reply,
             std::vector<UniqueFd>* descriptors) {
  iovec bytes{const_cast<ControlRequest*>(&request), sizeof request};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(sizeof(int));
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
  }
  ssize_t done = 0;
  do {
    done = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (done < 0 && errno == EINTR);
  if (done < 0) return EPIPE;
  bytes = {reply, sizeof *reply};
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  do {
    done = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (done < 0 && errno == EINTR);
  if (done != sizeof *reply) return EPIPE;
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr;
       head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = CMSG_LEN(0); at + sizeof(int) <= head->cmsg_len; at += sizeof(int)) {
      int received = -1;
      std::memcpy(&received, reinterpret_cast<const char*>(head) + at, sizeof received);
      UniqueFd owned(received);
      if (descriptors != nullptr) descriptors->push_back(std::move(owned));
    }
  }
  return reply->error;
}

}  // namespace

int Program::open(const char* engine, unsigned submission_batch, unsigned completion_batch) {
  if (submission_batch > pipe::kQueueDepth || completion_batch > pipe::kQueueDepth) return EINVAL;
  const std::lock_guard lock(program_mutex);
  if (the_program != nullptr) return EALREADY;
  UniqueFd control = connect_driver();
  if (!control) return ENODEV;
  ControlRequest request;
  request.call = pipe::Call::kHello;
  request.number = pipe::kControlVersion;
  request.sizes[0] = submission_batch;
  request.sizes[1] = completion_batch;
  if (engine != nullptr) {
    if (std::strlen(engine) > sizeof request.name) return ENODEV;
    std::memcpy(request.name, engine, std::strlen(engine));
  }
  ControlReply reply;
  std::vector<UniqueFd> descriptors;
  const int error = exchange(control.get(), request, -1, &reply, &descriptors);
  if (error == EPIPE) return EACCES;  // it has hung up: it does not want to know this program
  if (error != 0) return error;
  if (descriptors.size() != kMostDescriptors || reply.number == 0) return EPROTONOSUPPORT;
  Mapping queues(descriptors[0].get(), pipe::QueueMemory::size(reply.number), 1);
  if (!queues) return ENOBUFS;
  static const int fork_handlers = ::pthread_atfork(before_fork, after_fork, in_child);
  if (fork_handlers != 0) return ENOBUFS;
  the_program =
      new Program(std::move(control), std::move(descriptors[1]), std::move(descriptors[2]),
                  std::move(queues), reply.number, submission_batch);
  return 0;
}

int Program::close() {
  const std::lock_guard lock(program_mutex);
  Program* program = the_program.exchange(nullptr);
  if (program == nullptr) return ENODEV;
  delete program;
  return 0;
}

Program* Program::get() {
  return the_program.load(std::memory_order_acquire);
}

Program::Program(UniqueFd control, UniqueFd doorbell, UniqueFd notice, Mapping queues,
                 std::uint32_t lanes, unsigned batch)
    : number(++programs),
      control_(std::move(control)),
      doorbell_(std::move(doorbell)),
      notice_(std::move(notice)),
      queues_(std::move(queues)),
      lanes_(lanes),
      batch_(batch),
      readers_(lanes) {}

Program::~Program() {
  for (auto& place : table_) {
    Socket* socket = place;
    if (socket != nullptr && socket->kind != Socket::Kind::kClosed) {
      ControlRequest request;
      ControlReply reply;
      request.call = pipe::Call::kClose;
      request.socket = socket->id;
      socket->stop_listening();
      ask(request, &reply);
    }
    delete socket;
  }
}

int Program::ask(ControlRequest request, ControlReply* reply, std::vector<UniqueFd>* descriptors,
                 int descriptor) {
  const std::lock_guard lock(control_mutex_);
  if (over_) return ENODEV;
  const int error = exchange(control_.get(), request, descriptor, reply, descriptors);
  if (error != EPIPE) return error;
  over_ = true;
  return ENODEV;
}

void Program::set_over() {
  over_ = true;
}

Socket* Program::find(int sid) const {
  if (sid < 0 || static_cast<std::size_t>(sid) >= table_.size()) return nullptr;
  Socket* socket = table_[static_cast<std::size_t>(sid)].load(std::memory_order_acquire);
  return socket != nullptr && socket->kind != Socket::Kind::kClosed ? socket : nullptr;
}

Socket* Program::place(const pipe::SocketId& id, std::uint16_t family) {
  Socket* socket = nullptr;
  {
    const std::lock_guard lock(table_mutex_);
    auto& place = table_.at(id.number);
    socket = place;
    if (socket == nullptr) place = socket = new Socket;
    if (id.number >= places_) places_ = id.number + 1;
  }
  const std::lock_guard reaping(reap_mutex_);
  socket->id = id;
  socket->family = family;
  socket->local.family = socket->peer.family = family;
  socket->lane = lane();
  socket->generation = socket->last_generation = id.generation;
  const auto early = early_.find(static_cast<std::uint16_t>(id.number));
  if (early != early_.end()) {
    if (early->second.generation == id.generation) note(*socket, early->second);
    early_.erase(early);
  }
  return socket;
}

void Program::clear(Socket& socket) {
  {
    const std::lock_guard watching(socket.watch_mutex);
    socket.watches.clear();
  }
  const std::lock_guard reaping(reap_mutex_);
  socket.clear();
}

Socket* Program::find_by_address(const void* address) const {
  for (std::size_t index = 0; index < places_; ++index) {
    Socket* socket = table_[index].load(std::memory_order_acquire);
    if (socket == nullptr) continue;
    const std::lock_guard lock(socket->mutex);
    if (socket->send_ring.holds(address)) return socket;
  }
  return nullptr;
}

bool Program::submit(Socket& socket, const pipe::Entry& entry) {
  if (!pipe::submit(memory().queues[socket.lane], entry, &socket.last_position)) return false;
  ++not_rung_;
  return true;
}

bool Program::await_driver() {
  constexpr unsigned kLookEvery = 256;
  ring(true);
  ::sched_yield();
  if (++waits_ % kLookEvery == 0) {
    pollfd hung_up{control_.get(), POLLRDHUP, 0};
    if (::poll(&hung_up, 1, 0) > 0) set_over();
  }
  return !over_;
}

void Program::settle(const Socket& socket) {
  // Most probably that thread was interrupted.
  while (!pipe::is_reachable(memory().queues[socket.lane], socket.last_position)) {
    if (!await_driver()) return;
  }
}

void Program::ring(bool now) {
  const unsigned waiting = not_rung_;
  if (waiting == 0 || (!now && waiting < batch_)) return;
  not_rung_ = 0;
  if (pipe::is_wanted(memory().doorbell_wanted)) ::eventfd_write(doorbell_.get(), 1);
}

std::uint32_t Program::lane() const {
  const int processor = ::sched_getcpu();
  return processor < 0 ? 0 : static_cast<std::uint32_t>(processor) % lanes_;
}

bool Program::has_completions() {
  const std::lock_guard lock(reap_mutex_);
  for (std::uint32_t lane = 0; lane < lanes_; ++lane) {
    if (!readers_[lane].empty(memory().queues[lane])) return true;
  }
  return false;
}

void Program::reap() {
  const std::lock_guard lock(reap_mutex_);
  bool any = false;
  for (std::uint32_t lane = 0; lane < lanes_; ++lane) {
    pipe::Entry entry;
    while (readers_[lane].take(memory().queues[lane], &entry)) {
      any = true;
      Socket* socket = table_[entry.connection].load(std::memory_order_acquire);
      if (socket != nullptr && socket->generation == entry.generation) {
        note(*socket, entry);
        socket->wake_watches();
      } else if (socket == nullptr || is_newer(entry.generation, socket->last_generation)) {
        keep_early(entry);
      }
    }
  }
  if (any && pipe::is_wanted(memory().completions_wait)) ::eventfd_write(doorbell_.get(), 1);
}

// Each tells all that there is, and one may be older than one of another lane.
void Program::note(Socket& socket, const Entry& entry) {
  if (entry.source > socket.done) socket.done = entry.source;
  if (entry.destination > socket.received) socket.received = entry.destination;
  socket.flags |= entry.flags;
}

void Program::keep_early(const Entry& entry) {
  const auto [place, is_first] = early_.try_emplace(std::uint16_t{entry.connection}, entry);
  Entry& known = place->second;
  if (is_first || is_newer(known.generation, entry.generation)) return;
  if (known.generation != entry.generation) {
    known = entry;
    return;
  }
  if (entry.source > known.source) known.source = entry.source;
  if (entry.destination > known.destination) known.destination = entry.destination;
  known.flags = static_cast<std::uint16_t>(known.flags | entry.flags);
}

void Program::pass_notice_on() {
  if (sleepers != 0) pipe::give_notice(notice_.get());
}

void Program::before_fork() {
  program_mutex.lock();
  if (Program* program = the_program) program->table_mutex_.lock();
}

void Program::after_fork() {
  if (Program* program = the_program) program->table_mutex_.unlock();
  program_mutex.unlock();
}

// The child has no socket. What the parent's threads were doing is unknown, so nothing of it is
// touched but descriptors, which would keep connections open; its memory is not there.
void Program::in_child() {
  if (Program* program = the_program.exchange(nullptr)) {
    program->control_.reset();
    program->doorbell_.reset();
    program->notice_.reset();
    for (auto& place : program->table_) {
      if (Socket* socket = place) socket->tcp.reset();
    }
  }
  program_mutex.unlock();
}

}  // namespace ferry::pd
