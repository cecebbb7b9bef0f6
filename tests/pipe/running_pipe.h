#pragma once

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
  };

  RunningPipe() : RunningPipe(Settings{}) {}
  explicit RunningPipe(Settings settings) : pool_(settings.pool) {
    std::string folder = (std::filesystem::temp_directory_path() / "ferry-pipe.XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) throw Failure("no temporary folder");
    folder_ = folder;
    settings.driver.queues = 2;
    driver_ = std::make_unique<Driver>(settings.driver, pool_, *engine_);
    Service::Settings service;
    service.socket = folder + "/pipe.sock";
    service.threads = settings.threads;
    service_ = std::make_unique<Service>(service, *driver_, *engine_);
    if (settings.serves) serve();
    ::setenv("FERRY_PIPE_SOCKET", service.socket.c_str(), 1);
  }
  ~RunningPipe() {
    stop();
    std::filesystem::remove_all(folder_);
  }

  // It listens before, so that what programs ask waits.
  void serve() {
    thread_ = std::thread([this] { service_->run(); });
  }
  // As if it were killed: its programs have no driver any more.
  void stop() {
    if (!service_) return;
    service_->stop();
    if (thread_.joinable()) thread_.join();
    service_.reset();
  }
  const Pool& pool() const { return pool_; }
  const Driver& driver() const { return *driver_; }

 private:
  std::string folder_;
  Pool pool_;
  const std::unique_ptr<Engine> engine_ = chosen_engine();
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<Service> service_;
  std::thread thread_;
};

}  // namespace ferry::pipe
