#include "rdmacm/service.h"

#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/own_thread.h"

// The thread, sockets and channels; a move.
namespace ferry::rdmacm {
namespace {

constexpr cm::Time kRetry = std::chrono::milliseconds(250);  // of sockets that are missing
// How long a process that ends repeats its farewells: four tries.
constexpr cm::Time kFarewell = std::chrono::seconds(2);
constexpr int kMaxDescriptor = 1 << 16;

}  // namespace

Service::Service(Devices& devices) : devices_(devices), sockets_(devices) {}

Service::~Service() {
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    kick();
    changed_.notify_all();
  }
  if (started_) ::pthread_join(thread_, nullptr);
  if (event_ >= 0) ::close(event_);
}

cm::Time Service::now() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

// --- Channels

std::unique_lock<std::mutex> Service::lock_running() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !stopped_; });
  return lock;
}

int Service::open(int flags) {
  const auto lock = lock_running();
  if (const int error = start_thread(); error != 0) {
    errno = error;
    return -1;
  }
  auto channel = std::make_shared<Channel>();
  const int error = channel->open((flags & O_CLOEXEC) != 0);
  const int descriptor = channel->read_end();
  if (error != 0 || descriptor >= kMaxDescriptor) {
    if (descriptor >= 0) ::close(descriptor);
    errno = error != 0 ? error : EMFILE;
    return -1;
  }
  channels_[descriptor] = std::move(channel);
  return descriptor;
}

bool Service::close(int descriptor) {
  auto lock = lock_running();
  const auto found = channels_.find(descriptor);
  if (found == channels_.end()) return true;
  const std::shared_ptr<Channel> channel = found->second;
  // The number may be another file's since dup2() or close_range().
  if (!channel->is_mine(descriptor) && !channel->is_abandoned()) return false;
  channels_.erase(found);
  for (;;) {
    const auto of_channel = std::find_if(ids_.begin(), ids_.end(),
                                         [&](auto& e) { return e.second.channel == channel; });
    if (of_channel == ids_.end()) break;
    destroy(of_channel->second);
  }
  end_command(lock);
  return true;
}

std::shared_ptr<Channel> Service::channel_of(int descriptor) {
  const auto found = channels_.find(descriptor);
  if (found == channels_.end() || !found->second->is_mine(descriptor)) return nullptr;
  return found->second;
}

int Service::enter_wait(int descriptor) {
  const auto lock = lock_running();
  const std::shared_ptr<Channel> channel = channel_of(descriptor);
  if (!channel) return EBADF;
  channel->enter_wait();
  return 0;
}

void Service::leave_wait(int descriptor) {
  const auto lock = lock_running();
  if (const std::shared_ptr<Channel> channel = channel_of(descriptor)) channel->leave_wait();
}

int Service::command(int descriptor, std::span<const std::byte> bytes) {
  auto lock = lock_running();
  const std::shared_ptr<Channel> channel = channel_of(descriptor);
  if (!channel) return EBADF;
  rdma_ucm_cmd_hdr header;
  if (bytes.size() < sizeof header) return EINVAL;
  __builtin_memcpy(&header, bytes.data(), sizeof header);
  if (sizeof header + header.in > bytes.size()) return EINVAL;
  const int error =
      dispatch(header.cmd, channel, bytes.subspan(sizeof header, header.in), header.out);
  end_command(lock);
  return error;
}

int Service::take_event(int descriptor, std::span<const std::byte> bytes) {
  const auto command = read<rdma_ucm_get_event>(bytes.subspan(sizeof(rdma_ucm_cmd_hdr)));
  const auto header = read<rdma_ucm_cmd_hdr>(bytes);
  const auto lock = lock_running();
  const std::shared_ptr<Channel> channel = channel_of(descriptor);
  if (!channel) return EBADF;
  QueuedEvent event;
  if (!channel->pop(&event)) return EAGAIN;
  if (const auto id = ids_.find(event.id); id != ids_.end()) {
    ++id->second.events_reported;
    if (event.new_id != 0) ++id->second.backlog;
    if (const auto group = id->second.groups.find(event.group); group != id->second.groups.end())
      ++group->second.events_reported;
  }
  respond(command.response, event.response, header.out);
  return 0;
}

// --- Addresses of both ends

void Service::refresh(Id& id) {
  if (!manager_ || id.comm == 0) return;
  const cm::Connection* c = manager_->find(id.comm);
  if (c == nullptr) return;
  port::Address from = sockets_.current(c->from, id.device.netdev);
  port::Address to = c->to;
  Devices::QpPlace place;
  if (id.qpn != 0 && devices_.find_qp(id.device, id.qpn, &place) && place.peer != port::Address{}) {
    to = place.peer;
  }
  manager_->set_addresses(id.comm, from, to);
}

void Service::qp_destroyed(const std::string& device, std::uint32_t qpn) {
  std::lock_guard lock(mutex_);
  for (auto& [handle, id] : ids_) {
    if (id.comm != 0 && id.qpn == qpn && id.device.name == device) refresh(id);
  }
}

void Service::flush() {
  if (!manager_ || stopped_) return;
  refresh_sockets();
  cm::Event event;
  while (manager_->next_event(&event)) deliver(event);
  cm::Datagram datagram;
  while (manager_->next_datagram(&datagram)) {
    if (Id* id = datagram.id != 0 ? find_by_comm(datagram.id) : nullptr) {
      refresh(*id);
      if (const cm::Connection* c = manager_->find(datagram.id)) {
        datagram.from = c->from;
        datagram.to = c->to;
      }
    }
    sockets_.send(datagram);
  }
  kick();
}

// --- The thread

void Service::kick() {
  const std::uint64_t one = 1;
  const int event = event_;
  if (event >= 0 && started_ && !::pthread_equal(thread_, ::pthread_self())) {
    [[maybe_unused]] const ssize_t written = ::write(event, &one, sizeof one);
  }
}

int Service::start_thread() {
  if (started_) return 0;
  event_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (event_ < 0) return errno;
  const int error = start_own_thread(&thread_, thread_main, this);
  started_ = error == 0;
  return error;
}

void* Service::thread_main(void* self) {
  ::pthread_setname_np(::pthread_self(), "ferry-cm");
  static_cast<Service*>(self)->run();
  return nullptr;
}

bool Service::has_interest() const {
  if (yields_ > 0 || !manager_) return false;
  if (manager_->size() > 0) return true;
  return std::any_of(ids_.begin(), ids_.end(),
                     [](const auto& e) { return e.second.state == Id::State::kListening; });
}

void Service::run() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (stopped_) {
      parked_ = true;
      changed_.notify_all();
      changed_.wait(lock, [this] { return !stopped_ || ending_; });
      parked_ = false;
      continue;
    }
    // Out of memory is no reason to take the program down: the next turn may have more.
    try {
      work(lock);
    } catch (...) {
      if (!lock.owns_lock()) lock.lock();
    }
  }
}

// Opens or gives up sockets if the interest in UDP port 4791 has changed, or if some are missing
// and are to be tried again now.
void Service::refresh_sockets() {
  const bool holds = has_interest();
  if (!manager_ || (holds == holding_ && retry_at_ > now())) return;
  retry_at_ = sockets_.refresh(holds) ? now() + kRetry : cm::kNever;
  holding_ = holds;
}

// Waits until the thread has left its sleep on the sockets: the kernel keeps a closed socket as
// long as a thread sleeps on it.
void Service::leave_sleep(std::unique_lock<std::mutex>& lock) {
  kick();
  const std::uint64_t sleep = sleeps_;
  changed_.wait(lock, [&] { return !polling_ || sleeps_ != sleep; });
}

// Makes sure that a name which the command gave up is free for others when the command returns.
void Service::end_command(std::unique_lock<std::mutex>& lock) {
  flush();
  if (std::exchange(name_was_closed_, false)) leave_sleep(lock);
}

void Service::work(std::unique_lock<std::mutex>& lock) {
  refresh_sockets();
  std::vector<pollfd> descriptors{{event_, POLLIN, 0}};
  sockets_.add_to(&descriptors);
  cm::Time until = std::min(retry_at_, look_at_);
  if (manager_) until = std::min(until, manager_->next_deadline());
  const cm::Time wait = until == cm::kNever ? cm::Time{0} : std::max(until - now(), cm::Time{0});
  const timespec timeout{wait.count() / 1000000000, wait.count() % 1000000000};
  polling_ = true;
  ++sleeps_;
  lock.unlock();
  const int ready = ::ppoll(descriptors.data(), descriptors.size(),
                            until == cm::kNever ? nullptr : &timeout, nullptr);
  lock.lock();
  polling_ = false;
  changed_.notify_all();
  if (ready > 0 && descriptors[0].revents != 0) {
    std::uint64_t count;
    [[maybe_unused]] const ssize_t taken = ::read(descriptors[0].fd, &count, sizeof count);
  }
  if (stopped_ || ending_) return;
  look_for_next_hops();
  if (!manager_) return;
  if (sockets_.port_was_freed()) retry_at_ = now();
  take_messages();
  manager_->handle_timeouts(now());
  flush();
}

void Service::take_messages() {
  if (!manager_) return;
  std::vector<cm::Datagram> datagrams;
  std::vector<gsi::WireSocket::Failure> failures;
  sockets_.receive(&datagrams, &failures);
  for (const cm::Datagram& datagram : datagrams) manager_->handle(datagram, now());
  for (const auto& [to, error] : failures) manager_->failed(to, error, now());
}

Service::Yield::Yield(Service* service) : service_(service) {
  if (service_ == nullptr) return;
  std::unique_lock lock(service_->mutex_);
  ++service_->yields_;
  service_->holding_ = false;
  service_->take_messages();  // what waits in the socket
  service_->sockets_.stop_holding();
  service_->flush();
  service_->leave_sleep(lock);
}

Service::Yield::~Yield() {
  if (service_ == nullptr) return;
  std::lock_guard lock(service_->mutex_);
  --service_->yields_;
  service_->holding_ = false;
  service_->kick();
}

// --- A move, and the end

void Service::stop() {
  std::unique_lock lock(mutex_);
  if (!started_ || stopped_) return;
  for (auto& [handle, id] : ids_) refresh(id);
  flush();
  stopped_ = true;
  stopped_at_ = now();
  kick();
  changed_.wait(lock, [this] { return parked_; });
  sockets_.close();
  ::close(event_.exchange(-1));
}

void Service::resume() {
  std::lock_guard lock(mutex_);
  if (!stopped_) return;
  event_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  for (auto& [descriptor, channel] : channels_) channel->restored();
  stopped_ = false;
  retry_at_ = now();
  const cm::Time missed = now() - stopped_at_;
  for (const std::uint32_t handle : resolving_) {
    Id& id = ids_.at(handle);
    id.resolve_until += missed;
    id.ask_at = now();  // this host's kernel was never asked
  }
  if (!resolving_.empty()) look_at_ = now();
  if (manager_) {
    manager_->shift_time(missed);
    holding_ = has_interest();
    if (!sockets_.refresh(holding_)) retry_at_ = cm::kNever;
  }
  flush();
  changed_.notify_all();
}

void Service::abandon_in_child() {
  sockets_.close();
  channels_.clear();
  if (event_ >= 0) ::close(event_);
}

void Service::leave() {
  // The holder of the lock may never give it back, at the end; our thread and commands soon do.
  std::unique_lock lock(mutex_, std::try_to_lock);
  for (int tries = 0; !lock.owns_lock() && tries < 1000; ++tries) {
    const timespec pause{0, 1000000};
    ::nanosleep(&pause, nullptr);
    [[maybe_unused]] const bool got = lock.try_lock();
  }
  if (!lock.owns_lock() || stopped_) return;
  while (!ids_.empty()) destroy(ids_.begin()->second);
  flush();
  // After the end nobody repeats a DREQ that was lost. While this thread waits, ours does.
  changed_.wait_for(lock, kFarewell,
                    [this] { return !manager_ || !manager_->awaits_disconnect(); });
}

}  // namespace ferry::rdmacm
