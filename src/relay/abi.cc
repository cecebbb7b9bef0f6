#include "relay/abi.h"

namespace ferry::relay {
namespace {

struct Form {
  std::size_t smallest = 0;  // bytes of the body
  std::optional<std::size_t> id_at;
};

// A body may be longer, or end before fields that newer versions of the header have added.
std::optional<Form> form_of(std::uint32_t number) {
  switch (number) {
    case RDMA_USER_CM_CMD_CREATE_ID: return Form{sizeof(rdma_ucm_create_id), {}};
    case RDMA_USER_CM_CMD_DESTROY_ID:
    case RDMA_USER_CM_CMD_LEAVE_MCAST:
      return Form{sizeof(rdma_ucm_destroy_id), offsetof(rdma_ucm_destroy_id, id)};
    case RDMA_USER_CM_CMD_BIND_IP:
      return Form{sizeof(rdma_ucm_bind_ip), offsetof(rdma_ucm_bind_ip, id)};
    case RDMA_USER_CM_CMD_RESOLVE_IP:
      return Form{sizeof(rdma_ucm_resolve_ip), offsetof(rdma_ucm_resolve_ip, id)};
    case RDMA_USER_CM_CMD_RESOLVE_ROUTE:
      return Form{sizeof(rdma_ucm_resolve_route), offsetof(rdma_ucm_resolve_route, id)};
    case RDMA_USER_CM_CMD_QUERY_ROUTE:
    case RDMA_USER_CM_CMD_QUERY:
      return Form{offsetof(rdma_ucm_query, option), offsetof(rdma_ucm_query, id)};
    case RDMA_USER_CM_CMD_CONNECT:
      return Form{offsetof(rdma_ucm_connect, ece), offsetof(rdma_ucm_connect, id)};
    case RDMA_USER_CM_CMD_LISTEN:
      return Form{sizeof(rdma_ucm_listen), offsetof(rdma_ucm_listen, id)};
    case RDMA_USER_CM_CMD_ACCEPT:
      return Form{offsetof(rdma_ucm_accept, ece), offsetof(rdma_ucm_accept, id)};
    case RDMA_USER_CM_CMD_REJECT:
      return Form{sizeof(rdma_ucm_reject), offsetof(rdma_ucm_reject, id)};
    case RDMA_USER_CM_CMD_DISCONNECT:
      return Form{sizeof(rdma_ucm_disconnect), offsetof(rdma_ucm_disconnect, id)};
    case RDMA_USER_CM_CMD_INIT_QP_ATTR:
      return Form{sizeof(rdma_ucm_init_qp_attr), offsetof(rdma_ucm_init_qp_attr, id)};
    case RDMA_USER_CM_CMD_GET_EVENT: return Form{sizeof(rdma_ucm_get_event), {}};
    case RDMA_USER_CM_CMD_GET_OPTION: return Form{};
    case RDMA_USER_CM_CMD_SET_OPTION:
      return Form{sizeof(rdma_ucm_set_option), offsetof(rdma_ucm_set_option, id)};
    case RDMA_USER_CM_CMD_NOTIFY:
      return Form{sizeof(rdma_ucm_notify), offsetof(rdma_ucm_notify, id)};
    case RDMA_USER_CM_CMD_JOIN_IP_MCAST:
      return Form{sizeof(rdma_ucm_join_ip_mcast), offsetof(rdma_ucm_join_ip_mcast, id)};
    case RDMA_USER_CM_CMD_MIGRATE_ID:
      return Form{sizeof(rdma_ucm_migrate_id), offsetof(rdma_ucm_migrate_id, id)};
    case RDMA_USER_CM_CMD_BIND: return Form{sizeof(rdma_ucm_bind), offsetof(rdma_ucm_bind, id)};
    case RDMA_USER_CM_CMD_RESOLVE_ADDR:
      return Form{sizeof(rdma_ucm_resolve_addr), offsetof(rdma_ucm_resolve_addr, id)};
    case RDMA_USER_CM_CMD_JOIN_MCAST:
      return Form{sizeof(rdma_ucm_join_mcast), offsetof(rdma_ucm_join_mcast, id)};
    default: return std::nullopt;
  }
}

}  // namespace

std::optional<Command> Command::read(std::span<const std::byte> bytes) {
  if (bytes.size() < sizeof(rdma_ucm_cmd_hdr)) return std::nullopt;
  Command command;
  command.bytes_.assign(bytes.begin(), bytes.end());
  const auto form = form_of(command.number());
  const std::size_t in = command.header().in;
  if (!form || in < form->smallest || bytes.size() < sizeof(rdma_ucm_cmd_hdr) + in)
    return std::nullopt;
  command.bytes_.resize(sizeof(rdma_ucm_cmd_hdr) + in);
  command.id_at_ = form->id_at.value_or(kNone);
  return command;
}

}  // namespace ferry::relay
