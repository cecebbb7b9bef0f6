#include "host/proc/kernel_qps.h"

#include <fmt/core.h>
#include <linux/netlink.h>
#include <netlink/attr.h>
#include <netlink/msg.h>
#include <netlink/netlink.h>
#include <rdma/rdma_netlink.h>
#include <unistd.h>

#include <functional>
#include <memory>

#include "base/failure.h"

namespace ferry::host {
namespace {

using Attributes = nlattr* [RDMA_NLDEV_ATTR_MAX];
using Take = std::function<void(nlattr** attributes)>;

constexpr int kLast = RDMA_NLDEV_ATTR_MAX - 1;

// A connection with the RDMA part of the kernel.
class RdmaNetlink {
 public:
  RdmaNetlink() : socket_(::nl_socket_alloc(), &::nl_socket_free) {
    if (!socket_) throw Failure("cannot ask the kernel for RDMA devices: out of memory");
    is_there_ = ::nl_connect(socket_.get(), NETLINK_RDMA) == 0;
  }

  // Gives `take` the attributes of each message of a dump. `device`: its index; negative: of all.
  void dump(int command, std::int64_t device, const Take& take) {
    if (!is_there_) return;
    const std::unique_ptr<nl_msg, decltype(&::nlmsg_free)> message(
        ::nlmsg_alloc_simple(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command), NLM_F_DUMP), &::nlmsg_free);
    if (!message) throw Failure("cannot ask the kernel for RDMA devices: out of memory");
    if (device >= 0) {
      ::nla_put_u32(message.get(), RDMA_NLDEV_ATTR_DEV_INDEX, static_cast<std::uint32_t>(device));
    }
    ::nl_socket_modify_cb(socket_.get(), NL_CB_VALID, NL_CB_CUSTOM, &each,
                          const_cast<Take*>(&take));
    int error = ::nl_send_auto(socket_.get(), message.get());
    if (error >= 0) error = ::nl_recvmsgs_default(socket_.get());
    if (error < 0) {
      throw Failure(std::string("the kernel does not tell of RDMA devices: ") +
                    ::nl_geterror(error));
    }
  }

 private:
  static int each(nl_msg* message, void* take) {
    Attributes attributes{};
    if (::nlmsg_parse(::nlmsg_hdr(message), 0, attributes, kLast, nullptr) == 0)
      (*static_cast<Take*>(take))(attributes);
    return NL_OK;
  }

  const std::unique_ptr<nl_sock, decltype(&::nl_socket_free)> socket_;
  bool is_there_ = false;
};

bool has_u32(const nlattr* attribute) {
  return attribute != nullptr && ::nla_len(attribute) >= static_cast<int>(sizeof(std::uint32_t));
}

std::optional<KernelQp> qp_of(nlattr** attributes) {
  const nlattr* const qpn = attributes[RDMA_NLDEV_ATTR_RES_LQPN];
  const nlattr* const peer = attributes[RDMA_NLDEV_ATTR_RES_RQPN];
  const nlattr* const pid = attributes[RDMA_NLDEV_ATTR_RES_PID];
  if (!has_u32(qpn) || !has_u32(pid)) return std::nullopt;
  KernelQp qp;
  qp.qpn = ::nla_get_u32(qpn);
  qp.thread = static_cast<pid_t>(::nla_get_u32(pid));
  if (has_u32(peer)) qp.peer_qpn = ::nla_get_u32(peer);
  return qp;
}

bool is_thread_of(pid_t pid, pid_t thread) {
  return ::access(fmt::format("/proc/{}/task/{}", pid, thread).c_str(), F_OK) == 0;
}

}  // namespace

std::optional<KernelQp> parse_kernel_qp(std::span<const std::byte> attributes) {
  Attributes parsed{};
  // libnl reads only, though its parameter is not const.
  auto* const head = reinterpret_cast<nlattr*>(const_cast<std::byte*>(attributes.data()));
  if (::nla_parse(parsed, kLast, head, static_cast<int>(attributes.size()), nullptr) != 0)
    return std::nullopt;
  return qp_of(parsed);
}

std::vector<KernelQp> kernel_qps(pid_t pid) {
  RdmaNetlink kernel;
  std::vector<std::pair<std::uint32_t, std::string>> devices;
  kernel.dump(RDMA_NLDEV_CMD_GET, -1, [&](nlattr** attributes) {
    const nlattr* const index = attributes[RDMA_NLDEV_ATTR_DEV_INDEX];
    const nlattr* const name = attributes[RDMA_NLDEV_ATTR_DEV_NAME];
    if (has_u32(index) && name != nullptr)
      devices.emplace_back(::nla_get_u32(index), ::nla_get_string(name));
  });
  std::vector<KernelQp> qps;
  for (const auto& [index, name] : devices) {
    kernel.dump(RDMA_NLDEV_CMD_RES_QP_GET, index, [&](nlattr** attributes) {
      const nlattr* const table = attributes[RDMA_NLDEV_ATTR_RES_QP];
      if (table == nullptr) return;
      const nlattr* entry = nullptr;
      int left = 0;
      nla_for_each_nested(entry, table, left) {
        const auto* const bytes = static_cast<const std::byte*>(::nla_data(entry));
        auto qp = parse_kernel_qp({bytes, static_cast<std::size_t>(::nla_len(entry))});
        if (!qp || !is_thread_of(pid, qp->thread)) continue;
        qp->device = name;
        qps.push_back(std::move(*qp));
      }
    });
  }
  return qps;
}

}  // namespace ferry::host
