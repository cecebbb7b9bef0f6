#include "precopy/page_server.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

namespace ferry::precopy {
namespace {

constexpr std::uint64_t kChunk = 2ull << 20;  // bytes copied by one call
constexpr unsigned kMostThreads = 4;
constexpr std::uint64_t kLong =
    1ull << 20;  // bytes of a range that may be filled in later: stacks, and the
                 // program's own structures, mostly are not so long
constexpr std::uint64_t kWorthLater = 16ull << 20;  // less takes some 8 ms at once

[[noreturn]] void raise(const std::string& what, int error) {
  throw std::runtime_error(what + ": " + std::strerror(error));
}

// Whether the userfaultfd tells of what its process does to its memory, besides of faults.
bool tells_of_all(int userfaultfd) {
  constexpr std::uint64_t kEvents = UFFD_FEATURE_EVENT_FORK | UFFD_FEATURE_EVENT_REMAP |
                                    UFFD_FEATURE_EVENT_REMOVE | UFFD_FEATURE_EVENT_UNMAP;
  // "API:\taa:FEATURES:IOCTLS"
  std::ifstream facts("/proc/self/fdinfo/" + std::to_string(userfaultfd));
  for (std::string line; std::getline(facts, line);) {
    if (!line.starts_with("API:")) continue;
    const auto colon = line.find(':', 4);
    if (colon == std::string::npos) return false;
    return (std::strtoull(line.c_str() + colon + 1, nullptr, 16) & kEvents) == kEvents;
  }
  return false;
}

}  // namespace

PageServer::PageServer(const std::string& directory, const PageStore& store,
                       std::map<std::int32_t, PageRanges> pages)
    : store_(store), pages_(std::move(pages)), socket_(directory) {
  store_.need(pages_);
  wake_ = ::eventfd(0, EFD_CLOEXEC);
  server_ = std::thread([this] { serve(); });
}

PageServer::~PageServer() {
  end();
  ::close(wake_);
}

// Serves nothing any more: pages that were not filled in would be zero.
void PageServer::end() {
  if (!server_.joinable()) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof one);
  server_.join();
  userfaultfds_.clear();
}

void PageServer::fail(const std::string& why) {
  std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = why;
  changed_.notify_all();
}

void PageServer::take_process() {
  auto process = socket_.take();
  if (!process) return;
  std::lock_guard lock(mutex_);
  userfaultfds_.emplace(process->pid, std::move(process->userfaultfd));
  changed_.notify_all();
}

void PageServer::serve() {
  for (;;) {
    std::vector<pollfd> descriptors{{wake_, POLLIN, 0}, {socket_.descriptor(), POLLIN, 0}};
    std::vector<std::int32_t> processes;
    for (const auto& [process, userfaultfd] : userfaultfds_) {
      descriptors.push_back({userfaultfd.get(), POLLIN, 0});
      processes.push_back(process);
    }
    if (::poll(descriptors.data(), descriptors.size(), -1) < 0) continue;
    if (descriptors[0].revents != 0) return;
    try {
      if (descriptors[1].revents != 0) take_process();
      for (std::size_t i = 2; i < descriptors.size(); ++i) {
        if (descriptors[i].revents != 0) serve_fault(processes[i - 2], descriptors[i].fd);
      }
    } catch (const std::exception& failure) {
      fail(failure.what());
    }
  }
}

// Fills in a page that the restore itself touches.
void PageServer::serve_fault(std::int32_t process, int userfaultfd) {
  uffd_msg message{};
  if (::read(userfaultfd, &message, sizeof message) != sizeof message) return;
  if (message.event != UFFD_EVENT_PAGEFAULT) {
    throw std::runtime_error("a restored process changes its memory before it goes on");
  }
  const std::uint64_t page = message.arg.pagefault.address / kPage * kPage;
  const auto mine = pages_.find(process);
  if (mine != pages_.end() && mine->second.contains(page, page + kPage)) {
    copy(process, userfaultfd, page, page + kPage);
    return;
  }
  uffdio_zeropage zero{{page, kPage}, 0, 0};
  if (::ioctl(userfaultfd, UFFDIO_ZEROPAGE, &zero) != 0 && errno != EEXIST) {
    raise("cannot fill in a page of a restored process", errno);
  }
}

void PageServer::copy(std::int32_t process, int userfaultfd, std::uint64_t start,
                      std::uint64_t end) const {
  for (std::uint64_t chunk = kChunk; start < end;) {
    const auto bytes = store_.get(process, start, std::min(end, start + chunk));
    uffdio_copy request{start, reinterpret_cast<std::uint64_t>(bytes.data()), bytes.size(), 0, 0};
    const int result = ::ioctl(userfaultfd, UFFDIO_COPY, &request);
    if (request.copy > 0) start += static_cast<std::uint64_t>(request.copy);
    if (result == 0 || errno == EAGAIN || request.copy > 0) {
      chunk = kChunk;
      continue;
    }
    if (errno == ENOENT && bytes.size() > kPage) {  // the kernel copies into one mapping at a time
      chunk = bytes.size() / 2 / kPage * kPage;
      continue;
    }
    // The page was touched, and the other thread has filled it in before.
    if (errno != EEXIST) raise("cannot fill in the memory of a restored process", errno);
    uffdio_range range{start, kPage};
    ::ioctl(userfaultfd, UFFDIO_WAKE, &range);
    start += kPage;
  }
}

// Gives the userfaultfds by process.
std::map<std::int32_t, int> PageServer::wait_for_processes(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  const bool all = changed_.wait_for(lock, limit, [this] {
    return !failure_.empty() ||
           std::all_of(pages_.begin(), pages_.end(),
                       [this](const auto& entry) { return userfaultfds_.contains(entry.first); });
  });
  if (!failure_.empty()) throw std::runtime_error(failure_);
  if (!all) throw std::runtime_error("criu restore does not ask for the pages of each process");
  std::map<std::int32_t, int> userfaultfds;
  for (const auto& [process, userfaultfd] : userfaultfds_) {
    userfaultfds.emplace(process, userfaultfd.get());
  }
  return userfaultfds;
}

// The long ranges.
PageRanges PageServer::later_of(std::int32_t process, int userfaultfd) const {
  PageRanges later;
  if (!tells_of_all(userfaultfd)) return later;
  for (const auto& [start, end] : pages_.at(process)) {
    if (end - start >= kLong) later.add(start, end);
  }
  return later;
}

std::vector<PageServer::Later> PageServer::fill(std::chrono::milliseconds limit) {
  const auto userfaultfds = wait_for_processes(limit);
  std::map<std::int32_t, PageRanges> later;
  std::uint64_t bytes = 0;
  for (const auto& [process, ranges] : pages_) {
    bytes +=
        later.emplace(process, later_of(process, userfaultfds.at(process))).first->second.bytes();
  }
  if (bytes < kWorthLater) later.clear();
  std::vector<Piece> pieces;
  std::vector<Later> owed;
  for (const auto& [process, ranges] : pages_) {
    PageRanges now = ranges;
    const auto left = later.find(process);
    if (left != later.end() && !left->second.empty()) {
      now.remove(left->second);
      owed.push_back(
          {process, UniqueFd(::fcntl(userfaultfds.at(process), F_DUPFD_CLOEXEC, 0)), left->second});
    }
    cut(process, userfaultfds.at(process), now, &pieces);
  }
  copy_all(pieces);
  end();
  std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw std::runtime_error(failure_);
  return owed;
}

void PageServer::fill_now(const std::vector<Later>& later) {
  std::vector<Piece> pieces;
  for (const auto& [process, userfaultfd, pages] : later)
    cut(process, userfaultfd.get(), pages, &pieces);
  copy_all(pieces);
  std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw std::runtime_error(failure_);
}

void PageServer::cut(std::int32_t process, int userfaultfd, const PageRanges& pages,
                     std::vector<Piece>* pieces) {
  for (const auto& [start, end] : pages) {
    for (std::uint64_t at = start; at < end; at += kChunk) {
      pieces->push_back({process, userfaultfd, at, std::min(end, at + kChunk)});
    }
  }
}

// By several threads.
void PageServer::copy_all(const std::vector<Piece>& pieces) {
  std::atomic<std::size_t> next{0};
  const auto run = [&] {
    try {
      for (std::size_t i; (i = next++) < pieces.size();) {
        copy(pieces[i].process, pieces[i].userfaultfd, pieces[i].start, pieces[i].end);
      }
    } catch (const std::exception& failure) {
      fail(failure.what());
    }
  };
  std::vector<std::thread> helpers;
  const unsigned threads = std::clamp(std::thread::hardware_concurrency(), 1u, kMostThreads);
  for (unsigned i = 1; i < threads && i < pieces.size(); ++i) helpers.emplace_back(run);
  run();
  for (auto& helper : helpers) helper.join();
}

}  // namespace ferry::precopy
