#include "host/proc/scope.h"

#include <fmt/core.h>
#include <systemd/sd-bus.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-login.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "base/failure.h"
#include "host/proc/process_tree.h"

namespace ferry::host {
namespace {

// Where systemd itself listens to root, also on a host without a bus.
constexpr char kManager[] = "unix:path=/run/systemd/private";
constexpr char kName[] = "org.freedesktop.systemd1";
constexpr char kPath[] = "/org/freedesktop/systemd1";
constexpr char kInterface[] = "org.freedesktop.systemd1.Manager";
constexpr std::uint64_t kCallLimit = 10'000'000;  // microseconds
constexpr uid_t kFirstUser = 1000;  // as systemd has it: those below are of the system
constexpr int kRounds = 3;  // for processes that were started while the others got their scope
constexpr std::chrono::milliseconds kLook{20};
constexpr int kLooks = 500;

using Text = std::unique_ptr<char, decltype(&std::free)>;
using Bus = std::unique_ptr<sd_bus, decltype(&::sd_bus_flush_close_unref)>;
using Message = std::unique_ptr<sd_bus_message, decltype(&::sd_bus_message_unref)>;

void need(int result, const std::string& program) {
  if (result >= 0) return;
  throw Failure(fmt::format("'{}' shares ferryd's cgroup: systemd gives it no scope: {}", program,
                            error_text(-result)));
}

// The service of a process, as systemd calls it; empty: none.
std::string service_of(pid_t pid) {
  char* unit = nullptr;
  if (::sd_pid_get_unit(pid, &unit) < 0) return {};
  const Text owned(unit, &std::free);
  const std::string name = unit;
  return name.ends_with(".service") ? name : std::string();
}

// Those of the tree that are in ferryd's service still.
std::vector<std::uint32_t> sharing(pid_t root, const std::string& service) {
  std::vector<std::uint32_t> pids;
  for (const pid_t pid : process_tree(root)) {
    if (service_of(pid) == service) pids.push_back(static_cast<std::uint32_t>(pid));
  }
  return pids;
}

Bus connect(const std::string& program) {
  sd_bus* made = nullptr;
  need(::sd_bus_new(&made), program);
  Bus bus(made, &::sd_bus_flush_close_unref);
  need(::sd_bus_set_address(bus.get(), kManager), program);
  need(::sd_bus_start(bus.get()), program);
  return bus;
}

Message call_of(sd_bus* bus, const char* method, const std::string& program) {
  sd_bus_message* made = nullptr;
  need(::sd_bus_message_new_method_call(bus, &made, kName, kPath, kInterface, method), program);
  return {made, &::sd_bus_message_unref};
}

void call(sd_bus* bus, const Message& message, const std::string& program) {
  sd_bus_error error{};
  const int result = ::sd_bus_call(bus, message.get(), kCallLimit, &error, nullptr);
  const std::string why = error.message != nullptr ? printable(error.message) : error_text(-result);
  ::sd_bus_error_free(&error);
  if (result < 0) {
    throw Failure(
        fmt::format("'{}' shares ferryd's cgroup: systemd gives it no scope: {}", program, why));
  }
}

// systemd answers before it has moved the processes.
void await_scope(pid_t root, const std::string& service) {
  for (int look = 0; look < kLooks && service_of(root) == service; ++look) {
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace

void give_scope(pid_t root, const std::string& program) {
  if (::sd_booted() <= 0) return;
  const std::string service = service_of(::getpid());
  if (service.empty()) return;
  const std::string scope = fmt::format("ferry-{}-{}.scope", root, start_time(root));
  for (int round = 0; round < kRounds; ++round) {
    const auto pids = sharing(root, service);
    if (pids.empty()) return;
    const std::size_t bytes = pids.size() * sizeof pids[0];
    const Bus bus = connect(program);
    if (round == 0) {
      const uid_t user = user_of(root).value_or(0);
      const std::string slice =
          user < kFirstUser ? "system.slice" : fmt::format("user-{}.slice", user);
      const Message start = call_of(bus.get(), "StartTransientUnit", program);
      sd_bus_message* const to = start.get();
      need(::sd_bus_message_append(to, "ss", scope.c_str(), "fail"), program);
      need(::sd_bus_message_open_container(to, 'a', "(sv)"), program);
      need(::sd_bus_message_append(to, "(sv)(sv)(sv)", "Description", "s",
                                   fmt::format("{}, which Ferry has moved here", program).c_str(),
                                   "Slice", "s", slice.c_str(), "CollectMode", "s",
                                   "inactive-or-failed"),
           program);
      need(::sd_bus_message_open_container(to, 'r', "sv"), program);
      need(::sd_bus_message_append(to, "s", "PIDs"), program);
      need(::sd_bus_message_open_container(to, 'v', "au"), program);
      need(::sd_bus_message_append_array(to, 'u', pids.data(), bytes), program);
      for (int level = 0; level < 3; ++level) need(::sd_bus_message_close_container(to), program);
      need(::sd_bus_message_append(to, "a(sa(sv))", 0), program);
      call(bus.get(), start, program);
      await_scope(root, service);
    } else {
      const Message attach = call_of(bus.get(), "AttachProcessesToUnit", program);
      need(::sd_bus_message_append(attach.get(), "ss", scope.c_str(), ""), program);
      need(::sd_bus_message_append_array(attach.get(), 'u', pids.data(), bytes), program);
      call(bus.get(), attach, program);
    }
  }
}

}  // namespace ferry::host
