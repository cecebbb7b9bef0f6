#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "host/peers/messages.h"

namespace ferry::host {

class CriuRunner;
class Directory;
struct ThisHost;

// Answers `ferry doctor`, which any user may start, on this host or on another host of the CA. A Checkup looks and
// changes nothing, and however often it is asked, it starts other programs once in a while only. Any thread may call.
class Checkup {
 public:
  struct Setup {
    std::string image_directory;
    std::vector<std::string> programs;  // not Ferry's own, by which containers are moved
    std::uint16_t image_port = 0;       // 0: other hosts are not served
  };
  Checkup(const ThisHost& host, CriuRunner& criu, const Directory& directory, Setup setup);

  v1::StateReply state();
  // Answers the ferryd of another host.
  v1::ProbeReply answer(const v1::ProbeRequest& request);
  // Asks other ferryds, all at once. Throws Failure when the request names too many, too many calls are under way, or
  // this ferryd serves its own host only.
  v1::ReachReply reach(const v1::ReachRequest& request);

 private:
  // An answer that is good for a while.
  class Kept {
   public:
    explicit Kept(std::function<std::vector<std::string>()> look) : look_(std::move(look)) {}
    std::vector<std::string> get();

   private:
    using Clock = std::chrono::steady_clock;
    const std::function<std::vector<std::string>()> look_;
    std::mutex mutex_;
    std::optional<std::vector<std::string>> answer_;
    Clock::time_point since_;
  };

  const ThisHost& host_;
  const Directory& directory_;
  const Setup setup_;
  Kept criu_problem_, versions_;
  std::atomic<int> asking_{0};  // calls of reach()
};

}  // namespace ferry::host
