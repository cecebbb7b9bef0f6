#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/objects.h"
#include "virtual/shadows/numbers.h"
#include "virtual/windows/windows.h"

namespace ferry::virt {

// The data path to a QP of a context that has memory windows: requests that bind or invalidate a window are
// noted (Windows), and name the objects of the device behind. All other requests pass. One thread at a time
// is in the queue.
class WindowQp final : public device::Qp {
 public:
  // `next`: to where requests go, with the numbers that the application knows. `object`: the QP behind.
  // `numbers` null: the application knows the device's own. `qpn`: as the application knows it.
  // `capacity`: how many requests the QP takes.
  WindowQp(device::Qp& next, device::Qp& object, Windows& windows, const Numbers* numbers,
           std::uint32_t qpn, std::size_t capacity)
      : next_(next),
        object_(object),
        windows_(windows),
        numbers_(numbers),
        qpn_(qpn),
        capacity_(capacity) {}

  int post_send(ibv_send_wr* list, ibv_send_wr** bad) override {
    if (is_about_windows(list)) [[unlikely]]
      return post_copies(list, bad, /*all=*/false);
    return next_.post_send(list, bad);
  }
  int post_all(ibv_send_wr* list) override {
    ibv_send_wr* bad = nullptr;
    return is_about_windows(list) ? post_copies(list, &bad, /*all=*/true) : next_.post_all(list);
  }
  int post_recv(ibv_recv_wr* list, ibv_recv_wr** bad) override {
    return next_.post_recv(list, bad);
  }
  // The window, and the MR of the bind, are shadows. *rkey: as the application knows it.
  int bind_mw(device::Mw* window, const device::MwBind& bind, std::uint32_t* rkey) override;
  // The same for a bind that was held: it names the window by its handle and the MR by its lkey. EINVAL also if
  // the window gets another key than the application was given.
  int bind_held(const ibv_send_wr& request);

  std::uint32_t qpn() const override { return object_.qpn(); }
  ibv_qp_state state() const override { return object_.state(); }
  int modify(const ibv_qp_attr& attributes, int mask) override {
    return object_.modify(attributes, mask);
  }
  int query(ibv_qp_attr* attributes) const override { return object_.query(attributes); }

 private:
  // What a copy of a request points to.
  struct Named {
    ibv_mw window{};
    ibv_mr region{};
  };

  static bool is_about_windows(const ibv_send_wr* list) {
    for (; list != nullptr; list = list->next) {
      if (list->opcode == IBV_WR_BIND_MW || list->opcode == IBV_WR_LOCAL_INV) [[unlikely]]
        return true;
    }
    return false;
  }
  // `all`: posts all requests or none.
  int post_copies(ibv_send_wr* list, ibv_send_wr** bad, bool all);
  // Notes a request, and gives its copy the objects of the device. *number gets the number of the change, 0
  // if the request makes none. False: the request names a window that does not exist.
  bool take(ibv_send_wr* copy, Named* named, std::uint64_t* number);
  // The same for a list of copies, and links them. Gives the number of those before the first that names a
  // window that does not exist.
  std::size_t take_all(std::vector<ibv_send_wr>* copies, std::vector<Named>* named,
                       std::vector<std::uint64_t>* numbers);
  // Takes back the changes of the requests from `posted` on.
  void take_back(const std::vector<std::uint64_t>& numbers, std::size_t posted);

  device::Qp& next_;
  device::Qp& object_;
  Windows& windows_;
  const Numbers* const numbers_;
  const std::uint32_t qpn_;
  const std::size_t capacity_;
};

}  // namespace ferry::virt
