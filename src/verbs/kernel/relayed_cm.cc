#include "verbs/kernel/relayed_cm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>

#include "verbs/chosen_devices.h"
#include "verbs/entry.h"
#include "verbs/faults.h"
#include "verbs/kernel/not_cancelled.h"
#include "verbs/kernel/one_thread.h"
#include "verbs/kernel/relay_devices.h"
#include "verbs/process.h"
#include "verbs/restart.h"
#include "verbs/stock.h"

namespace ferry::verbs {
namespace {

constexpr char kPath[] = "/dev/infiniband/rdma_cm";

// The kernel takes commands only from a thread that has the credentials, as an object of the kernel's, of the one that
// has opened the file (ib_safe_file_access()). The threads of a process share that object, until CRIU has restored
// them: from then on one thread opens and writes.
std::atomic<OneThread*> the_thread{nullptr};  // null in a child after fork(), until there is a need

// Null: any thread may open a file and write to it.
OneThread* thread_for_files() {
  if (std::atomic_ref<std::uint32_t>(control_block.freezes).load() == 0) return nullptr;
  OneThread* there = the_thread.load();
  if (there != nullptr) return there;
  auto* fresh = new OneThread;
  if (the_thread.compare_exchange_strong(there, fresh)) return fresh;
  delete fresh;
  return there;
}

class File final : public relay::KernelFile {
 public:
  File(int descriptor, OneThread* thread)
      : descriptor_(descriptor), thread_(thread), number_(number_of(descriptor)) {}
  // The program may have closed the descriptor (close_range()), and another file may have its number.
  ~File() override {
    if (number_of(descriptor_) == number_) FERRY_NEXT(close)(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int descriptor() const override { return descriptor_; }
  dev_t number() const override { return number_; }
  int command(std::span<const std::byte> command) override {
    int error = 0;
    const auto write = [&] {
      const auto written = FERRY_NEXT(write)(descriptor_, command.data(), command.size());
      error = written >= 0 ? 0 : errno;
    };
    if (thread_ == nullptr) {
      write();
      return error;
    }
    if (thread_ != the_thread.load()) return EACCES;  // of the parent's
    const int missing = thread_->run(write);
    return missing != 0 ? missing : error;
  }

 private:
  static dev_t number_of(int descriptor) {
    struct stat status {};
    return FERRY_NEXT(fstat)(descriptor, &status) == 0 ? status.st_rdev : 0;
  }

  const int descriptor_;
  OneThread* const thread_;  // null: any thread may write
  const dev_t number_;
};

class System final : public relay::Kernel {
 public:
  std::unique_ptr<relay::KernelFile> open(int* error) override {
    int descriptor = -1;
    const auto open = [&] {
      descriptor = FERRY_NEXT(open)(kPath, O_RDWR | O_CLOEXEC | O_NONBLOCK);
      *error = descriptor < 0 ? errno : 0;
    };
    OneThread* const thread = thread_for_files();
    if (thread == nullptr) {
      open();
    } else if (const int missing = thread->run(open)) {
      *error = missing;
    }
    return descriptor < 0 ? nullptr : std::make_unique<File>(descriptor, thread);
  }
};

class RelayHooks final : public agent::Companion {
 public:
  explicit RelayHooks(relay::Relay& relay) : relay_(relay) {}
  int stop(std::chrono::steady_clock::time_point deadline) override {
    return relay_.stop(deadline);
  }
  void park() override { relay_.park(); }
  int resume() override { return relay_.resume(); }
  void tend() override { relay_.tend(); }
  std::vector<int> awaited() override { return relay_.awaited(); }
  agent::RdmaCmStatus status() override { return relay_.status(); }

 private:
  relay::Relay& relay_;
};

// Made when the program first opens rdma_cm; never destroyed, like Process.
std::atomic<relay::Relay*> the_relay{nullptr};
std::atomic<bool> is_companion{false};  // of this process

relay::Relay& relay() {
  relay::Relay* there = relay_if_any();
  if (there == nullptr) {
    auto* fresh = new relay::Relay(*new System, *new RelayDevices);
    if (the_relay.compare_exchange_strong(there, fresh)) {
      there = fresh;
    } else {
      delete fresh;
    }
  }
  if (!is_companion.exchange(true)) {
    install_fault_handlers();  // for Interruption: the program may open no device
    Process& p = process();
    p.registry.set_companion(new RelayHooks(*there));
    p.agent.start();
  }
  return *there;
}

}  // namespace

bool relays_rdma_cm() {
  return !chosen_names().empty();
}

int open_relayed_cm(int flags) {
  NotCancelled guard;
  int descriptor = -1;
  const int error = guarded([&] {
    descriptor = relay().open(flags);
    return descriptor < 0 ? errno : 0;
  });
  return error != 0 ? minus_one_or_errno(error) : descriptor;
}

relay::Relay* relay_if_any() {
  return the_relay.load(std::memory_order_acquire);
}

// Programs cancel threads that wait for an event, so nothing in this frame may need to be undone at poll().
int run_relayed(relay::Relay& relay, int descriptor, const void* buffer, std::size_t size,
                bool is_get_event) {
  for (;;) {
    int error = 0;
    {
      NotCancelled guard;
      error = guarded([&] {
        return relay.command(descriptor, {static_cast<const std::byte*>(buffer), size});
      });
    }
    if (!is_get_event || error != EAGAIN) return error;
    if ((::fcntl(descriptor, F_GETFL) & O_NONBLOCK) != 0) return EAGAIN;
    pollfd channel{descriptor, POLLIN, 0};
    const Interruption interruption;
    if (::poll(&channel, 1, -1) < 0 && errno == EINTR && !interruption.would_restart())
      return EINTR;
  }
}

void relayed_cm_in_child() {
  the_thread.store(nullptr);
  is_companion.store(false);
}

}  // namespace ferry::verbs
