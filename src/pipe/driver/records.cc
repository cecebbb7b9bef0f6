#include "pipe/driver/records.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <tuple>

#include "base/failure.h"
#include "base/log.h"
#include "pipe/memory/pool.h"

namespace ferry::pipe {
namespace {

constexpr std::uint64_t kRecordsVersion = 1;
constexpr std::size_t kChunk = 1024;  // places that get room on the file system at a time
constexpr std::uint64_t kMostQueueMemory = std::uint64_t{1} << 30;

std::string boot() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id;
}

// A file of this user's, which nobody else reads or writes, and which has no other name: that would be of another file
// to which somebody has made a link.
bool is_own(const struct stat& status) {
  return S_ISREG(status.st_mode) && status.st_uid == ::geteuid() && (status.st_mode & 077) == 0 &&
         status.st_nlink <= 1;
}

void say_lost(const std::string& file, const std::string& why) {
  log::error("{} {}: connections of an earlier ferry-piped do not go on", file, why);
}

UniqueFd open_locked(const std::string& file) {
  for (;;) {
    struct stat status {};
    if (::lstat(file.c_str(), &status) == 0 && !is_own(status)) {
      say_lost(file, "is not a file of this user's alone");
      if (::unlink(file.c_str()) != 0) {
        throw Failure("cannot delete " + file + ": " + error_text(errno));
      }
    }
    UniqueFd descriptor(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!descriptor || ::fstat(descriptor.get(), &status) != 0) {
      throw Failure("cannot open " + file + ": " + error_text(errno));
    }
    if (!is_own(status)) throw Failure(file + " is not this user's alone; delete it");
    struct flock whole {};
    whole.l_type = F_WRLCK;
    if (::fcntl(descriptor.get(), F_SETLK, &whole) != 0) {
      throw Failure("another ferry-piped has " + file + "; stop that one first");
    }
    // Whoever had the lock may have deleted it meanwhile.
    if (::fstat(descriptor.get(), &status) == 0 && status.st_nlink != 0) return descriptor;
  }
}

bool is_flag(std::uint32_t number) {
  return number <= 1;
}

bool is_sound(const EndRecord& end, int side) {
  const std::uint32_t state = end.state;
  const bool may_wait = side == 1;
  if (state != EndRecord::kOpen && state != EndRecord::kClosed &&
      !(may_wait && state == EndRecord::kWaits)) {
    return false;
  }
  return end.process.pid > 0 && end.queues <= kMostQueueMemory && end.rings[0] <= kLargestRing &&
         end.rings[1] <= kLargestRing;
}

bool is_sound(const ConnectionRecord& record) {
  for (int side = 0; side < 2; ++side) {
    const auto family = record.addresses[side].family;
    const StreamRecord& stream = record.streams[side];
    if ((family != AF_INET && family != AF_INET6) || !is_sound(record.ends[side], side) ||
        !is_flag(stream.ended) || !is_flag(stream.read_closed) || !is_flag(stream.reset)) {
      return false;
    }
  }
  return true;
}

}  // namespace

struct Records::Memory {
  std::uint64_t version;
  char boot[64];  // of which process numbers are
  std::atomic<std::uint64_t> sessions, orders;
  std::atomic<std::uint64_t> places;
  ConnectionRecord connections[kMost];
};

void Records::map(int descriptor) {
  const int kind = descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
  void* memory = ::mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, kind, descriptor, 0);
  if (memory == MAP_FAILED) throw Failure("no memory for records: " + error_text(errno));
  memory_ = static_cast<Memory*>(memory);
}

Records::Records() : allocated_(kMost) {
  map(-1);
}

Records::Records(const std::string& file) : file_(file), descriptor_(open_locked(file)) {
  struct stat status {};
  ::fstat(descriptor_.get(), &status);
  const bool is_whole = status.st_size == static_cast<off_t>(sizeof(Memory));
  // No place without room is looked at: a page that finds none is SIGBUS.
  const auto begin = [&] {
    if (::ftruncate(descriptor_.get(), sizeof(Memory)) != 0 || !make_room(0)) {
      throw Failure("cannot write " + file + ": " + error_text(errno));
    }
    if (memory_ == nullptr) map(descriptor_.get());
  };
  if (is_whole) {
    begin();
    const std::string wrong = what_is_wrong();
    if (wrong.empty()) return;
    say_lost(file, wrong);
  } else if (status.st_size != 0) {
    say_lost(file, "has another size than that of this release");
  }
  if (::ftruncate(descriptor_.get(), 0) != 0) {
    throw Failure("cannot empty " + file + ": " + error_text(errno));
  }
  allocated_ = 0;
  begin();
  const std::string now = boot();
  std::strncpy(memory_->boot, now.c_str(), sizeof memory_->boot - 1);
  memory_->version = kRecordsVersion;
}

// Empty: nothing.
std::string Records::what_is_wrong() {
  const std::string now = boot();
  if (memory_->version != kRecordsVersion) return "is of another release";
  if (std::strncmp(memory_->boot, now.c_str(), sizeof memory_->boot) != 0) {
    return "is of another boot";
  }
  const std::string damaged = "is damaged";
  const std::size_t places = memory_->places;
  if (places > kMost || (places != 0 && !make_room(places - 1))) return damaged;
  std::set<std::tuple<Process, std::uint64_t, SocketId>> ends;
  for (std::size_t place = 0; place < places; ++place) {
    ConnectionRecord& record = memory_->connections[place];
    if (record.used == 0) continue;
    if (record.used != 1 || !is_sound(record)) return damaged;
    // A connection with an end that another one has as well does not go on.
    for (const EndRecord& end : record.ends) {
      const bool is_open = end.state == EndRecord::kOpen;
      if (is_open && !ends.emplace(end.process, end.session, end.socket).second) record.used = 0;
    }
  }
  return {};
}

Records::~Records() {
  bool any = false;
  for (std::size_t place = 0; place < places(); ++place) {
    any |= memory_->connections[place].used != 0;
  }
  if (descriptor_ && !any) ::unlink(file_.c_str());
  ::munmap(memory_, sizeof(Memory));
}

bool Records::make_room(std::size_t place) {
  if (place < allocated_) return true;
  const std::size_t wanted = std::min((place / kChunk + 1) * kChunk, kMost);
  const std::size_t size = offsetof(Memory, connections) + wanted * sizeof(ConnectionRecord);
  errno = ::posix_fallocate(descriptor_.get(), 0, static_cast<off_t>(size));
  if (errno == 0) allocated_ = wanted;
  return place < allocated_;
}

ConnectionRecord& Records::at(std::uint16_t place) {
  if (place >= memory_->places) memory_->places = place + std::uint64_t{1};
  return memory_->connections[place];
}

std::size_t Records::places() const {
  return std::min<std::size_t>(memory_->places, kMost);
}

std::uint64_t Records::next_session() {
  return ++memory_->sessions;
}

std::uint64_t Records::next_order() {
  return ++memory_->orders;
}

}  // namespace ferry::pipe
