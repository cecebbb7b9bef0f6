#include "virtual/queues/renamed_queues.h"

#include <algorithm>
#include <cerrno>
#include <new>

namespace ferry::virt {
namespace {

// Gives the peer's key that a request names; null: the request names none.
std::uint32_t* rkey_of(ibv_send_wr& wr) {
  switch (wr.opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_READ:
    case IBV_WR_ATOMIC_WRITE: return &wr.wr.rdma.rkey;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD: return &wr.wr.atomic.rkey;
    case IBV_WR_SEND_WITH_INV: return &wr.invalidate_rkey;
    default: return nullptr;
  }
}

}  // namespace

void RenamedCq::look_for_datagrams(int count, ibv_wc* completions) const {
  for (int i = 0; i < count; ++i) {
    if (datagrams_->are_used()) datagrams_->arrived(&completions[i]);
    datagrams_->count(completions[i]);
  }
}

void RenamedCq::look_for_windows(int count, ibv_wc* completions) const {
  for (int i = 0; i < count; ++i) {
    ibv_wc& completion = completions[i];
    const bool invalidates =
        completion.status == IBV_WC_SUCCESS && (completion.wc_flags & IBV_WC_WITH_INV) != 0;
    if (invalidates && numbers_ != nullptr)
      completion.invalidated_rkey = numbers_->virtual_rkeys[completion.invalidated_rkey];
    windows_->completed(completion);
  }
}

RenamedQp::RenamedQp(device::Qp& qp, const NumberTable* lkeys, const NumberTable* rkeys,
                     const NumberTable* srqns, const Datagrams* datagrams, const ibv_qp_cap& cap)
    : qp_(qp),
      lkeys_(lkeys),
      rkeys_(rkeys),
      srqns_(srqns),
      datagrams_(datagrams),
      renamed_(lkeys, std::max(cap.max_send_sge, 1u)),
      send_elements_(kBatch * renamed_.limit()),
      receives_(qp, lkeys, cap.max_recv_sge) {}

// Renames the lkeys of inline data as well, which mean nothing.
bool RenamedQp::rename(const ibv_send_wr& request, ibv_sge* elements, ibv_send_wr* copy) const {
  *copy = request;
  copy->sg_list = elements;
  copy->next = nullptr;
  if (datagrams_ != nullptr && !datagrams_->address(copy)) [[unlikely]]
    return false;
  if (std::uint32_t* rkey = rkey_of(*copy); rkey != nullptr && rkeys_ != nullptr)
    *rkey = (*rkeys_)[*rkey];
  if (srqns_ != nullptr) {
    std::uint32_t& number = copy->qp_type.xrc.remote_srqn;
    number = (*srqns_)[number];
  }
  return renamed_.rename(request.sg_list, request.num_sge, elements);
}

int RenamedQp::post_send(ibv_send_wr* list, ibv_send_wr** bad) {
  while (list != nullptr) {
    ibv_send_wr* const first = list;
    std::size_t count = 0;
    bool fits = true;
    for (; list != nullptr && count < kBatch; list = list->next, ++count) {
      fits = rename(*list, &send_elements_[count * renamed_.limit()], &requests_[count]);
      if (!fits) break;
      if (count > 0) requests_[count - 1].next = &requests_[count];
    }
    ibv_send_wr* failed = nullptr;
    const int error = count > 0 ? qp_.post_send(requests_.data(), &failed) : 0;
    if (error != 0) {
      *bad = first;
      for (const ibv_send_wr* posted = requests_.data(); failed != nullptr && posted != failed;
           ++posted) {
        *bad = (*bad)->next;
      }
      return error;
    }
    if (!fits) {
      *bad = list;
      return EINVAL;
    }
  }
  return 0;
}

int RenamedQp::post_all(ibv_send_wr* list) try {
  std::size_t count = 0;
  for (const ibv_send_wr* request = list; request != nullptr; request = request->next) ++count;
  if (count == 0) return 0;
  std::vector<ibv_send_wr> requests(count);
  std::vector<ibv_sge> elements(count * renamed_.limit());
  for (std::size_t i = 0; i < count; ++i, list = list->next) {
    if (!rename(*list, &elements[i * renamed_.limit()], &requests[i])) return EINVAL;
    if (i > 0) requests[i - 1].next = &requests[i];
  }
  return qp_.post_all(requests.data());
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

}  // namespace ferry::virt
