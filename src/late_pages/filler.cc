#include "late_pages/filler.h"

#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "late_pages/probe.h"

namespace ferry::late_pages {
namespace {

using precopy::kPage;

// Bytes that are filled in where a thread waits for a page: twice as many each time that one goes on where the last
// ones end, so that a device's memory region is pinned as fast as its pages can be filled in.
constexpr std::uint64_t kLeastAhead = 64 << 10, kMostAhead = 2 << 20;
constexpr std::uint64_t kChunk = 256 << 10;  // by one call else: as long a thread may have to wait
constexpr int kPauseMs = 1;                  // when nothing can be filled in
// A thread whose event was read goes on, and may begin the next operation at once: in between is the time to fill in.
constexpr std::chrono::microseconds kBetween{200};
constexpr std::chrono::seconds kOutOfMemory{60};
constexpr std::chrono::milliseconds kUntouched{200};

[[noreturn]] void fail(const char* what) {
  throw std::runtime_error(std::string("cannot ") + what + ": " + std::strerror(errno));
}

void wake(int userfaultfd, std::uint64_t start, std::uint64_t end) {
  uffdio_range range{start, end - start};
  ::ioctl(userfaultfd, UFFDIO_WAKE, &range);
}

// The ioctl's result, once no event is outstanding, or EAGAIN in errno after a while.
template <typename Request>
int when_settled(int userfaultfd, unsigned long what, Request* request) {
  const auto deadline = std::chrono::steady_clock::now() + kBetween;
  for (;;) {
    Request tried = *request;
    const int result = ::ioctl(userfaultfd, what, &tried);
    const int error = errno;
    if (result == 0 || error != EAGAIN || std::chrono::steady_clock::now() >= deadline) {
      *request = tried;
      errno = error;
      return result;
    }
    if constexpr (requires { tried.copy; }) {
      if (tried.copy > 0) {  // a part of it
        *request = tried;
        return result;
      }
    }
  }
}

}  // namespace

Filler::Filler(std::list<Process> processes, std::function<void(int userfaultfd)> forked)
    : forked_(std::move(forked)) {
  for (auto& process : processes) works_.emplace_back(std::move(process));
}

bool Filler::is_done() const {
  return std::all_of(works_.begin(), works_.end(),
                     [](const Work& work) { return work.process.lacking.empty(); });
}

// A process that has all of its pages is served until all processes have: others have its userfaultfd as well, so that
// it would wait for ever.
void Filler::run() {
  const auto begin = Clock::now() + kUntouched;
  for (int pause = 0; !is_done();) {
    read_events(pause);
    pause = kPauseMs;
    const bool is_child_next = std::all_of(works_.begin(), works_.end(), [](const Work& work) {
      return work.is_child || work.process.lacking.empty();
    });
    const bool fills_all = is_touched_ || Clock::now() >= begin;
    for (auto& work : works_) {
      const bool all = fills_all && (!work.is_child || is_child_next);
      if (!work.waits_for_parent && fill_some(work, all) == Step::kDone) pause = 0;
    }
    works_.remove_if([](const Work& work) {
      return work.is_over && work.children.empty() && !work.waits_for_parent;
    });
  }
}

void Filler::read_events(int timeout_ms) {
  std::vector<pollfd> descriptors;
  std::vector<Work*> works;
  for (auto& work : works_) {
    descriptors.push_back({work.process.userfaultfd.get(), POLLIN, 0});
    works.push_back(&work);
  }
  if (::poll(descriptors.data(), descriptors.size(), timeout_ms) <= 0) return;
  for (std::size_t i = 0; i < works.size(); ++i) {
    if (descriptors[i].revents == 0) continue;
    std::array<uffd_msg, 16> messages;
    const ssize_t read = ::read(descriptors[i].fd, messages.data(), sizeof messages);
    if (read < 0 && (errno == EMFILE || errno == ENFILE)) {
      drop_ended();  // the event of a child stays, and so its parent waits, until there is a descriptor for it
      continue;
    }
    if (read < 0 && errno != EAGAIN && errno != EINTR) fail("read what a process does");
    for (ssize_t k = 0; k < read / static_cast<ssize_t>(sizeof messages[0]); ++k) {
      take(*works[i], messages[static_cast<std::size_t>(k)]);
    }
  }
}

void Filler::drop_ended() {
  for (auto& work : works_) {
    if (!work.is_child || work.is_over) continue;
    if (probe(work.process.userfaultfd.get(), kAnywhere) != Probed::kNoMemory) continue;
    end(work);
    work.process.userfaultfd.reset();
  }
}

// The process has ended, or executes another program.
void Filler::end(Work& work) {
  settle(work);
  work.process.lacking = {};
  work.awaited.clear();
  work.is_over = true;
}

void Filler::take(Work& work, const uffd_msg& message) {
  auto& process = work.process;
  if (message.event == UFFD_EVENT_PAGEFAULT) {
    is_touched_ = true;
    work.awaited.push_back(message.arg.pagefault.address / kPage * kPage);
    return;
  }
  work.is_open = true;
  switch (message.event) {
    case UFFD_EVENT_FORK: add_child(work, UniqueFd(static_cast<int>(message.arg.fork.ufd))); break;
    case UFFD_EVENT_REMAP: {
      const std::uint64_t from = message.arg.remap.from, to = message.arg.remap.to;
      const std::uint64_t length = message.arg.remap.len;
      work.has_unmapped = true;
      process.lacking.moved(from, to, length, [&](std::uint64_t page) {
        return process.pid != 0 && is_registered_in(process.pid, page);
      });
      for (auto* child : work.children) {
        child->process.lacking.parent_moved(from, to, length, [&](std::uint64_t page) {
          return probe(child->process.userfaultfd.get(), page) == Probed::kMapped;
        });
      }
      wake(process.userfaultfd.get(), from, from + length);
      break;
    }
    case UFFD_EVENT_REMOVE:
    case UFFD_EVENT_UNMAP: {
      const std::uint64_t start = message.arg.remove.start, end = message.arg.remove.end;
      if (message.event == UFFD_EVENT_REMOVE) {
        process.lacking.removed(start, end);
      } else {
        work.has_unmapped = true;
        process.lacking.unmapped(start, end);
        for (auto* child : work.children) child->process.lacking.parent_unmapped(start, end);
      }
      // Threads that wait there look again: for zeros, or for SIGSEGV.
      wake(process.userfaultfd.get(), start, end);
      break;
    }
    default: throw std::runtime_error("the kernel tells of something else than memory");
  }
}

void Filler::add_child(Work& work, UniqueFd userfaultfd) {
  forked_(userfaultfd.get());
  Lacking lacking = work.process.lacking.forked(
      [&](std::uint64_t page) { return probe(userfaultfd.get(), page) == Probed::kMapped; });
  Work& child = works_.emplace_back(
      Process{0, std::move(userfaultfd), work.process.content, std::move(lacking)});
  child.is_child = child.has_unmapped = child.waits_for_parent = true;
  work.children.push_back(&child);
}

// No event of this process is outstanding.
void Filler::settle(Work& work) {
  if (!work.is_open) return;
  work.is_open = false;
  work.process.lacking.settle();
  for (auto* child : work.children) child->waits_for_parent = false;
  work.children.clear();
}

// `all`: what nobody waits for as well.
Filler::Step Filler::fill_some(Work& work, bool all) {
  auto& lacking = work.process.lacking;
  if (!work.awaited.empty()) return fill_awaited(work);
  if (all && !lacking.empty()) return copy(work, *lacking.next(work.at), kChunk);
  if (!work.is_open) return Step::kNothing;
  const Probed probed = probe(work.process.userfaultfd.get(), work.at);
  if (probed == Probed::kOutstanding) return Step::kHeldUp;
  settle(work);
  if (probed == Probed::kNoMemory) end(work);
  return Step::kDone;
}

Filler::Step Filler::fill_awaited(Work& work) {
  const std::uint64_t page = work.awaited.front();
  const auto range = work.process.lacking.find(page);
  const std::uint64_t ahead =
      page == work.awaited_end ? std::min(2 * work.ahead, kMostAhead) : kLeastAhead;
  const Step step = range ? copy(work, *range, ahead) : fill_with_zeros(work, page);
  if (step != Step::kDone) return step;
  if (range) {
    work.awaited_end = work.at;
    work.ahead = ahead;
  }
  if (!work.awaited.empty()) work.awaited.pop_front();
  return step;
}

Filler::Step Filler::copy(Work& work, const Range& range, std::uint64_t most) {
  auto& [pid, userfaultfd, content, lacking] = work.process;
  const auto is_there = [&](std::uint64_t end) {
    work.at = end;
    work.out_of_memory.reset();
    lacking.filled(range.start, end);
    return Step::kDone;
  };
  auto bytes = content->get(range.content, range.content + std::min(most, range.end - range.start));
  for (;;) {
    uffdio_copy request{range.start, reinterpret_cast<std::uint64_t>(bytes.data()), bytes.size(), 0,
                        0};
    const int result = when_settled(userfaultfd.get(), UFFDIO_COPY, &request);
    const int error = result == 0 ? 0 : errno;
    if (error != EAGAIN) settle(work);
    if (request.copy > 0) return is_there(range.start + static_cast<std::uint64_t>(request.copy));
    switch (error) {
      case 0: throw std::runtime_error("the kernel fills in nothing");
      case EAGAIN: return Step::kHeldUp;
      case ENOMEM:
        if (!work.out_of_memory) work.out_of_memory = Clock::now();
        errno = error;
        if (Clock::now() - *work.out_of_memory > kOutOfMemory) fail("fill in a page");
        return Step::kHeldUp;
      case ESRCH: end(work); return Step::kDone;
      case EEXIST:  // it was touched before the process went on, or by who holds the memory
        wake(userfaultfd.get(), range.start, range.start + kPage);
        return is_there(range.start + kPage);
      case ENOENT:
        if (bytes.size() > kPage) {  // the kernel copies into one mapping at a time
          bytes = bytes.first(bytes.size() / 2 / kPage * kPage);
          break;
        }
        errno = error;
        if (!work.has_unmapped && !range.is_doubtful) fail("fill in a page");
        wake(userfaultfd.get(), range.start, range.start + kPage);
        return is_there(range.start + kPage);
      default: errno = error; fail("fill in a page");
    }
  }
}

// A page that has had no content, or none since the process has dropped it.
Filler::Step Filler::fill_with_zeros(Work& work, std::uint64_t page) {
  const int userfaultfd = work.process.userfaultfd.get();
  uffdio_zeropage request{{page, kPage}, 0, 0};
  const int result = when_settled(userfaultfd, UFFDIO_ZEROPAGE, &request);
  const int error = result == 0 ? 0 : errno;
  if (error != EAGAIN) settle(work);
  switch (error) {
    case 0: return Step::kDone;
    case EAGAIN:
    case ENOMEM: return Step::kHeldUp;
    case ESRCH: end(work); return Step::kDone;
    case EEXIST:
    case ENOENT: wake(userfaultfd, page, page + kPage); return Step::kDone;
    default: errno = error; fail("fill in an empty page");
  }
}

}  // namespace ferry::late_pages
