#include "virtual/queues/send_buffer.h"

#include <algorithm>

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
    requests_.push_back({request, elements, bytes, has_ah, has_ah ? *request.wr.ud.ah : ibv_ah{}});
  } catch (...) {
    elements_.resize(elements);
    bytes_.resize(bytes);
    throw;
  }
}

void SendBuffer::shrink(std::size_t size) {
  if (size >= requests_.size()) return;
  elements_.resize(requests_[size].first_element);
  bytes_.resize(requests_[size].first_byte);
  requests_.resize(size);
}

int SendBuffer::post(device::Qp& qp) {
  if (requests_.empty()) return 0;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    Request& request = requests_[i];
    request.wr.sg_list = elements_.data() + request.first_element;
    request.wr.next = i + 1 < requests_.size() ? &requests_[i + 1].wr : nullptr;
    if (request.has_ah) request.wr.wr.ud.ah = &request.ah;
    if (!is_inline(request.wr)) continue;
    std::byte* data = bytes_.data() + request.first_byte;
    for (int e = 0; e < request.wr.num_sge; ++e) {
      request.wr.sg_list[e].addr = reinterpret_cast<std::uintptr_t>(data);
      data += request.wr.sg_list[e].length;
    }
  }
  ibv_send_wr* bad = nullptr;
  return qp.post_send(&requests_[0].wr, &bad);
}

}  // namespace ferry::virt
