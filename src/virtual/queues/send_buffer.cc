#include "virtual/queues/send_buffer.h"

#include <algorithm>
#include <cerrno>

namespace ferry::virt {

void SendBuffer::append(const ibv_send_wr& request, bool is_datagram) {
  const auto count = static_cast<std::size_t>(std::max(request.num_sge, 0));
  const std::size_t elements = elements_.size(), bytes = bytes_.size();
  try {
    elements_.insert(elements_.end(), request.sg_list, request.sg_list + count);
    if (is_inline(request)) {
      for (std::size_t i = 0; i < count; ++i) {
        const auto* data = reinterpret_cast<const std::byte*>(request.sg_list[i].addr);
        bytes_.insert(bytes_.end(), data, data + request.sg_list[i].length);
      }
    }
    const bool has_ah = is_datagram && request.wr.ud.ah != nullptr;
    Request& copy = requests_.emplace_back();
    copy.wr = request;
    copy.first_element = elements;
    copy.first_byte = bytes;
    copy.has_ah = has_ah;
    if (has_ah) copy.ah = *request.wr.ud.ah;
    copy.has_window = request.opcode == IBV_WR_BIND_MW && request.bind_mw.mw != nullptr;
    if (!copy.has_window) return;
    copy.window = *request.bind_mw.mw;
    if (request.bind_mw.bind_info.mr != nullptr) copy.region = *request.bind_mw.bind_info.mr;
  } catch (...) {
    elements_.resize(elements);
    bytes_.resize(bytes);
    throw;
  }
}

void SendBuffer::append(const device::Mw& window, const device::MwBind& bind, std::uint32_t rkey) {
  ibv_mw named{};
  named.handle = window.handle();
  ibv_mr region{};
  if (bind.mr != nullptr) region.lkey = bind.mr->lkey();
  ibv_send_wr request{};
  request.wr_id = bind.wr_id;
  request.opcode = IBV_WR_BIND_MW;
  request.send_flags = bind.send_flags & ~unsigned{IBV_SEND_INLINE};
  request.bind_mw = {
      &named,
      rkey,
      {bind.mr != nullptr ? &region : nullptr, bind.address, bind.length, bind.access}};
  append(request, /*is_datagram=*/false);
  requests_.back().is_of_type_1 = true;
}

void SendBuffer::shrink(std::size_t size) {
  if (size >= requests_.size()) return;
  elements_.resize(requests_[size].first_element);
  bytes_.resize(requests_[size].first_byte);
  requests_.resize(size);
}

void SendBuffer::point(Request& request) {
  request.wr.sg_list = elements_.data() + request.first_element;
  if (request.has_ah) request.wr.wr.ud.ah = &request.ah;
  if (request.has_window) {
    request.wr.bind_mw.mw = &request.window;
    if (request.wr.bind_mw.bind_info.mr != nullptr)
      request.wr.bind_mw.bind_info.mr = &request.region;
  }
  if (!is_inline(request.wr)) return;
  std::byte* data = bytes_.data() + request.first_byte;
  for (int e = 0; e < request.wr.num_sge; ++e) {
    request.wr.sg_list[e].addr = reinterpret_cast<std::uintptr_t>(data);
    data += request.wr.sg_list[e].length;
  }
}

// A bind of a window of type 1 is no request of a list: it parts the list.
int SendBuffer::post(device::Qp& qp, WindowQp* windows) {
  for (Request& request : requests_) point(request);
  for (std::size_t first = 0; first < requests_.size();) {
    if (requests_[first].is_of_type_1) {
      const int error = windows != nullptr ? windows->bind_held(requests_[first].wr) : EINVAL;
      if (error != 0) return error;
      ++first;
      continue;
    }
    std::size_t last = first;
    while (last + 1 < requests_.size() && !requests_[last + 1].is_of_type_1) {
      requests_[last].wr.next = &requests_[last + 1].wr;
      ++last;
    }
    requests_[last].wr.next = nullptr;
    ibv_send_wr* bad = nullptr;
    if (const int error = qp.post_send(&requests_[first].wr, &bad)) return error;
    first = last + 1;
  }
  return 0;
}

}  // namespace ferry::virt
