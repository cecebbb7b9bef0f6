#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "agent/protocol.h"

namespace ferry::criu::test {

// A ferryd that notes what it is asked and gives the answers that it was given.
class PlayedFerryd {
 public:
  struct Asked {
    agent::MessageType type;
    std::vector<std::byte> body;
  };

  PlayedFerryd() : path_("/tmp/ferry-criu-test." + std::to_string(::getpid())) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::strcpy(name.sun_path, path_.c_str());
    ::unlink(path_.c_str());
    listener_ = ::socket(AF_UNIX, SOCK_STREAM, 0);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
    ::listen(listener_, 8);
    ::setenv(agent::kSocketVariable, path_.c_str(), 1);
    thread_ = std::thread([this] { serve(); });
  }
  ~PlayedFerryd() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
    ::unlink(path_.c_str());
    ::setenv(agent::kSocketVariable, "/nonexistent/ferryd.sock", 1);
  }

  void answer(agent::Done done) {
    std::lock_guard lock(mutex_);
    answers_.push_back(std::move(done));
  }
  void hang_up_once() { hang_up_ = true; }
  std::vector<Asked> asked() {
    std::lock_guard lock(mutex_);
    return asked_;
  }

 private:
  void serve() {
    for (;;) {
      const int socket = ::accept(listener_, nullptr, nullptr);
      if (socket < 0) return;
      agent::Message message;
      if (agent::receive_message(socket, &message, 3000) == 0) {
        std::lock_guard lock(mutex_);
        asked_.push_back({message.type, message.body});
        agent::Done done;
        if (hang_up_) {
          hang_up_ = false;
        } else {
          if (!answers_.empty()) {
            done = answers_.front();
            answers_.pop_front();
          }
          agent::send_message(socket, agent::MessageType::kDone, agent::encode(done));
        }
      }
      ::close(socket);
    }
  }

  std::string path_;
  int listener_ = -1;
  std::mutex mutex_;
  std::vector<Asked> asked_;
  std::deque<agent::Done> answers_;
  bool hang_up_ = false;
  std::thread thread_;
};

}  // namespace ferry::criu::test
