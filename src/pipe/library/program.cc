#include "pipe/library/program.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

#include "pipe/library/exchange.h"

namespace ferry::pd {
namespace {

using pipe::ControlReply;
using pipe::ControlRequest;
using pipe::Entry;

std::atomic<Program*> the_program{nullptr};
std::mutex program_mutex;   // of the_program's and former_program's changes; fork() takes it
std::mutex sessions_mutex;  // one pd_init() or pd_release() at a time
Program* former_program = nullptr;  // pd_release() is about to end it
std::atomic<std::uint64_t> programs{0};

bool await_answer(int control) {
  const auto until = std::chrono::steady_clock::now() + kConnectLimit;
  for (pollfd answer{control, POLLIN, 0};;) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    if (::poll(&answer, 1, static_cast<int>(left.count())) > 0) return true;
  }
}

}  // namespace

int Program::open(const char* engine, unsigned submission_batch, unsigned completion_batch) {
  if (submission_batch > pipe::kQueueDepth || completion_batch > pipe::kQueueDepth) return EINVAL;
  const std::lock_guard alone(sessions_mutex);
  if (the_program != nullptr) return EALREADY;
  Session session;
  session.path = driver_path();
  session.submission_batch = submission_batch;
  session.completion_batch = completion_batch;
  UniqueFd control = connect_driver(session.path);
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
  if (!send_request(control.get(), request, {})) return EACCES;
  if (!await_answer(control.get())) return ENODEV;
  const int error = take_answer(control.get(), &reply, &descriptors);
  if (error == EPIPE) return EACCES;  // it has hung up: it does not want to know this program
  if (error != 0) return error;
  if (descriptors.size() != kMostDescriptors || reply.number == 0) return EPROTONOSUPPORT;
  Mapping queues(descriptors[0].get(), pipe::QueueMemory::size(reply.number), 1);
  if (!queues) return ENOBUFS;
  static const int fork_handlers = ::pthread_atfork(before_fork, after_fork, in_child);
  if (fork_handlers != 0) return ENOBUFS;
  session.name = reply.sizes[0];
  session.away = std::chrono::milliseconds(reply.sizes[1]);
  session.lanes = reply.number;
  auto program = std::unique_ptr<Program>(
      new Program(session, std::move(control), std::move(descriptors), std::move(queues)));
  if (!program->ended_ || !program->wake_) return ENOBUFS;
  try {
    program->begin_thread();
  } catch (const std::system_error&) {
    return ENOBUFS;  // there is no room for a thread
  }
  const std::lock_guard lock(program_mutex);
  the_program = program.release();
  return 0;
}

int Program::close() {
  const std::lock_guard alone(sessions_mutex);
  {
    const std::lock_guard lock(program_mutex);
    former_program = the_program.exchange(nullptr);
  }
  if (former_program == nullptr) return ENODEV;
  former_program->end();
  const std::lock_guard lock(program_mutex);
  delete std::exchange(former_program, nullptr);
  return 0;
}

Program* Program::get() {
  return the_program.load(std::memory_order_acquire);
}

Program::Program(Session session, UniqueFd control, std::vector<UniqueFd> descriptors,
                 Mapping queues)
    : number(++programs),
      session_(std::move(session)),
      control_(std::move(control)),
      memory_(std::move(descriptors[0])),
      doorbell_(std::move(descriptors[1])),
      notice_(std::move(descriptors[2])),
      ended_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      queues_(std::move(queues)),
      lanes_(session_.lanes),
      batch_(session_.submission_batch),
      readers_(lanes_) {}

// What it has sent is delivered, for which it may wait for the next driver.
void Program::end() {
  for (auto& place : table_) {
    Socket* socket = place;
    if (socket == nullptr) continue;
    const std::lock_guard lock(socket->mutex);
    if (socket->generation == 0) continue;
    ControlRequest request;
    ControlReply reply;
    request.call = pipe::Call::kClose;
    request.socket = socket->id;
    socket->stop_listening();
    if (ask(request, &reply, nullptr, -1, [&] { clear(*socket); }) != 0) clear(*socket);
  }
  stops_ = true;
  ::eventfd_write(wake_.get(), 1);
  if (thread_.joinable()) thread_.join();
}

Program::~Program() {
  for (auto& place : table_) delete place.load();
}

int Program::ask(const ControlRequest& request, ControlReply* reply,
                 std::vector<UniqueFd>* descriptors, int descriptor,
                 const std::function<void()>& then) {
  Socket* socket = nullptr;
  if (request.socket.generation != 0) {
    socket = table_.at(request.socket.number);
    if (socket != nullptr && socket->generation != request.socket.generation) socket = nullptr;
  }
  const std::vector<int> given = descriptor < 0 ? std::vector<int>() : std::vector{descriptor};
  for (;;) {
    std::uint64_t epoch = 0;
    {
      std::unique_lock lock(control_mutex_);
      changed_.wait(lock, [&] { return is_connected_ || over_; });
      // The listener may be a socket of this program.
      if (request.call == pipe::Call::kConnect && socket != nullptr && socket->epoch == epoch_) {
        changed_.wait(lock, [&] { return restored_ == epoch_ || !is_connected_ || over_; });
      }
      if (over_) return ENODEV;
      if (!is_connected_) continue;
      epoch = epoch_;
      const bool closes = request.call == pipe::Call::kClose && socket != nullptr;
      if (socket == nullptr || socket->epoch == epoch || (closes && socket->begun == epoch)) {
        if (descriptors != nullptr) descriptors->clear();
        const int error = exchange(control_.get(), request, given, reply, descriptors);
        if (error != EPIPE) {
          if (error == 0 && pipe::is_newer(reply->socket.generation, newest_)) {
            newest_ = reply->socket.generation;
          }
          if (error == 0 && then) then();
          return error;
        }
        lose();
        continue;
      }
    }
    const bool is_later = restore(*socket, epoch) == Restored::kLater;
    if (is_later && request.call != pipe::Call::kClose) return ENOBUFS;
  }
}

Socket* Program::find(int sid) const {
  if (sid < 0 || static_cast<std::size_t>(sid) >= table_.size()) return nullptr;
  Socket* socket = table_[static_cast<std::size_t>(sid)].load(std::memory_order_acquire);
  return socket != nullptr && socket->is_open() ? socket : nullptr;
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
  socket->epoch = epoch_.load();
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

void Program::add_block(Socket& socket, std::uint64_t offset, const Socket::Block& block) {
  const std::lock_guard reaping(reap_mutex_);
  socket.add_block(offset, block);
}

Socket* Program::find_by_address(const void* address) const {
  for (std::size_t index = 0; index < places_; ++index) {
    Socket* socket = table_[index].load(std::memory_order_acquire);
    if (socket == nullptr) continue;
    const std::lock_guard lock(socket->mutex);
    if (socket->is_open() && socket->send_ring.holds(address)) return socket;
  }
  return nullptr;
}

bool Program::submit(Socket& socket, const pipe::Entry& entry) {
  if (!pipe::submit(memory().queues[socket.lane], entry, &socket.last_position)) return false;
  ++not_rung_;
  return true;
}

bool Program::await_driver() {
  ring(true);
  if (is_connected_) {
    ::sched_yield();
  } else {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
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
  reap_all();
}

void Program::reap_all() {
  bool any = false;
  for (std::uint32_t lane = 0; lane < lanes_; ++lane) {
    pipe::Entry entry;
    while (readers_[lane].take(memory().queues[lane], &entry)) {
      any = true;
      Socket* socket = table_[entry.connection].load(std::memory_order_acquire);
      if (socket != nullptr && socket->generation == entry.generation) {
        note(*socket, entry);
        socket->wake_watches();
      } else if (socket == nullptr || pipe::is_newer(entry.generation, socket->last_generation)) {
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
  if (is_first || pipe::is_newer(known.generation, entry.generation)) return;
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
  for (Program* program : {the_program.exchange(nullptr), std::exchange(former_program, nullptr)}) {
    if (program == nullptr) continue;
    for (auto* each : {&program->control_, &program->memory_, &program->doorbell_,
                       &program->notice_, &program->ended_, &program->wake_}) {
      each->reset();
    }
    for (auto& place : program->table_) {
      if (Socket* socket = place) {
        socket->tcp.reset();
        for (auto& memory : socket->ring_memory) memory.reset();
      }
    }
  }
  // One of the parent's threads may have it, which the child does not have.
  std::construct_at(&sessions_mutex);
  program_mutex.unlock();
}

}  // namespace ferry::pd
