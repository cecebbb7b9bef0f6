#include "rnic/engine/requests/work_requests.h"

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
    queue.push(list->wr_id, {sges.data(), static_cast<std::size_t>(list->num_sge)});
  }
  return 0;
}

void save_receives(const ReceiveQueue& queue, wire::ByteWriter& out) {
  out.put(queue.count());
  transport::ReceiveRequest request;
  for (std::uint32_t i = 0; i < queue.count(); ++i) {
    queue.peek(i, &request);
    out.put(request.wr_id);
    out.put(static_cast<std::uint8_t>(request.sges.size()));
    for (const transport::Sge& sge : request.sges) {
      out.put(sge.address);
      out.put(sge.length);
      out.put(sge.lkey);
    }
  }
}

bool load_receives(wire::ByteReader& in, std::uint32_t max_wr, std::uint32_t max_sge,
                   ReceiveQueue* queue) {
  const auto count = in.get<std::uint32_t>();
  if (!in.ok() || count > max_wr) return false;
  queue->clear();
  transport::ReceiveRequest request;
  for (std::uint32_t i = 0; i < count && in.ok(); ++i) {
    request.wr_id = in.get<std::uint64_t>();
    const auto sges = in.get<std::uint8_t>();
    if (sges > max_sge) return false;
    request.sges.resize(sges);
    for (transport::Sge& sge : request.sges) {
      sge.address = in.get<std::uint64_t>();
      sge.length = in.get<std::uint32_t>();
      sge.lkey = in.get<std::uint32_t>();
    }
    queue->push(request.wr_id, request.sges);
  }
  return in.ok();
}

}  // namespace ferry::rnic
