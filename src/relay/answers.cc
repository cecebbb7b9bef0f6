#include "relay/answers.h"

#include <errno.h>
#include <infiniband/verbs.h>

#include <algorithm>

namespace ferry::relay {
namespace {

constexpr std::size_t kRoom = 4096;  // more than any answer has

// Of an answer in so much room: the kernel does not say how much of it it fills.
std::size_t size_of(const Command& query, std::span<const std::byte> answer) {
  if (query.number() == RDMA_USER_CM_CMD_QUERY_ROUTE) return sizeof(rdma_ucm_query_route_resp);
  if (query.number() == RDMA_USER_CM_CMD_INIT_QP_ATTR) return sizeof(ib_uverbs_qp_attr);
  if (query.body<rdma_ucm_query>().option != RDMA_USER_CM_QUERY_PATH)
    return sizeof(rdma_ucm_query_addr_resp);
  std::uint32_t paths = 0;
  static_assert(offsetof(rdma_ucm_query_path_resp, num_paths) == 0);
  std::memcpy(&paths, answer.data(), sizeof paths);
  return std::min(answer.size(),
                  offsetof(rdma_ucm_query_path_resp, path_data) + paths * sizeof(ib_path_rec_data));
}

// The kernel fills as much as there is room for, and does not say how much that is.
template <typename T, typename Rename>
void change(std::vector<std::byte>* answer, Rename rename) {
  T value{};
  const std::size_t size = std::min(sizeof value, answer->size());
  std::memcpy(&value, answer->data(), size);
  rename(value);
  std::memcpy(answer->data(), &value, size);
}

void rename(Devices& devices, const Command& query, __be64 device, std::vector<std::byte>* answer) {
  const auto rename_device = [&](auto& value) {
    if (value.node_guid != 0) devices.rename_device(&value.node_guid, &value.ibdev_index);
  };
  switch (query.number()) {
    case RDMA_USER_CM_CMD_QUERY_ROUTE:
      change<rdma_ucm_query_route_resp>(answer, rename_device);
      break;
    case RDMA_USER_CM_CMD_QUERY:
      if (query.body<rdma_ucm_query>().option != RDMA_USER_CM_QUERY_PATH)
        change<rdma_ucm_query_addr_resp>(answer,
                                         rename_device);  // an answer about GIDs is the same
      break;
    case RDMA_USER_CM_CMD_INIT_QP_ATTR:
      change<ib_uverbs_qp_attr>(answer, [&](ib_uverbs_qp_attr& attributes) {
        devices.rename_path(device, &attributes.ah_attr);
      });
      break;
    default: break;
  }
}

// What tells the queries of an ID apart: the option, or the state of the QP.
std::pair<std::uint32_t, std::uint32_t> key_of(const Command& query) {
  if (query.number() == RDMA_USER_CM_CMD_INIT_QP_ATTR)
    return {query.number(), query.body<rdma_ucm_init_qp_attr>().qp_state};
  const bool has_option = query.number() == RDMA_USER_CM_CMD_QUERY;
  return {query.number(), has_option ? query.body<rdma_ucm_query>().option : 0};
}

Command own_query(std::uint32_t number, std::uint32_t detail) {
  rdma_ucm_query body{};  // INIT_QP_ATTR has the same form
  body.option = detail;
  return *Command::read(own_command(number, body, kRoom));
}

}  // namespace

int ask_kernel(KernelFile& file, Devices& devices, Command query, std::uint32_t kernels,
               __be64 device, std::vector<std::byte>* answer) {
  answer->assign(query.room(), std::byte{});
  // What an older kernel does not fill stays as the program has it.
  if (query.response() != 0)
    std::memcpy(answer->data(), reinterpret_cast<const void*>(query.response()), answer->size());
  query.set_response(answer->data(), answer->size());
  query.set_id(kernels);
  if (const int error = file.command(query.bytes())) return error;
  rename(devices, query, device, answer);
  return 0;
}

__be64 device_of(KernelFile& file, Devices& devices, std::uint32_t kernels) {
  std::vector<std::byte> answer;
  const Command query = own_query(RDMA_USER_CM_CMD_QUERY_ROUTE, 0);
  if (ask_kernel(file, devices, query, kernels, 0, &answer) != 0) return 0;
  rdma_ucm_query_route_resp route{};
  std::memcpy(&route, answer.data(), sizeof route);
  return route.node_guid;
}

std::uint32_t peer_of(KernelFile& file, Devices& devices, std::uint32_t kernels, __be64 device) {
  std::vector<std::byte> answer;
  const Command query = own_query(RDMA_USER_CM_CMD_INIT_QP_ATTR, IBV_QPS_RTR);
  if (ask_kernel(file, devices, query, kernels, device, &answer) != 0) return 0;
  ib_uverbs_qp_attr attributes{};
  std::memcpy(&attributes, answer.data(), sizeof attributes);
  return attributes.dest_qp_num;
}

Answers::Answers(KernelFile& file, Devices& devices, std::uint32_t kernels, __be64 device) {
  constexpr std::pair<std::uint32_t, std::uint32_t> kQueries[] = {
      {RDMA_USER_CM_CMD_QUERY_ROUTE, 0},
      {RDMA_USER_CM_CMD_QUERY, RDMA_USER_CM_QUERY_ADDR},
      {RDMA_USER_CM_CMD_QUERY, RDMA_USER_CM_QUERY_PATH},
      {RDMA_USER_CM_CMD_QUERY, RDMA_USER_CM_QUERY_GID},
      {RDMA_USER_CM_CMD_INIT_QP_ATTR, IBV_QPS_INIT},
      {RDMA_USER_CM_CMD_INIT_QP_ATTR, IBV_QPS_RTR},
      {RDMA_USER_CM_CMD_INIT_QP_ATTR, IBV_QPS_RTS}};
  for (const auto& [number, detail] : kQueries) {
    std::vector<std::byte> answer;
    const Command query = own_query(number, detail);
    if (ask_kernel(file, devices, query, kernels, device, &answer) != 0) continue;
    answer.resize(size_of(query, answer));
    answer.shrink_to_fit();
    answers_[key_of(query)] = std::move(answer);
  }
}

int Answers::find(const Command& query, std::vector<std::byte>* answer) const {
  const auto found = answers_.find(key_of(query));
  if (found == answers_.end()) return EINVAL;
  *answer = found->second;
  return 0;
}

}  // namespace ferry::relay
