#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "chosen_engine.h"
#include "pipe/service.h"

namespace ferry::pipe {

// A ferry-piped in this process, at a socket of its own, where pd_init() finds it.
class RunningPipe {
 public:
  struct Settings {
    Pool::Settings pool;
    Driver::Settings driver;
    unsigned threads = 1;
    bool serves = true;  // false: from serve() on
    // So long programs wait for the next one after kill().
    std::chrono::milliseconds away{0};
  };

  RunningPipe() : RunningPipe(Settings{}) {}
  explicit RunningPipe(Settings settings) : settings_(std::move(settings)) {
    std::string folder = (std::filesystem::temp_directory_path() / "ferry-pipe.XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) throw Failure("no temporary folder");
    folder_ = folder;
    settings_.driver.queues = 2;
    begin();
    ::setenv("FERRY_PIPE_SOCKET", (folder_ + "/pipe.sock").c_str(), 1);
  }
  ~RunningPipe() {
    stop();
    std::filesystem::remove_all(folder_);
  }

  // It listens before, so that what programs ask waits.
  void serve() {
    thread_ = std::thread([this] { service_->run(); });
  }
  // Programs have no driver any more.
  void stop() {
    if (!service_) return;
    service_->stop();
    if (thread_.joinable()) thread_.join();
    service_.reset();
  }

  // As if it were killed: nothing is left but what it has written down.
  void kill() {
    stop();
    driver_.reset();
    engine_.reset();
    pool_.reset();
    settings_.driver.records.reset();
  }
  // Another one takes its place, with a rule of root's if there is one.
  void begin(const std::string& rule = "") {
    settings_.driver.away = settings_.away;
    settings_.driver.records = std::make_shared<Records>(folder_ + "/pipe.sock.state");
    pool_ = std::make_unique<Pool>(settings_.pool);
    engine_ = chosen_engine();
    driver_ = std::make_unique<Driver>(settings_.driver, *pool_, *engine_);
    if (!rule.empty()) driver_->change(command_of(rule));
    Service::Settings service;
    service.socket = folder_ + "/pipe.sock";
    service.threads = settings_.threads;
    service_ = std::make_unique<Service>(service, *driver_, *engine_);
    if (settings_.serves) serve();
  }
  void restart() {
    kill();
    begin();
  }
  void forget_records() { std::filesystem::remove(folder_ + "/pipe.sock.state"); }

  // Of the next one.
  Settings& settings() { return settings_; }

  const Pool& pool() const { return *pool_; }
  const Driver& driver() const { return *driver_; }

 private:
  Settings settings_;
  std::string folder_;
  std::unique_ptr<Pool> pool_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<Service> service_;
  std::thread thread_;
};

}  // namespace ferry::pipe
