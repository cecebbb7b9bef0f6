#include "hca/doorbell.h"

#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>

namespace ferry::hca {

int ring_doorbell(const ibv_qp& qp) {
  ib_uverbs_post_send command{};  // wr_count is 0: the requests are in the queue already
  command.qp_handle = qp.handle;
  command.wqe_size = sizeof(ib_uverbs_send_wr);
  ib_uverbs_post_send_resp answer{};
  constexpr std::size_t kAttributes = 3;
  constexpr std::size_t kBytes = sizeof(ib_uverbs_ioctl_hdr) + kAttributes * sizeof(ib_uverbs_attr);
  alignas(ib_uverbs_ioctl_hdr) std::array<std::byte, kBytes> bytes{};
  auto* const call = reinterpret_cast<ib_uverbs_ioctl_hdr*>(bytes.data());
  call->length = kBytes;
  call->object_id = UVERBS_OBJECT_DEVICE;
  call->method_id = UVERBS_METHOD_INVOKE_WRITE;
  call->num_attrs = kAttributes;
  call->driver_id = RDMA_DRIVER_RXE;
  const auto set = [&](std::size_t index, std::uint16_t id, std::uint64_t data,
                       std::uint16_t length) {
    call->attrs[index].attr_id = id;
    call->attrs[index].len = length;
    call->attrs[index].flags = UVERBS_ATTR_F_MANDATORY;
    call->attrs[index].data = data;
  };
  set(0, UVERBS_ATTR_CORE_IN, reinterpret_cast<std::uintptr_t>(&command), sizeof command);
  set(1, UVERBS_ATTR_CORE_OUT, reinterpret_cast<std::uintptr_t>(&answer), sizeof answer);
  set(2, UVERBS_ATTR_WRITE_CMD, IB_USER_VERBS_CMD_POST_SEND, sizeof(std::uint64_t));
  return ::ioctl(qp.context->cmd_fd, RDMA_VERBS_IOCTL, call) == 0 ? 0 : errno;
}

}  // namespace ferry::hca
