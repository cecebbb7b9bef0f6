#include "pipe/driver/records.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/failure.h"

namespace ferry::pipe {
namespace {

constexpr std::uint64_t kRecordsVersion = 1;

std::string boot() {
  std::string id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), id);
  return id;
}

}  // namespace

struct Records::Memory {
  std::uint64_t version;
  char boot[64];  // of which process numbers are
  std::atomic<std::uint64_t> sessions, orders;
  std::atomic<std::uint64_t> places;
  ConnectionRecord connections[kMost];
};

Records::Records() {
  void* memory = ::mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw Failure("no memory for records: " + error_text(errno));
  memory_ = static_cast<Memory*>(memory);
}

Records::Records(const std::string& file)
    : file_(file),
      descriptor_(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) {
  struct stat status {};
  if (!descriptor_ || ::fstat(descriptor_.get(), &status) != 0) {
    throw Failure("cannot open " + file + ": " + error_text(errno));
  }
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid() || (status.st_mode & 077) != 0) {
    throw Failure(file + " is not this user's alone; delete it");
  }
  struct flock whole {};
  whole.l_type = F_WRLCK;
  if (::fcntl(descriptor_.get(), F_SETLK, &whole) != 0) {
    throw Failure("another ferry-piped has " + file + "; stop that one first");
  }
  if (::ftruncate(descriptor_.get(), sizeof(Memory)) != 0) {
    throw Failure("cannot make " + file + " larger: " + error_text(errno));
  }
  void* memory =
      ::mmap(nullptr, sizeof(Memory), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_.get(), 0);
  if (memory == MAP_FAILED) throw Failure("cannot map " + file + ": " + error_text(errno));
  memory_ = static_cast<Memory*>(memory);
  const std::string now = boot();
  if (memory_->version == kRecordsVersion && now == memory_->boot) return;
  // Of another release or boot: no program has anything of it.
  if (::ftruncate(descriptor_.get(), 0) != 0 ||
      ::ftruncate(descriptor_.get(), sizeof(Memory)) != 0) {
    throw Failure("cannot empty " + file + ": " + error_text(errno));
  }
  std::strncpy(memory_->boot, now.c_str(), sizeof memory_->boot - 1);
  memory_->version = kRecordsVersion;
}

Records::~Records() {
  bool any = false;
  for (std::size_t place = 0; place < places(); ++place) {
    any |= memory_->connections[place].used != 0;
  }
  if (descriptor_ && !any) ::unlink(file_.c_str());
  ::munmap(memory_, sizeof(Memory));
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
