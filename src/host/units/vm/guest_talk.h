#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "host/guest/talk/lines.h"

namespace ferry::v1 {
class GuestReply;
class GuestRequest;
}  // namespace ferry::v1

namespace ferry::host {

// What a guest says, for people: one line of 300 bytes at most.
std::string guest_text(const std::string& told);

// The host's end of the talk with the ferryd in a machine (host/guest/talk/guest.proto).
class GuestTalk {
 public:
  using Check = std::function<void()>;

  // `folder`: of the machine. `name`: of the machine, for failures. Throws Failure.
  GuestTalk(const std::string& folder, std::string name);

  // Each returns the guest's last answer, and throws Failure when there is none within `limit`, when that says so, or
  // when `need_wanted` throws.
  v1::GuestReply look(const std::vector<std::string>& nics, std::chrono::milliseconds limit);
  // `away`: how long the programs may be away, by the guest's clock.
  v1::GuestReply leave(const std::vector<std::string>& nics, std::chrono::milliseconds away,
                       std::chrono::milliseconds limit, const Check& need_wanted);
  v1::GuestReply come_back(std::chrono::milliseconds limit, const Check& need_wanted);

 private:
  v1::GuestReply ask(v1::GuestRequest request, std::chrono::milliseconds limit,
                     const Check& need_wanted);

  const std::string name_;
  Lines lines_;
};

}  // namespace ferry::host
