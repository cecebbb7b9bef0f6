#include "pipe/library/epoll.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <utility>

#include "pipe/library/waiter.h"

namespace ferry::pd {
namespace {

static_assert(PD_EPOLLIN == EPOLLIN && PD_EPOLLOUT == EPOLLOUT && PD_EPOLLERR == EPOLLERR &&
              PD_EPOLLHUP == EPOLLHUP && PD_EPOLLET == EPOLLET);

// What an event of the kernel's epoll is of, beside the sid of a socket.
constexpr std::uint64_t kNotice = ~std::uint64_t{0}, kReady = kNotice - 1, kEnded = kNotice - 2;

std::mutex all_mutex;
std::map<int, std::shared_ptr<Epoll>>& all() {
  static auto* const all_epolls = new std::map<int, std::shared_ptr<Epoll>>;
  return *all_epolls;
}

// In which this thread is, and will look at the queue again: it needs no call to wake itself.
thread_local const Epoll* waits_in = nullptr;

}  // namespace

std::shared_ptr<Epoll> Epoll::create(Program& program) {
  // The child of a fork() has its own, by forget_all(): no other thread may have the mutex then.
  static const int fork_handlers = ::pthread_atfork(
      [] { all_mutex.lock(); }, [] { all_mutex.unlock(); }, [] { all_mutex.unlock(); });
  if (fork_handlers != 0) {
    errno = fork_handlers;
    return nullptr;
  }
  auto epoll = std::make_shared<Epoll>(program);
  if (!epoll->epoll_ || !epoll->ready_) return nullptr;
  const std::lock_guard lock(all_mutex);
  all()[epoll->epoll_.get()] = epoll;
  return epoll;
}

std::shared_ptr<Epoll> Epoll::find(int descriptor) {
  const std::lock_guard lock(all_mutex);
  const auto found = all().find(descriptor);
  return found == all().end() ? nullptr : found->second;
}

bool Epoll::close(int descriptor) {
  const auto epoll = find(descriptor);
  if (!epoll) return false;
  std::map<int, std::shared_ptr<Item>> items;
  {
    const std::lock_guard lock(epoll->mutex_);
    items = epoll->items_;
  }
  for (const auto& [sid, item] : items) epoll->remove(sid);
  const std::lock_guard lock(all_mutex);
  all().erase(descriptor);
  return true;
}

void Epoll::forget_all() {
  const std::lock_guard lock(all_mutex);
  all().clear();
}

Epoll::Epoll(Program& program)
    : program_(program),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      ready_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  const auto watch = [this](int descriptor, std::uint32_t events, std::uint64_t what) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = what;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event);
  };
  watch(program.notice(), EPOLLIN, kNotice);
  watch(ready_.get(), EPOLLIN, kReady);
  watch(program.ended(), EPOLLIN, kEnded);
  // Its descriptor is to become readable at any time, also while no thread is in wait().
  ++program_.sleepers;
}

Epoll::~Epoll() {
  --program_.sleepers;
}

int Epoll::add(int sid, Socket& socket, const pd_epoll_event& event) {
  auto item = std::make_shared<Item>(weak_from_this(), socket, sid);
  item->event = event;
  {
    const std::lock_guard lock(mutex_);
    auto& place = items_[sid];
    // One of a socket that was closed since does not count.
    if (place && place->generation == item->generation) return EEXIST;
    if (place && place->descriptor >= 0) --descriptors_;
    place = item;
  }
  {
    const std::lock_guard lock(socket.watch_mutex);
    socket.watches.push_back(item);
  }
  if (socket.descriptor() >= 0) item->has_descriptor(socket.descriptor());
  item->wake();
  program_.want_notice();
  if (program_.has_completions()) program_.pass_notice_on();
  return 0;
}

int Epoll::change(int sid, Socket& socket, const pd_epoll_event& event) {
  std::shared_ptr<Item> item;
  {
    const std::lock_guard lock(mutex_);
    const auto found = items_.find(sid);
    if (found == items_.end() || found->second->generation != socket.generation) return ENOENT;
    item = found->second;
    item->event = event;
    if (item->descriptor >= 0) watch_descriptor(*item, EPOLL_CTL_MOD);
  }
  item->wake();
  return 0;
}

int Epoll::remove(int sid) {
  std::shared_ptr<Item> item;
  {
    const std::lock_guard lock(mutex_);
    const auto found = items_.find(sid);
    if (found == items_.end()) return ENOENT;
    item = std::move(found->second);
    items_.erase(found);
    if (item->descriptor >= 0) {
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, item->descriptor, nullptr);
      --descriptors_;
    }
  }
  const std::lock_guard lock(item->socket.watch_mutex);
  std::erase(item->socket.watches, std::shared_ptr<Watch>(item));
  return item->generation == item->socket.generation ? 0 : ENOENT;
}

void Epoll::Item::wake() {
  if (const auto epoll = owner.lock()) epoll->queue(shared_from_this());
}

void Epoll::Item::has_descriptor(int its_descriptor) {
  const auto epoll = owner.lock();
  if (!epoll) return;
  const std::lock_guard lock(epoll->mutex_);
  if (descriptor == its_descriptor) return;
  if (descriptor >= 0) {
    epoll->watch_descriptor(*this, EPOLL_CTL_DEL);
    --epoll->descriptors_;
  }
  descriptor = its_descriptor;
  if (descriptor < 0) return;
  ++epoll->descriptors_;
  epoll->watch_descriptor(*this, EPOLL_CTL_ADD);
}

void Epoll::queue(const std::shared_ptr<Item>& item) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(item->queued, true)) return;
  queue_.push_back(item);
  if (waits_in != this && !std::exchange(is_rung_, true)) ::eventfd_write(ready_.get(), 1);
}

void Epoll::watch_descriptor(Item& item, int operation) {
  epoll_event event{};
  event.events = item.event.events;
  event.data.u64 = static_cast<std::uint64_t>(item.sid);
  ::epoll_ctl(epoll_.get(), operation, item.descriptor, &event);
}

int Epoll::collect(pd_epoll_event* events, int most) {
  const std::lock_guard lock(mutex_);
  int count = 0;
  // Those that stay in the queue are not looked at twice.
  for (std::size_t left = queue_.size(); left > 0 && count < most; --left) {
    const auto item = std::move(queue_.front());
    queue_.pop_front();
    item->queued = false;
    const auto entry = items_.find(item->sid);
    if (entry == items_.end() || entry->second != item) continue;  // removed
    if (item->generation != item->socket.generation) {             // closed
      if (item->descriptor >= 0) --descriptors_;
      items_.erase(entry);
      continue;
    }
    const std::uint32_t wanted = item->event.events | PD_EPOLLERR | PD_EPOLLHUP;
    const std::uint32_t ready = item->socket.ready() & wanted;
    if (ready == 0) continue;
    events[count++] = {ready, item->event.data};
    if ((item->event.events & PD_EPOLLET) != 0) continue;
    item->queued = true;
    queue_.push_back(item);
  }
  return count;
}

int Epoll::look_at_kernel(pd_epoll_event* events, int most, int timeout) {
  std::array<epoll_event, 64> found;
  const int capacity = std::min<int>(most + 3, found.size());
  const int total = ::epoll_wait(epoll_.get(), found.data(), capacity, timeout);
  if (total < 0) return -1;
  int count = 0;
  for (const epoll_event& event : std::span(found.data(), static_cast<std::size_t>(total))) {
    std::uint64_t times = 0;
    if (event.data.u64 == kNotice) {
      ::eventfd_read(program_.notice(), &times);
    } else if (event.data.u64 == kReady) {
      const std::lock_guard lock(mutex_);
      ::eventfd_read(ready_.get(), &times);
      is_rung_ = false;
    } else if (event.data.u64 != kEnded && count < most) {
      const std::lock_guard lock(mutex_);
      const auto item = items_.find(static_cast<int>(event.data.u64));
      if (item != items_.end()) events[count++] = {event.events, item->second->event.data};
    }
  }
  return count;
}

int Epoll::wait(pd_epoll_event* events, int most, int timeout) {
  const Deadline deadline(timeout);
  program_.ring(true);
  waits_in = this;
  int count = 0;
  const auto look = [&] {
    program_.reap();
    count = collect(events, most);
    return count > 0;
  };
  bool found = look();
  if (!found && timeout != 0 && descriptors_ == 0) {
    for (Patience patience(Socket::kPatience); !found && !deadline.is_over() && patience.wait();)
      found = look();
  }
  for (;;) {
    if (!found) {
      program_.want_notice();
      found = look();
    }
    if (count == most || (found && descriptors_ == 0)) break;
    const int rest = look_at_kernel(events + count, most - count, found ? 0 : deadline.left());
    if (found || rest != 0) {
      if (rest > 0 || count == 0) count += rest;
      break;
    }
    found = look();
    if (program_.is_over() && !found) {
      errno = ENODEV;
      count = -1;
      break;
    }
    if (!found && deadline.is_over()) break;
  }
  waits_in = nullptr;
  // The descriptor is readable from here on when there is something that nobody has been told of.
  const int error = errno;
  program_.want_notice();
  if (program_.has_completions()) program_.pass_notice_on();
  {
    const std::lock_guard lock(mutex_);
    if (!queue_.empty() && !std::exchange(is_rung_, true)) ::eventfd_write(ready_.get(), 1);
  }
  errno = error;
  return count;
}

}  // namespace ferry::pd
