#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/objects.h"
#include "virtual/queues/datagrams.h"
#include "virtual/shadows/numbers.h"
#include "virtual/windows/windows.h"

// The data path to objects whose numbers, or whose peers' numbers, have changed: requests get the numbers
// of the device behind, and completions get those that the application knows. As long as no number has
// changed, requests pass without these classes. One thread at a time is in each queue.
namespace ferry::virt {

// Gives the elements of requests the lkeys of the device.
class RenamedElements {
 public:
  // `lkeys` null: the application knows the device's own lkeys. `limit`: the most elements of a request.
  RenamedElements(const NumberTable* lkeys, std::size_t limit) : lkeys_(lkeys), limit_(limit) {}
  // Puts the elements into `to`. False: there are more than the queue takes.
  bool rename(const ibv_sge* elements, int count, ibv_sge* to) const {
    if (count < 0 || static_cast<std::size_t>(count) > limit_) return false;
    for (int i = 0; i < count; ++i) {
      to[i] = elements[i];
      if (lkeys_ != nullptr) to[i].lkey = (*lkeys_)[elements[i].lkey];
    }
    return true;
  }
  std::size_t limit() const { return limit_; }

 private:
  const NumberTable* const lkeys_;
  const std::size_t limit_;
};

// Gives the receives of a QP or of an SRQ the lkeys of the device.
template <typename Target>
class RenamedReceives {
 public:
  // Throws std::bad_alloc.
  RenamedReceives(Target& target, const NumberTable* lkeys, std::uint32_t max_sge)
      : target_(target), renamed_(lkeys, std::max(max_sge, 1u)), elements_(renamed_.limit()) {}

  int post(ibv_recv_wr* list, ibv_recv_wr** bad) {
    for (; list != nullptr; list = list->next) {
      *bad = list;
      if (!renamed_.rename(list->sg_list, list->num_sge, elements_.data())) return EINVAL;
      ibv_recv_wr copy = *list;
      copy.next = nullptr;
      copy.sg_list = elements_.data();
      ibv_recv_wr* bad_copy = nullptr;
      if (const int error = target_.post_recv(&copy, &bad_copy)) return error;
    }
    return 0;
  }

 private:
  Target& target_;
  const RenamedElements renamed_;
  std::vector<ibv_sge> elements_;
};

class RenamedSrq final : public device::Srq {
 public:
  // Throws std::bad_alloc.
  RenamedSrq(device::Srq& srq, const NumberTable& lkeys, std::uint32_t max_sge)
      : srq_(srq), receives_(srq, &lkeys, max_sge) {}

  int post_recv(ibv_recv_wr* list, ibv_recv_wr** bad) override { return receives_.post(list, bad); }
  int modify(const ibv_srq_attr& attributes, int mask) override {
    return srq_.modify(attributes, mask);
  }
  int query(ibv_srq_attr* attributes) const override { return srq_.query(attributes); }
  std::uint32_t number() const override { return srq_.number(); }

 private:
  device::Srq& srq_;
  RenamedReceives<device::Srq> receives_;
};

class RenamedQp final : public device::Qp {
 public:
  // `lkeys`, `rkeys` or `srqns` (the peer's XRC SRQs) null: the application knows the device's own numbers.
  // `datagrams` null: datagrams go where the application sends them. `cap`: what the QP takes. Throws
  // std::bad_alloc.
  RenamedQp(device::Qp& qp, const NumberTable* lkeys, const NumberTable* rkeys,
            const NumberTable* srqns, const Datagrams* datagrams, const ibv_qp_cap& cap);

  int post_send(ibv_send_wr* list, ibv_send_wr** bad) override;
  int post_all(ibv_send_wr* list) override;
  int post_recv(ibv_recv_wr* list, ibv_recv_wr** bad) override { return receives_.post(list, bad); }

  std::uint32_t qpn() const override { return qp_.qpn(); }
  ibv_qp_state state() const override { return qp_.state(); }
  int modify(const ibv_qp_attr& attributes, int mask) override {
    return qp_.modify(attributes, mask);
  }
  int query(ibv_qp_attr* attributes) const override { return qp_.query(attributes); }

 private:
  static constexpr std::size_t kBatch = 16;  // requests that are copied at a time

  // Copies a request with the numbers of the device. False: the request has more elements than the QP
  // takes, or an AH that the application does not have.
  bool rename(const ibv_send_wr& request, ibv_sge* elements, ibv_send_wr* copy) const;

  device::Qp& qp_;
  const NumberTable* const lkeys_;
  const NumberTable* const rkeys_;
  const NumberTable* const srqns_;
  const Datagrams* const datagrams_;
  const RenamedElements renamed_;
  std::array<ibv_send_wr, kBatch> requests_{};
  std::vector<ibv_sge> send_elements_;
  RenamedReceives<device::Qp> receives_;
};

class RenamedCq final : public device::Cq {
 public:
  // `numbers` null: the application knows the device's own. `datagrams` null: no UD QP uses the CQ for its
  // receives. `windows` null: the context has no memory windows.
  RenamedCq(device::Cq& cq, const Numbers* numbers, Datagrams* datagrams, Windows* windows)
      : cq_(cq), numbers_(numbers), datagrams_(datagrams), windows_(windows) {}

  int poll(int count, ibv_wc* out) override { return rename(cq_.poll(count, out), out); }
  int poll_one(ibv_wc* out, device::CompletionTimes* times) override {
    return rename(cq_.poll_one(out, times), out);
  }
  int take_one(ibv_wc* out, device::CompletionTimes* times) override {
    return rename(cq_.take_one(out, times), out);
  }

  int arm(bool solicited_only) override { return cq_.arm(solicited_only); }
  int resize(int cqe) override { return cq_.resize(cqe); }
  int capacity() const override { return cq_.capacity(); }

 private:
  int rename(int count, ibv_wc* completions) const {
    if (numbers_ != nullptr) {
      for (int i = 0; i < count; ++i)
        completions[i].qp_num = numbers_->virtual_qpns[completions[i].qp_num];
    }
    if (datagrams_ != nullptr) [[unlikely]]
      look_for_datagrams(count, completions);
    if (windows_ != nullptr) [[unlikely]]
      look_for_windows(count, completions);
    return count;
  }
  void look_for_datagrams(int count, ibv_wc* completions) const;
  void look_for_windows(int count, ibv_wc* completions) const;

  device::Cq& cq_;
  const Numbers* const numbers_;
  Datagrams* const datagrams_;
  Windows* const windows_;
};

}  // namespace ferry::virt
