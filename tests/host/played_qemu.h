#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/failure.h"
#include "base/json_text.h"
#include "base/line_channel.h"

namespace ferry::test {

// Who listens at a UNIX socket, and serves one connection after another in a thread.
class Listener {
 public:
  using Serve = std::function<void(LineChannel&)>;  // throws Failure when the other end has gone

  Listener(const std::string& path, Serve serve) : serve_(std::move(serve)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    socket_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    ::listen(socket_.get(), 1);
    thread_ = std::jthread([this](const std::stop_token& over) { run(over); });
  }

 private:
  void run(const std::stop_token& over) {
    while (!over.stop_requested()) {
      pollfd waits{socket_.get(), POLLIN, 0};
      if (::poll(&waits, 1, 5) <= 0) continue;
      LineChannel channel(UniqueFd(::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)));
      try {
        while (!over.stop_requested()) serve_(channel);
      } catch (const Failure&) {
      }
    }
  }

  const Serve serve_;
  UniqueFd socket_;
  std::jthread thread_;
};

// A QEMU's monitor: QMP, as far as Ferry uses it. A migration stops the machine when it may do so, and then waits.
class PlayedQemu {
 public:
  using Json = nlohmann::json;

  explicit PlayedQemu(const std::string& path)
      : listener_(path, [this](LineChannel& channel) { serve(channel); }) {}

  // What has been asked for, but for what changes nothing: "migrate_cancel", "device_del nic1".
  std::vector<std::string> calls() const {
    std::lock_guard lock(mutex_);
    return calls_;
  }

  std::atomic<bool> is_silent{false};  // QEMU
  std::mutex& mutex() { return mutex_; }
  // With the mutex.
  std::vector<std::string> devices{"nic1", "disk"};
  std::string state = "running", migration;
  std::string complaint;  // about device_add

 private:
  static constexpr std::chrono::milliseconds kGlance{5};
  static constexpr std::uint64_t kMemory = 256 << 20;

  void serve(LineChannel& channel) {
    const auto until = [] { return LineChannel::Clock::now() + kGlance; };
    if (!greeted_) {
      greeted_ = true;
      if (!is_silent)
        channel.write(R"({"QMP": {"version": {}}})"
                      "\n",
                      until());
    }
    std::optional<std::string> line;
    try {
      line = channel.read(until());
    } catch (const Failure&) {
      greeted_ = false;
      throw;
    }
    if (!line || is_silent) return;
    const Json request = json_of(*line);
    // An event may come before any answer.
    channel.write(R"({"event": "RTC_CHANGE", "data": {}})"
                  "\n",
                  until());
    channel.write(R"({"return": {}, "id": 999})"
                  "\n",
                  until());  // to a command of long ago
    Json reply = answer(request);
    reply["id"] = request.at("id");
    channel.write(json_text(reply) + "\n", until());
  }

  // 20 MiB less at each look.
  Json migration_now() {
    if (migration.empty()) return Json::object();
    constexpr std::uint64_t kStep = 20 << 20;
    if (left_ > kStep) left_ -= kStep;
    return {{"status", migration},
            {"ram",
             {{"transferred", kMemory - left_},
              {"remaining", left_},
              {"dirty-sync-count", 1},
              {"mbps", 8000.0},
              {"dirty-pages-rate", 0},
              {"page-size", 4096}}}};
  }

  Json answer(const Json& request) {
    std::lock_guard lock(mutex_);
    const std::string command = request.at("execute");
    const Json& arguments = request.at("arguments");
    if (command == "query-status") return {{"return", {{"status", state}}}};
    if (command == "query-migrate") return {{"return", migration_now()}};
    if (command == "query-dirty-rate") {
      return {{"return", {{"status", "measured"}, {"dirty-rate", 1}}}};
    }
    if (command == "query-version") {
      return {{"return", {{"qemu", {{"major", 7}, {"minor", 2}, {"micro", 22}}}}}};
    }
    if (command == "calc-dirty-rate" || command == "migrate-set-capabilities") {
      return {{"return", Json::object()}};
    }
    if (command == "migrate-set-parameters") {
      const bool is_limited = arguments.value("downtime-limit", 0) == 1;
      if (!is_limited && migration == "active") migration = "pre-switchover";
      return {{"return", Json::object()}};
    }
    if (command == "qom-list") {
      Json list = Json::array();
      for (const auto& device : devices) list.push_back({{"name", device}});
      return {{"return", list}};
    }
    if (command == "qmp_capabilities") return {{"return", Json::object()}};
    if (command == "human-monitor-command") {
      const std::string typed = arguments.at("command-line");
      calls_.push_back(typed);
      if (typed.starts_with("device_add") && !complaint.empty())
        return {{"return", complaint + "\r\n"}};
      if (typed.starts_with("device_add")) devices.emplace_back("nic1");
      return {{"return", ""}};
    }
    calls_.push_back(command +
                     (arguments.contains("id") ? " " + arguments.at("id").get<std::string>() : ""));
    if (command == "migrate") {
      migration = "active";
      left_ = kMemory;
    } else if (command == "migrate-continue") {
      migration = "completed";
      state = "postmigrate";
    } else if (command == "migrate_cancel") {
      migration = "cancelled";
      state = "running";
    } else if (command == "cont") {
      state = "running";
    } else if (command == "no-such-command") {
      return {{"error", {{"class", "CommandNotFound"}, {"desc", "The command is not known"}}}};
    }
    return {{"return", Json::object()}};
  }

  mutable std::mutex mutex_;
  bool greeted_ = false;
  std::uint64_t left_ = kMemory;  // bytes that a migration has not sent
  std::vector<std::string> calls_;
  Listener listener_;
};

}  // namespace ferry::test
