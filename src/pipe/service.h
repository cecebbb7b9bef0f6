#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "pipe/copier.h"
#include "pipe/driver/driver.h"
#include "pipe/errands.h"

namespace ferry::pipe {

// The driver behind a socket: programs that come and go, and what they ask.
class Service {
 public:
  struct Settings {
    std::string socket = kDefaultSocket;
    // Of systemd, which listens at `socket` already: what is there stays when the service ends, so that who has it
    // mounted reaches the next one. None, or one.
    std::vector<int> listening;
    unsigned threads = 1;
    std::vector<int>
        processors;  // of the threads, in turn; none: wherever the kernel lets them run
    std::chrono::microseconds patience{20};
  };

  // Listens. Throws Failure.
  Service(Settings settings, Driver& driver, Engine& engine);
  // Leaves all programs as if it were killed: they go on with the next one.
  ~Service();

  // Serves until stop(), which any thread and signal handler may call.
  void run();
  void stop();

 private:
  struct Client;

  struct Found;

  void accept_program();
  void accept_admin();
  void answer_admin(int socket);
  void watch_listener(bool on);
  // False: the session is over.
  bool answer(Client& client);
  bool reply(Client& client, const ControlRequest& request, const std::vector<Given>& given);
  void ask_about(Client& client, const ControlRequest& request, Given socket);
  void take_found();
  void watch_absent();
  void end_absent(int pidfd);
  void give_up_absent();
  UniqueFd listen_for_programs() const;
  void end(std::uint64_t number);

  const Settings settings_;
  Driver& driver_;
  Errands errands_;
  const std::shared_ptr<Found> found_;
  UniqueFd listener_, admin_listener_, stop_, epoll_;
  std::map<int, UniqueFd> admins_;  // of whom no request has been read
  bool accepts_ = true;
  std::vector<std::unique_ptr<Copier>> copiers_;
  std::map<std::uint64_t, std::unique_ptr<Client>> clients_;  // by the session's number
  std::map<int, std::pair<UniqueFd, Process>> absent_;        // by pidfd: Driver::absent()
  UniqueFd away_;                                             // a timer: they are given up
};

}  // namespace ferry::pipe
