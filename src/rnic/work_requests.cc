#include "rnic/work_requests.h"

#include <array>
#include <cerrno>

namespace ferry::rnic {

static_assert(sizeof(transport::Sge) == sizeof(ibv_sge));

void copy_sges(const ibv_sge* from, int count, transport::Sge* to) {
  for (int i = 0; i < count; ++i) to[i] = {from[i].addr, from[i].length, from[i].lkey};
}

int push_receives(ibv_recv_wr* list, std::uint32_t max_sge, ReceiveQueue& queue,
                  ibv_recv_wr** bad) {
  for (; list != nullptr; list = list->next) {
    const bool fits = list->num_sge >= 0 && static_cast<std::uint32_t>(list->num_sge) <= max_sge;
    if (!fits || queue.full()) {
      *bad = list;
      return fits ? ENOMEM : EINVAL;
    }
    std::array<transport::Sge, transport::kMaxSge> sges;
    copy_sges(list->sg_list, list->num_sge, sges.data());
    queue.push(list->wr_id, sges.data(), static_cast<std::uint8_t>(list->num_sge));
  }
  return 0;
}

void save_receives(const ReceiveQueue& queue, wire::ByteWriter& out) {
  out.put(queue.count());
  for (std::uint32_t i = 0; i < queue.count(); ++i) {
    transport::ReceiveRequest request;
    queue.peek(i, &request);
    out.put(request.wr_id);
    out.put(request.sge_count);
    for (unsigned k = 0; k < request.sge_count; ++k) {
      out.put(request.sges[k].address);
      out.put(request.sges[k].length);
      out.put(request.sges[k].lkey);
    }
  }
}

bool load_receives(wire::ByteReader& in, std::uint32_t max_wr, std::uint32_t max_sge,
                   ReceiveQueue* queue) {
  const auto count = in.get<std::uint32_t>();
  if (!in.ok() || count > max_wr) return false;
  queue->clear();
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    transport::ReceiveRequest request;
    request.wr_id = in.get<std::uint64_t>();
    request.sge_count = in.get<std::uint8_t>();
    if (request.sge_count > max_sge) return false;
    for (unsigned k = 0; k < request.sge_count; ++k) {
      request.sges[k].address = in.get<std::uint64_t>();
      request.sges[k].length = in.get<std::uint32_t>();
      request.sges[k].lkey = in.get<std::uint32_t>();
    }
    queue->push(request.wr_id, request.sges.data(), request.sge_count);
  }
  return in.ok();
}

}  // namespace ferry::rnic
