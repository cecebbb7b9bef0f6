#include "host/guest/nic_keeper.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/failure.h"
#include "base/json_text.h"
#include "base/log.h"
#include "host/guest/guest_timeline.h"
#include "host/journal/decision_log.h"

namespace ferry::host {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

UniqueFd news_of_interfaces() {
  UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
  sockaddr_nl name{};
  name.nl_family = AF_NETLINK;
  name.nl_groups = RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR;
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&name), sizeof name) != 0) {
    throw Failure(fmt::format("the kernel does not tell of interfaces: {}", error_text(errno)));
  }
  return socket;
}

std::optional<Nic> nic_of(const NicNote& note) {
  auto nic = host::nic_of(note.nic.mac);
  if (nic && note.is_hardware && !is_hardware(nic->name)) return std::nullopt;  // a VLAN, a bond
  return nic;
}

}  // namespace

NicKeeper::NicKeeper(Setup setup)
    : setup_(std::move(setup)),
      interfaces_(news_of_interfaces()),
      woken_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  load();
  thread_ = std::thread([this] { run(); });
}

NicKeeper::~NicKeeper() {
  is_ending_ = true;
  ::eventfd_write(woken_.get(), 1);
  thread_.join();
}

void NicKeeper::when_back(WhenBack call) {
  std::lock_guard lock(when_back_mutex_);
  when_back_ = std::move(call);
}

// {"nics":[{"name":"eth0","mac":"52:54:00:12:34:56",...}]}
void NicKeeper::load() {
  std::ifstream file(setup_.file);
  if (!file) return;
  try {
    const json all = json_of(file);
    for (const auto& each : all.at("nics")) {
      NicNote note = nic_note_of(each);
      // A machine that has been started anew is configured as at any start.
      if (note.boot == stamp_now().boot) kept_.push_back({std::move(note)});
    }
  } catch (const json::exception& error) {
    log::warn("{} is damaged, and ignored: {}", setup_.file, error.what());
  }
}

// Called with mutex_ held. Readers find the old file or the new one.
void NicKeeper::save() const {
  if (kept_.empty()) {
    ::unlink(setup_.file.c_str());
    return;
  }
  json nics = json::array();
  for (const auto& kept : kept_) nics.push_back(to_json(kept.note));
  const std::string text = json_text({{"nics", std::move(nics)}}) + "\n";
  const std::string next = setup_.file + ".new";
  const UniqueFd file(
      ::open(next.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, S_IRUSR | S_IWUSR));
  if (!file || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::fsync(file.get()) != 0 || ::rename(next.c_str(), setup_.file.c_str()) != 0 ||
      !sync_folder(std::filesystem::path(setup_.file).parent_path())) {
    throw Failure(fmt::format("cannot write {}: {}", setup_.file, error_text(errno)));
  }
}

std::set<std::string> NicKeeper::devices_on(const std::vector<std::string>& macs) const {
  std::set<std::string> devices;
  for (const auto& mac : macs) {
    const auto nic = host::nic_of(mac);
    if (!nic) continue;
    for (auto& device : rdma_devices_on(nic->name, setup_.sysfs)) {
      devices.insert(std::move(device.name));
    }
  }
  return devices;
}

void NicKeeper::note(const std::vector<std::string>& macs) {
  std::lock_guard lock(mutex_);
  for (const auto& each : macs) {
    const std::string mac = mac_text(each);
    const auto nic = host::nic_of(mac);
    if (!nic) {
      log::warn("this machine has no NIC {}", printable(mac));
      continue;
    }
    const auto former = std::find_if(kept_.begin(), kept_.end(),
                                     [&](const Kept& kept) { return kept.note.nic.mac == mac; });
    if (former == kept_.end()) {
      kept_.push_back({look_at_nic(*nic, setup_.sysfs)});
    } else if (former->held_until || former->note.nic.index == nic->index) {
      *former = {look_at_nic(*nic, setup_.sysfs)};
    } else {
      former->note.nic.index = nic->index;
      former->tries = 0;
      former->is_told = false;
    }
  }
  save();
}

void NicKeeper::stay() {
  std::lock_guard lock(mutex_);
  const auto staying = std::erase_if(kept_, [&](const Kept& kept) {
    const auto nic = nic_of(kept.note);
    if (!nic || nic->index != kept.note.nic.index) return false;
    report_failure([&] {
      const auto missing = missing_of(kept.note, look_at_nic(*nic, setup_.sysfs));
      if (missing.none()) return;
      const auto problem = configure_nic(kept.note, missing, *nic, setup_.make_device);
      log::info("{} lacked {}{}{}", nic->name, missing.text(), problem.empty() ? "" : ": ",
                problem);
    });
    return true;
  });
  if (staying > 0) report_failure([&] { save(); });
}

void NicKeeper::run() {
  while (!is_ending_) {
    auto next = Clock::time_point::max();
    std::size_t kept_count = 0;
    bool is_any_awaited = false;
    has_made_ = false;
    {
      std::lock_guard lock(mutex_);
      if (std::erase_if(kept_, [this](Kept& kept) { return is_settled(kept); }) > 0) {
        report_failure([this] { save(); });
      }
      kept_count = kept_.size();
      for (const auto& kept : kept_) {
        if (!kept.is_told) is_any_awaited = true;
        if (kept.held_until) {
          next = std::min(next, *kept.held_until);
        } else if (kept.tries > 0) {
          next = std::min(next, kept.next);
        }
      }
    }
    if (!is_any_awaited) tell_back();
    // Among the news that were dropped after a change may have been another NIC's.
    const bool is_next_due = has_made_ && kept_count > 1;
    has_news_ = is_next_due || await_news(next);
  }
}

void NicKeeper::tell_back() {
  for (const auto& configured : std::exchange(back_, {})) {
    std::lock_guard lock(when_back_mutex_);
    if (when_back_) when_back_(configured);
  }
}

// True: there are some.
bool NicKeeper::await_news(Clock::time_point until) const {
  std::array<pollfd, 2> polled{{{interfaces_.get(), POLLIN, 0}, {woken_.get(), POLLIN, 0}}};
  const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
  const int timeout = until == Clock::time_point::max()
                          ? -1
                          : static_cast<int>(std::clamp<long>(left.count(), 0, 1 << 30));
  ::poll(polled.data(), polled.size(), timeout);
  eventfd_t ignored = 0;
  ::eventfd_read(woken_.get(), &ignored);
  return drain_news();
}

// What the messages say is looked up. ENOBUFS: some were dropped.
bool NicKeeper::drain_news() const {
  bool is_any = false;
  char message[8192];
  while (::recv(interfaces_.get(), message, sizeof message, 0) > 0 || errno == ENOBUFS) {
    is_any = true;
  }
  return is_any;
}

// Called with mutex_ held. True: the NIC has come back, and nothing is left to be done for it.
bool NicKeeper::is_settled(Kept& kept) {
  const auto nic = nic_of(kept.note);
  if (!nic || nic->index == kept.note.nic.index) {
    kept.tries = 0;  // it is still there, or gone again
    kept.held_until.reset();
    kept.is_told = false;
    return false;
  }
  if (kept.held_until) {
    if (Clock::now() >= *kept.held_until) return true;
    if (!has_news_) return false;
  } else if (kept.tries > 0 && Clock::now() < kept.next) {
    return false;
  }
  const auto began = Clock::now();
  Given given;
  try {
    given = give(kept, *nic);
  } catch (const std::exception& failure) {
    given.lack = failure.what();  // it may have gone again, or have another name since
  }
  const bool is_given_up = !given.lack.empty() && kept.tries == setup_.pauses.size();
  if (!kept.is_told && (given.is_usable || is_given_up)) {
    kept.is_told = true;
    back_.push_back({kGuestFerrydLane, "configures " + kept.note.nic.name, began, Clock::now()});
  }
  if (given.lack.empty()) {
    kept.tries = 0;
    if (!kept.held_until) kept.held_until = Clock::now() + setup_.hold;
    return setup_.hold.count() == 0;
  }
  kept.held_until.reset();
  if (is_given_up) {
    log::warn("{} has come back, and is not as before: {}", nic->name, given.lack);
    return true;
  }
  kept.next = Clock::now() + setup_.pauses.at(kept.tries++);
  return false;
}

NicKeeper::Given NicKeeper::give(const Kept& kept, const Nic& nic) {
  const auto began = Clock::now();
  const auto missing = missing_of(kept.note, look_at_nic(nic, setup_.sysfs));
  if (missing.none()) return {{}, true};
  const auto problem = configure_nic(kept.note, missing, nic, setup_.make_device);
  drain_news();  // of what the keeper has done itself
  has_made_ = true;
  const auto made = Clock::now();
  const auto now = nic_of(kept.note);
  if (!now) return {"it has gone again"};
  const auto rest = missing_of(kept.note, look_at_nic(*now, setup_.sysfs));
  if (!rest.none()) {
    return {fmt::format("it lacks {}{}{}", rest.text(), problem.empty() ? "" : "; ", problem),
            !rest.up && rest.addresses.empty() && rest.soft_devices.empty()};
  }
  if (kept.held_until) {
    log::info("somebody took from {} what it has again now: {}", now->name, missing.text());
  } else {
    log::info("{} has come back, and is configured as before ({:.0f} ms)", now->name,
              milliseconds_between(began, made));
  }
  return {{}, true};
}

}  // namespace ferry::host
