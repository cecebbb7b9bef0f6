#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <vector>

#include "device/objects.h"
#include "virtual/numbers.h"

// The data path to objects that were made anew: what the application posts gets the numbers of the
// device behind, and what comes back those that the application knows. A program that has never
// moved passes without them. One thread at a time is in each queue.
namespace ferry::virt {

class RenamedQp final : public device::Qp {
 public:
  // `lkeys`, `rkeys`: null: they are the device's own. `cap`: what the QP takes. Throws
  // std::bad_alloc.
  RenamedQp(device::Qp& qp, const NumberTable* lkeys, const NumberTable* rkeys,
            const ibv_qp_cap& cap);

  int post_send(ibv_send_wr* list, ibv_send_wr** bad) override;
  int post_all(ibv_send_wr* list) override;
  int post_recv(ibv_recv_wr* list, ibv_recv_wr** bad) override;

  std::uint32_t qpn() const override { return qp_.qpn(); }
  ibv_qp_state state() const override { return qp_.state(); }
  int modify(const ibv_qp_attr& attributes, int mask) override {
    return qp_.modify(attributes, mask);
  }
  int query(ibv_qp_attr* attributes) const override { return qp_.query(attributes); }

 private:
  static constexpr std::size_t kBatch = 16;  // requests that are copied at a time

  // The elements go to `to`. False: there are more than the QP takes.
  bool rename(const ibv_sge* elements, int count, std::size_t limit, ibv_sge* to) const;
  bool rename(const ibv_send_wr& request, ibv_sge* elements, ibv_send_wr* copy) const;

  device::Qp& qp_;
  const NumberTable* const lkeys_;
  const NumberTable* const rkeys_;
  const std::size_t max_send_sge_, max_recv_sge_;
  std::array<ibv_send_wr, kBatch> requests_{};
  std::vector<ibv_sge> send_elements_, recv_elements_;
};

class RenamedCq final : public device::Cq {
 public:
  RenamedCq(device::Cq& cq, const Numbers& numbers) : cq_(cq), numbers_(numbers) {}

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
    for (int i = 0; i < count; ++i)
      completions[i].qp_num = numbers_.virtual_qpns[completions[i].qp_num];
    return count;
  }

  device::Cq& cq_;
  const Numbers& numbers_;
};

}  // namespace ferry::virt
