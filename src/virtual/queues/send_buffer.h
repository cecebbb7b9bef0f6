#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/objects.h"

namespace ferry::virt {

// Copies of requests, with their elements and inline data: an application may reuse its own memory for
// these as soon as it has posted the requests.
class SendBuffer {
 public:
  std::size_t size() const { return requests_.size(); }
  // `is_datagram`: the request is one of a UD QP. Throws std::bad_alloc, and the buffer is as before.
  void append(const ibv_send_wr& request, bool is_datagram);
  void shrink(std::size_t size);
  void clear() { shrink(0); }

  // Posts all requests. 0 or errno: then only the requests before the first that the QP refuses are posted.
  int post(device::Qp& qp);

 private:
  struct Request {
    ibv_send_wr wr{};
    std::size_t first_element = 0;
    std::size_t first_byte = 0;  // of the inline data
    bool has_ah = false;
    ibv_ah ah{};
  };

  static bool is_inline(const ibv_send_wr& wr) { return (wr.send_flags & IBV_SEND_INLINE) != 0; }

  std::vector<Request> requests_;
  std::vector<ibv_sge> elements_;
  std::vector<std::byte> bytes_;
};

}  // namespace ferry::virt
