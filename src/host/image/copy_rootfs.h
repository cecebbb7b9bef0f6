#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include "host/image/image_stream.h"
#include "host/image/rootfs.h"
#include "host/image/rootfs_helper.h"

namespace ferry::host {

// Sends the root filesystem of a container: all of it, and then what has changed, while the program
// runs; once more what has changed when it is frozen.
class CopyRootfs {
 public:
  using Tell = std::function<void(std::uint64_t bytes)>;

  // `helper`: ferry-rootfs; `log`: its stderr. `root`: the container's first process. Throws Failure.
  CopyRootfs(const std::string& helper, pid_t root, const Rootfs& rootfs, const std::string& log);

  // `go_on` throws when the copy is not wanted any more. Throws Failure.
  void run(ImageSender& sender, const Tell& tell, const std::function<void()>& go_on);
  // When all is frozen: sends what has changed. Throws Failure.
  void send_last(ImageSender& sender);

  std::uint64_t total() const { return total_; }            // bytes on the source's disk
  std::uint64_t sent_ahead() const { return sent_ahead_; }  // bytes
  std::uint64_t sent_last() const { return sent_ - sent_ahead_; }

 private:
  void look_at_mappings();
  void pass(ImageSender& sender, const std::function<void()>& after_each);

  const pid_t root_;
  const std::uint64_t total_;
  RootfsHelper helper_;
  // Files that are written through memory, perhaps without a trace in their times.
  std::set<std::string> mapped_;
  std::uint64_t sent_ = 0, sent_ahead_ = 0;
};

}  // namespace ferry::host
