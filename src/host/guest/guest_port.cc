#include "host/guest/guest_port.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "base/log.h"
#include "host/guest/guest_timeline.h"
#include "host/guest/nic_keeper.h"
#include "host/guest/nics.h"
#include "host/guest/slots.h"
#include "host/guest/talk/lines.h"
#include "host/move/source/departures.h"
#include "host/peers/this_host.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBetweenOpens{1000}, kLook{200};
constexpr milliseconds kWriteLimit{5000};
constexpr milliseconds kBetweenLooks{20};  // at programs of a former ferryd

std::vector<std::string> macs_of(const google::protobuf::RepeatedPtrField<std::string>& nics) {
  return {nics.begin(), nics.end()};
}

void name_devices(const std::set<std::string>& devices, v1::GuestReply* reply) {
  for (const auto& device : devices) reply->add_devices(device);
}

void name_programs(const std::vector<v1::GuestProgram>& programs, v1::GuestReply* reply) {
  for (const auto& program : programs) *reply->add_programs() = program;
}

}  // namespace

GuestPort::GuestPort(const ThisHost& host, Detachments& detachments, const Departures& departures,
                     NicKeeper& keeper, Open open)
    : host_(host),
      detachments_(detachments),
      departures_(departures),
      keeper_(keeper),
      open_(std::move(open)) {
  keeper_.when_back([this](const Timeline::Span& configured) {
    if (const auto away = absence()) {
      away->timeline().add(configured);
      away->come_back();
    }
  });
  thread_ = std::thread([this] { run(); });
}

GuestPort::~GuestPort() {
  {
    std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
  keeper_.when_back({});
}

std::shared_ptr<Absence> GuestPort::absence() {
  std::lock_guard lock(mutex_);
  return absence_;
}

void GuestPort::pause(milliseconds time) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [this] { return is_ending_.load(); });
}

void GuestPort::run() {
  while (!is_ending_) {
    UniqueFd port = open_();
    if (!port) {
      pause(kBetweenOpens);
      continue;
    }
    if (!await_host(port.get())) return;
    Lines lines(std::move(port));
    try {
      serve(lines);
    } catch (const std::exception& failure) {
      log::debug("the host's ferryd: {}", failure.what());
      pause(kBetweenLooks);
    }
  }
}

// While the host's end is closed, a virtio port can be read at once, and gives nothing. Its driver wakes who waits for
// an edge. False: this ferryd ends.
bool GuestPort::await_host(int port) const {
  const UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event edges{};
  edges.events = EPOLLIN | EPOLLET;
  ::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, port, &edges);
  while (!is_ending_) {
    pollfd now{port, POLLIN, 0};
    if (::poll(&now, 1, 0) >= 0 && (now.revents & POLLHUP) == 0) return true;
    epoll_event event{};
    ::epoll_wait(epoll.get(), &event, 1, kLook.count());
  }
  return false;
}

void GuestPort::serve(Lines& lines) {
  v1::GuestRequest request, next;
  bool has_next = false;
  std::optional<std::uint64_t> latest;  // id: the host repeats a request until it has the answer
  while (!is_ending_) {
    if (!std::exchange(has_next, false) && !lines.read(&next, Lines::Clock::now() + kLook))
      continue;
    request = std::move(next);
    if (request.id() == latest) continue;
    latest = request.id();
    v1::GuestReply reply;
    reply.set_id(request.id());
    reply.set_version(host_.version);
    reply.set_host(host_.name);
    std::string told;
    const auto wait = [&](const v1::GuestReply& message) {
      while (lines.read(&next, Lines::Clock::now())) {
        has_next = next.id() != latest;
        if (has_next) throw Superseded();
      }
      if (message.waiting() == told) return;
      told = message.waiting();
      lines.write(message, Lines::Clock::now() + kWriteLimit);
    };
    try {
      answer(request, wait, &reply);
    } catch (const Superseded&) {
      continue;
    } catch (const std::exception& failure) {
      reply.set_failure(one_line(failure.what()));
    }
    lines.write(reply, Lines::Clock::now() + kWriteLimit);
  }
}

void GuestPort::answer(const v1::GuestRequest& request, const Wait& wait, v1::GuestReply* reply) {
  switch (request.request_case()) {
    case v1::GuestRequest::kLook: return look(request.look(), reply);
    case v1::GuestRequest::kLeave: return leave(request.leave(), wait, reply);
    case v1::GuestRequest::kReturn: return come_back(wait, reply);
    default: throw Failure("the guest's ferryd does not know this request");
  }
}

void GuestPort::look(const v1::GuestRequest::Look& request, v1::GuestReply* reply) {
  const auto devices = keeper_.devices_on(macs_of(request.nics()));
  name_devices(devices, reply);
  for (const auto& user : detachments_.look(devices)) {
    auto* program = reply->add_programs();
    program->set_pid(user.program.unit->root());
    program->set_name(user.program.unit->name());
    program->set_qps(static_cast<std::uint32_t>(user.qps));
  }
}

void GuestPort::leave(const v1::GuestRequest::Leave& request, const Wait& wait,
                      v1::GuestReply* reply) {
  if (request.limit_ms() == 0) throw Failure("malformed request: limit_ms is missing");
  if (const auto former = absence(); former && !former->is_over()) {
    throw Failure("the programs that have left their devices before are not back yet");
  }
  v1::GuestReply heard = *reply;
  heard.set_waiting("its programs have not left their devices yet");
  wait(heard);
  const auto macs = macs_of(request.nics());
  const auto devices = keeper_.devices_on(macs);
  name_devices(devices, reply);
  auto timeline = std::make_unique<Timeline>();
  {
    const auto step = timeline->step(kGuestFerrydLane, "notes how the NICs are configured");
    keeper_.note(macs);
  }
  std::shared_ptr<Absence> away;
  try {
    auto detachment = detachments_.begin(0, devices);
    {
      const auto step = timeline->step(kGuestFerrydLane, "has the programs leave their devices");
      detachment->leave();
    }
    away = std::make_shared<Absence>(std::move(detachment), std::move(timeline),
                                     milliseconds(request.limit_ms()));
  } catch (...) {
    keeper_.stay();
    throw;
  }
  {
    std::lock_guard lock(mutex_);
    absence_ = away;
  }
  try {
    const auto step = away->timeline().step(kGuestFerrydLane, "switches off the slots of the NICs");
    for (const auto& mac : macs) {
      if (const auto nic = nic_of(mac)) switch_off_slot(nic->name);
    }
  } catch (...) {
    away->may_end();
    away->come_back();
    keeper_.stay();
    throw;
  }
  away->may_end();
  name_programs(away->programs(), reply);
  told_spans_ = tell_spans(away->timeline(), 0, reply);
  log::info("{} programs have left {}: this machine is about to move", reply->programs_size(),
            fmt::join(devices, ", "));
}

void GuestPort::come_back(const Wait& wait, v1::GuestReply* reply) {
  const auto away = absence();
  if (away) away->come_back();
  keeper_.stay();
  if (!away) return await_former(wait, reply);
  std::string waiting;
  while (!away->await(&waiting, kLook)) {
    if (is_ending_) break;
    v1::GuestReply now = *reply;
    now.set_waiting(waiting.empty() ? "its programs are not back yet" : waiting);
    wait(now);
  }
  if (is_ending_ || host_.stopping) throw Failure("the guest's ferryd is ending");
  name_programs(away->programs(), reply);
  tell_spans(away->timeline(), told_spans_, reply);
}

// A former ferryd of this machine may have had programs leave, which come back by the journal.
void GuestPort::await_former(const Wait& wait, v1::GuestReply* reply) {
  for (; !is_ending_ && !host_.stopping; pause(kBetweenLooks)) {
    std::vector<std::string> away;
    for (const auto& former : departures_.formers()) {
      if (former->is_coming_back()) away.push_back(fmt::format("'{}'", former->program()));
    }
    if (away.empty()) return;
    v1::GuestReply now = *reply;
    now.set_waiting(
        fmt::format("{}, stopped by a former ferryd, come back", fmt::join(away, ", ")));
    wait(now);
  }
  throw Failure("the guest's ferryd is ending");
}

GuestPort::Open guest_port_at(const std::string& path) {
  return [path, warned = false]() mutable {
    UniqueFd port(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    if (!port && errno != ENOENT && !warned) {
      log::warn("cannot open {}: {}", path, error_text(errno));
      warned = true;
    }
    return port;
  };
}

}  // namespace ferry::host
