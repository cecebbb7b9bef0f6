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
constexpr uid_t kFirstUser = 1000;  // as systemd has it: lower ids are of system users
constexpr int kRounds = 3;  // for processes that were started while the others got their scope
constexpr std::chrono::milliseconds kLook{20};
constexpr int kLooks = 500;

using Text = std::unique_ptr<char, decltype(&std::free)>;
using Bus = std::unique_ptr<sd_bus, decltype(&::sd_bus_flush_close_unref)>;
using Message = std::unique_ptr<sd_bus_message, decltype(&::sd_bus_message_unref)>;

void need(int result) {
  if (result < 0) throw Failure(error_text(-result));
}

// The service of a process, as systemd calls it; empty: none.
std::string service_of(pid_t pid) {
  char* unit = nullptr;
  if (::sd_pid_get_unit(pid, &unit) < 0) return {};
  const Text owned(unit, &std::free);
  const std::string name = unit;
  return name.ends_with(".service") ? name : std::string();
}

// Pids of the tree that still are in ferryd's service.
std::vector<std::uint32_t> sharing(pid_t root, const std::string& service) {
  std::vector<std::uint32_t> pids;
  for (const pid_t pid : process_tree(root)) {
    if (service_of(pid) == service) pids.push_back(static_cast<std::uint32_t>(pid));
  }
  return pids;
}

Bus connect() {
  sd_bus* made = nullptr;
  need(::sd_bus_new(&made));
  Bus bus(made, &::sd_bus_flush_close_unref);
  need(::sd_bus_set_address(bus.get(), kManager));
  need(::sd_bus_start(bus.get()));
  return bus;
}

Message call_of(sd_bus* bus, const char* method) {
  sd_bus_message* made = nullptr;
  need(::sd_bus_message_new_method_call(bus, &made, kName, kPath, kInterface, method));
  return {made, &::sd_bus_message_unref};
}

void append(sd_bus_message* message, const std::vector<std::uint32_t>& pids) {
  need(::sd_bus_message_append_array(message, 'u', pids.data(), pids.size() * sizeof pids[0]));
}

void call(sd_bus* bus, sd_bus_message* message) {
  sd_bus_error error{};
  const int result = ::sd_bus_call(bus, message, kCallLimit, &error, nullptr);
  const std::string why = error.message != nullptr ? printable(error.message) : error_text(-result);
  ::sd_bus_error_free(&error);
  if (result < 0) throw Failure(why);
}

void start_scope(sd_bus* bus, const std::string& scope, const std::string& program, uid_t user,
                 const std::vector<std::uint32_t>& pids) {
  const std::string slice = user < kFirstUser ? "system.slice" : fmt::format("user-{}.slice", user);
  const std::string description = fmt::format("{}, which Ferry has moved here", program);
  const Message start = call_of(bus, "StartTransientUnit");
  sd_bus_message* const to = start.get();
  need(::sd_bus_message_append(to, "ss", scope.c_str(), "fail"));
  need(::sd_bus_message_open_container(to, 'a', "(sv)"));
  need(::sd_bus_message_append(to, "(sv)(sv)(sv)", "Description", "s", description.c_str(), "Slice",
                               "s", slice.c_str(), "CollectMode", "s", "inactive-or-failed"));
  need(::sd_bus_message_open_container(to, 'r', "sv"));
  need(::sd_bus_message_append(to, "s", "PIDs"));
  need(::sd_bus_message_open_container(to, 'v', "au"));
  append(to, pids);
  for (int level = 0; level < 3; ++level) need(::sd_bus_message_close_container(to));
  need(::sd_bus_message_append(to, "a(sa(sv))", 0));  // no further units
  call(bus, to);
}

void attach(sd_bus* bus, const std::string& scope, const std::vector<std::uint32_t>& pids) {
  const Message attach = call_of(bus, "AttachProcessesToUnit");
  need(::sd_bus_message_append(attach.get(), "ss", scope.c_str(), ""));
  append(attach.get(), pids);
  call(bus, attach.get());
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
  auto pids = sharing(root, service);
  if (pids.empty()) return;
  try {
    const std::string scope = fmt::format("ferry-{}-{}.scope", root, start_time(root));
    const Bus bus = connect();
    start_scope(bus.get(), scope, program, user_of(root).value_or(0), pids);
    await_scope(root, service);
    for (int round = 1; round < kRounds; ++round) {
      pids = sharing(root, service);
      if (pids.empty()) return;
      attach(bus.get(), scope, pids);
    }
  } catch (const Failure& failure) {
    throw Failure(fmt::format("'{}' shares ferryd's cgroup: systemd gives it no scope: {}", program,
                              failure.what()));
  }
}

}  // namespace ferry::host
