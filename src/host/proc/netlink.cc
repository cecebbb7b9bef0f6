#include "host/proc/netlink.h"

#include <netlink/errno.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>

#include "base/failure.h"

namespace ferry::host {
namespace {

int hand_on(nl_msg* message, void* take) {
  (*static_cast<const Netlink::Take*>(take))(::nlmsg_hdr(message));
  return NL_OK;
}

}  // namespace

NetlinkMessage netlink_request(int type, int flags) {
  NetlinkMessage message(::nlmsg_alloc_simple(type, flags), &::nlmsg_free);
  if (!message) throw Failure("cannot ask the kernel: out of memory");
  return message;
}

Netlink::Netlink(int protocol) : socket_(::nl_socket_alloc(), &::nl_socket_free) {
  if (!socket_) throw Failure("cannot ask the kernel: out of memory");
  is_there_ = ::nl_connect(socket_.get(), protocol) == 0;
}

int Netlink::dump(nl_msg& request, const Take& take) {
  ::nl_socket_modify_cb(socket_.get(), NL_CB_VALID, NL_CB_CUSTOM, &hand_on,
                        const_cast<Take*>(&take));
  int error = ::nl_send_auto(socket_.get(), &request);
  if (error >= 0) error = ::nl_recvmsgs_default(socket_.get());
  ::nl_socket_modify_cb(socket_.get(), NL_CB_VALID, NL_CB_DEFAULT, nullptr, nullptr);
  return error;
}

int Netlink::request(nl_msg& request) {
  const int error = ::nl_send_auto(socket_.get(), &request);
  return error < 0 ? error : ::nl_wait_for_ack(socket_.get());
}

}  // namespace ferry::host
