#include "pipe/driver/session.h"

#include <linux/magic.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

namespace ferry::pipe {
namespace {

constexpr std::size_t kMostSockets = 65536;  // what an entry can name

// What the kernel calls a descriptor that is no file of a folder.
bool is_a(int descriptor, const std::string& kind) {
  std::array<char, 64> name;
  const ssize_t size =
      ::readlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), name.data(), name.size());
  return size >= 0 && kind == std::string_view(name.data(), static_cast<std::size_t>(size));
}

// No huge pages, of which there may be none when one is looked at.
bool is_ordinary(int memory) {
  struct statfs system {};
  return ::fstatfs(memory, &system) == 0 && system.f_type == TMPFS_MAGIC;
}

}  // namespace

Session::Session(std::uint64_t session_number, Peer session_peer,
                 std::shared_ptr<Owner> its_container, std::shared_ptr<Owner> user)
    : number(session_number),
      peer(std::move(session_peer)),
      container(std::move(its_container)),
      owners(user ? std::vector{container, std::move(user)} : std::vector{container}) {
  for (const auto& owner : owners) ++owner->sessions;
}

Session::~Session() {
  if (memory_ != nullptr) ::munmap(memory_, QueueMemory::size(count_));
  for (const auto& owner : owners) --owner->sessions;
}

Accounts accounts_of(const Owners& owners) {
  Accounts all;
  for (const auto& owner : owners) all.push_back(owner->memory);
  return all;
}

bool Session::may_wait() const {
  return std::all_of(owners.begin(), owners.end(),
                     [](const auto& owner) { return owner->waiting < owner->limits.waiting; });
}

bool Session::open_queues(std::uint32_t count, std::uint32_t completion_batch, Pool& pool) {
  const std::size_t size = QueueMemory::size(count);
  share_.reset();
  if (auto share = pool.share(size, accounts())) share_.emplace(std::move(*share));
  if (!share_) return false;
  return open({sealed_memory("ferry-pipe-queues", size, 0),
               UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), UniqueFd(new_notice())},
              count, completion_batch);
}

std::int32_t Session::resume_queues(const QueueDescriptors& given, std::uint32_t most,
                                    std::uint32_t completion_batch, Pool& pool,
                                    std::optional<Share>* kept) {
  const std::size_t size = size_of_sealed(given.memory);
  const std::size_t rest =
      size < QueueMemory::size(1) ? 1 : (size - QueueMemory::size(1)) % sizeof(Queue);
  // What only ordinary memory makes sure of: that a page of it is there. And only an eventfd or a timer: that nobody is
  // kept waiting by it.
  if (rest != 0 || !is_ordinary(given.memory) || !is_a(given.doorbell, "anon_inode:[eventfd]") ||
      !is_a(given.notice, "anon_inode:[timerfd]")) {
    return EINVAL;
  }
  const std::size_t count = 1 + (size - QueueMemory::size(1)) / sizeof(Queue);
  if (count > most) return EINVAL;
  share_.reset();
  if (auto share = pool.share(size, accounts(), kept)) share_.emplace(std::move(*share));
  Queues queues{copy_of(given.memory), copy_of(given.doorbell), copy_of(given.notice)};
  if (!share_ || !open(std::move(queues), static_cast<std::uint32_t>(count), completion_batch)) {
    return ENOBUFS;
  }
  for (std::uint32_t lane = 0; lane < count_; ++lane) {
    lanes_[lane].submissions.resume(memory_->queues[lane]);
    lanes_[lane].completions.resume(memory_->queues[lane]);
  }
  return 0;
}

bool Session::open(Queues queues, std::uint32_t count, std::uint32_t completion_batch) {
  if (!queues.memory || !queues.doorbell || !queues.notice) return false;
  void* memory = ::mmap(nullptr, QueueMemory::size(count), PROT_READ | PROT_WRITE, MAP_SHARED,
                        queues.memory.get(), 0);
  if (memory == MAP_FAILED) return false;
  queues_ = std::move(queues.memory);
  doorbell_ = std::move(queues.doorbell);
  notice_ = std::move(queues.notice);
  count_ = count;
  completion_batch_ = completion_batch == 0 ? ~0U : completion_batch;
  lanes_.resize(count);
  memory_ = static_cast<QueueMemory*>(memory);
  return true;
}

std::shared_ptr<Socket> Session::add_socket() {
  for (const auto& owner : owners) {
    if (owner->sockets >= owner->limits.sockets) return nullptr;
  }
  const std::lock_guard lock(sockets_mutex_);
  while (unused_.empty()) {
    if (sockets_.size() == kMostSockets) return nullptr;
    const auto number = static_cast<std::uint32_t>(sockets_.size());
    if (!is_held(number) && number >= reserved_) unused_.push_back(number);
    sockets_.emplace_back();
  }
  auto socket = std::make_shared<Socket>();
  socket->id = {unused_.back(), next_generation_++};
  unused_.pop_back();
  sockets_[socket->id.number] = socket;
  for (const auto& owner : owners) ++owner->sockets;
  return socket;
}

void Session::remove_socket(const Socket& socket) {
  const std::lock_guard lock(sockets_mutex_);
  if (sockets_[socket.id.number].get() != &socket) return;
  unused_.push_back(socket.id.number);
  for (const auto& owner : owners) {
    --owner->sockets;
    owner->waiting -= socket.waiting.size();
  }
  sockets_[socket.id.number].reset();
}

void Session::hold(std::uint32_t number) {
  const std::lock_guard lock(sockets_mutex_);
  if (number >= kMostSockets || (number < sockets_.size() && sockets_[number])) return;
  if (number >= is_held_.size()) is_held_.resize(number + 1);
  is_held_[number] = true;
  std::erase(unused_, number);
}

bool Session::release(std::uint32_t number) {
  const std::lock_guard lock(sockets_mutex_);
  if (!is_held(number)) return false;
  is_held_[number] = false;
  if (number < sockets_.size()) unused_.push_back(number);
  return true;
}

void Session::reserve(std::uint32_t numbers, std::uint32_t newest) {
  const std::lock_guard lock(sockets_mutex_);
  std::size_t most = kMostSockets;
  for (const auto& owner : owners) most = std::min(most, owner->limits.sockets);
  sockets_.resize(std::min<std::size_t>(numbers, most));
  reserved_ = numbers;
  newest_ = newest;
  next_generation_ = newest + 1;
}

std::shared_ptr<Socket> Session::restore_socket(SocketId id, bool has_place) {
  for (const auto& owner : owners) {
    if (!has_place && owner->sockets >= owner->limits.sockets) return nullptr;
  }
  const std::lock_guard lock(sockets_mutex_);
  if (id.number >= sockets_.size() || sockets_[id.number] || !knows(id.generation) ||
      std::find(unused_.begin(), unused_.end(), id.number) != unused_.end()) {
    return nullptr;
  }
  if (is_held(id.number)) is_held_[id.number] = false;
  auto socket = std::make_shared<Socket>();
  socket->id = id;
  sockets_[id.number] = socket;
  for (const auto& owner : owners) ++owner->sockets;
  return socket;
}

void Session::release_reserved() {
  const std::lock_guard lock(sockets_mutex_);
  unused_.clear();
  reserved_ = 0;
  for (std::size_t place = sockets_.size(); place-- > 0;) {
    const auto number = static_cast<std::uint32_t>(place);
    if (!sockets_[place] && !is_held(number)) unused_.push_back(number);
  }
}

std::shared_ptr<Socket> Session::find(SocketId id) const {
  auto socket = socket_at(id.number);
  return socket && socket->id == id ? socket : nullptr;
}

std::shared_ptr<Socket> Session::socket_at(std::uint32_t socket) const {
  const std::lock_guard lock(sockets_mutex_);
  return socket < sockets_.size() ? sockets_[socket] : nullptr;
}

std::vector<std::shared_ptr<Socket>> Session::sockets() const {
  const std::lock_guard lock(sockets_mutex_);
  std::vector<std::shared_ptr<Socket>> all;
  for (const auto& socket : sockets_) {
    if (socket) all.push_back(socket);
  }
  return all;
}

void Session::connect(Socket& socket, std::shared_ptr<Connection> connection, int side) {
  const std::lock_guard lock(sockets_mutex_);
  socket.out = connection->streams[side];
  socket.in = connection->streams[1 - side];
  socket.local = connection->addresses[side];
  socket.peer = connection->addresses[1 - side];
  socket.state = Socket::State::kConnected;
  socket.side = side;
  socket.connection = std::move(connection);
}

void Session::enqueue(Socket& socket, std::shared_ptr<Connection> connection, bool first) {
  const std::lock_guard lock(sockets_mutex_);
  socket.waiting.insert(first ? socket.waiting.begin() : socket.waiting.end(),
                        std::move(connection));
  ++socket.come;
  for (const auto& owner : owners) ++owner->waiting;
}

void Session::dequeue(Socket& socket) {
  const std::lock_guard lock(sockets_mutex_);
  socket.waiting.pop_front();
  for (const auto& owner : owners) --owner->waiting;
}

Session::Place Session::place(SocketId id, std::uint32_t lane) const {
  const std::lock_guard lock(sockets_mutex_);
  if (id.number >= sockets_.size()) return {};
  const auto& socket = sockets_[id.number];
  if (!socket || socket->id != id || socket->state != Socket::State::kConnected) return {};
  socket->lane.store(lane, std::memory_order_relaxed);
  return {socket->connection, socket->side};
}

bool Session::take(std::size_t most,
                   const std::function<void(const Entry&, std::uint32_t lane)>& call) {
  const std::lock_guard lock(submissions_);
  bool any = false;
  for (std::size_t round = 0; round < most; ++round) {
    bool some = false;
    for (std::uint32_t lane = 0; lane < count_; ++lane) {
      Entry entry;
      if (!lanes_[lane].submissions.take(memory_->queues[lane], &entry)) continue;
      some = true;
      call(entry, lane);
    }
    if (!some) break;
    any = true;
  }
  return any;
}

bool Session::has_submissions() const {
  const std::lock_guard lock(submissions_);
  for (std::uint32_t lane = 0; lane < count_; ++lane) {
    if (!lanes_[lane].submissions.empty(memory_->queues[lane])) return true;
  }
  return false;
}

bool Session::mark(std::uint32_t socket) {
  const std::lock_guard lock(marked_mutex_);
  if (socket >= is_marked_.size()) is_marked_.resize(socket + 1);
  if (is_marked_[socket]) return false;
  is_marked_[socket] = true;
  marked_.push_back(socket);
  return marks_.fetch_add(1) == 0;
}

void Session::announce() {
  const std::lock_guard lock(completions_);
  bool written = false, looked_again = false;
  while (memory_ != nullptr) {
    std::uint32_t socket = 0;
    {
      const std::lock_guard marked(marked_mutex_);
      if (marked_.empty()) break;
      socket = marked_.front();
      marked_.pop_front();
      is_marked_[socket] = false;
      --marks_;
    }
    Entry entry;
    std::uint32_t lane = 0;
    if (!report(socket, &entry, &lane)) continue;
    if (lanes_[lane].completions.write(memory_->queues[lane], entry)) {
      written = true;
      looked_again = false;  // whoever has made room may have seen completions_wait
      continue;
    }
    mark(socket);
    if (std::exchange(looked_again, true)) break;
    want(memory_->completions_wait);  // and look again: the program may have made room before
  }
  if (written && is_wanted(memory_->notice_wanted)) give_notice(notice_.get());
}

bool Session::report(std::uint32_t socket_number, Entry* entry, std::uint32_t* lane) const {
  std::shared_ptr<Stream> out, in;
  entry->type = EntryType::kCompleted;
  {
    const std::lock_guard lock(sockets_mutex_);
    if (socket_number >= sockets_.size() || !sockets_[socket_number]) return false;
    const Socket& socket = *sockets_[socket_number];
    *lane = socket.lane.load(std::memory_order_relaxed);
    entry->connection = static_cast<std::uint16_t>(socket_number);
    entry->generation = socket.id.generation;
    entry->destination = socket.come;
    if (socket.state == Socket::State::kConnected) {
      out = socket.out;
      in = socket.in;
    }
  }
  if (!out) return true;
  const Stream::State sent = out->state(), received = in->state();
  entry->source = sent.done;
  entry->destination = received.received;
  entry->flags = static_cast<std::uint16_t>((received.ended ? kEnd : 0) |
                                            (sent.reset || received.reset ? kReset : 0) |
                                            (sent.read_closed ? kReadClosed : 0));
  return true;
}

}  // namespace ferry::pipe
