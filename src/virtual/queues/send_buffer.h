#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/objects.h"
#include "virtual/windows/window_queue.h"

namespace ferry::virt {

// Copies of requests, with their elements and inline data: an application may reuse its own memory for
// these as soon as it has posted the requests.
class SendBuffer {
 public:
  std::size_t size() const { return requests_.size(); }
  // `is_datagram`: the request is one of a UD QP. Throws std::bad_alloc, and the buffer is as before.
  void append(const ibv_send_wr& request, bool is_datagram);
  // The same for the bind of a window of type 1, which gets this key by it.
  void append(const device::Mw& window, const device::MwBind& bind, std::uint32_t rkey);
  void shrink(std::size_t size);
  void clear() { shrink(0); }

  // Posts all requests. 0 or errno: then only the requests before the first that the QP refuses are posted.
  // `windows`: takes the binds of windows of type 1; null if there are none.
  int post(device::Qp& qp, WindowQp* windows);

 private:
  struct Request {
    ibv_send_wr wr{};
    std::size_t first_element = 0;
    std::size_t first_byte = 0;  // of the inline data
    bool has_ah = false;
    ibv_ah ah{};
    // Of a bind:
    bool has_window = false, is_of_type_1 = false;
    ibv_mw window{};
    ibv_mr region{};
  };

  static bool is_inline(const ibv_send_wr& wr) { return (wr.send_flags & IBV_SEND_INLINE) != 0; }

  // Lets a request point to the copies here.
  void point(Request& request);

  std::vector<Request> requests_;
  std::vector<ibv_sge> elements_;
  std::vector<std::byte> bytes_;
};

}  // namespace ferry::virt
