#pragma once

#include <functional>
#include <memory>

struct nl_msg;
struct nl_sock;
struct nlmsghdr;

namespace ferry::host {

using NetlinkMessage = std::unique_ptr<nl_msg, void (*)(nl_msg*)>;

// A request with nothing in it but its type and its flags (NLM_F_*; NLM_F_REQUEST is among them). Throws Failure.
NetlinkMessage netlink_request(int type, int flags);

// A connection with a part of the kernel, in the network namespace of its maker. Errors are libnl's: negative.
class Netlink {
 public:
  using Take = std::function<void(nlmsghdr* message)>;

  // `protocol`: NETLINK_*. Throws Failure.
  explicit Netlink(int protocol);

  // The kernel has this part.
  bool is_there() const { return is_there_; }
  // Gives `take` each message of the answer to a request with NLM_F_DUMP. Gives an error, or what is not negative.
  int dump(nl_msg& request, const Take& take);
  // Has the kernel do it. Gives an error, or what is not negative.
  int request(nl_msg& request);

 private:
  const std::unique_ptr<nl_sock, void (*)(nl_sock*)> socket_;
  bool is_there_ = false;
};

}  // namespace ferry::host
