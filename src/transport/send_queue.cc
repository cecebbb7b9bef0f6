#include "transport/send_queue.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <type_traits>

namespace ferry::transport {
namespace {

template <typename T>
T* allocate(std::size_t count) {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
  void* memory = std::calloc(std::max<std::size_t>(count, 1), sizeof(T));
  if (!memory) throw std::bad_alloc();
  return static_cast<T*>(memory);
}

}  // namespace

SendQueue::SendQueue(std::uint32_t max_wr, std::uint32_t max_sge, std::uint32_t max_inline)
    : max_wr_(max_wr), max_sge_(max_sge), max_inline_(max_inline) {
  const std::size_t slots = std::bit_ceil(std::max<std::size_t>(max_wr, 1));
  mask_ = slots - 1;
  wqes_.reset(allocate<Wqe>(slots));
  operands_.reset(allocate<WqeOperands>(slots));
  sges_.reset(allocate<Sge>(slots * max_sge));
  inline_.reset(allocate<std::byte>(slots * max_inline));
}

bool SendQueue::push(const SendRequest& request) {
  if (tail_ - head_ >= max_wr_) return false;
  Wqe& wqe = at(tail_);
  wqe = Wqe{.wr_id = request.wr_id,
            .remote_address = request.remote_address,
            .length = request.length,
            .rkey = request.rkey,
            .immediate = request.immediate,
            .invalidate_rkey = request.invalidate_rkey,
            .remote_srqn = request.remote_srqn,
            .operation = request.operation,
            .is_inline = request.inline_data != nullptr,
            .signaled = request.signaled,
            .solicited = request.solicited,
            .fence = request.fence};
  const std::size_t slot = tail_ & mask_;
  WqeOperands& operands = operands_[slot];
  switch (request.operation) {
    case Operation::kCompareSwap:
    case Operation::kFetchAdd:
      operands.compare_add = request.compare_add;
      operands.swap = request.swap;
      wqe.length = kAtomicBytes;
      break;
    case Operation::kFlush:
      operands.flush = request.flush;
      operands.flush_length = request.length;
      wqe.length = 0;
      break;
    case Operation::kBindWindow: operands.binding = *request.binding; [[fallthrough]];
    case Operation::kLocalInvalidate:
      wqe.length = 0;
      wqe.is_inline = false;
      break;
    default: break;
  }
  if (wqe.is_local() || request.operation == Operation::kFlush) {
    // No data.
  } else if (wqe.is_inline) {
    std::memcpy(&inline_[slot * max_inline_], request.inline_data, request.length);
  } else {
    wqe.sge_count = request.sge_count;
    std::copy_n(request.sges, request.sge_count, &sges_[slot * max_sge_]);
  }
  ++tail_;
  return true;
}

std::span<const Sge> SendQueue::sges(std::uint64_t index) const {
  return {&sges_[(index & mask_) * max_sge_], at(index).sge_count};
}

const std::byte* SendQueue::inline_data(std::uint64_t index) const {
  return &inline_[(index & mask_) * max_inline_];
}

void SendQueue::assign(std::uint64_t first_psn, std::uint64_t first_ssn, std::uint32_t mtu) {
  Wqe& wqe = at(assigned_);
  wqe.first_psn = first_psn;
  wqe.first_ssn = first_ssn;
  ++assigned_;
  if (wqe.is_local()) {
    wqe.psn_count = wqe.ssn_count = 0;
    return;
  }
  wqe.psn_count =
      static_cast<std::uint32_t>(std::max<std::uint64_t>((wqe.length + mtu - 1) / mtu, 1));
  const std::uint32_t psns_of_request = kReadRequestBytes / mtu;
  wqe.ssn_count = wqe.operation == Operation::kRead
                      ? (wqe.psn_count + psns_of_request - 1) / psns_of_request
                      : 1;
}

void SendQueue::pop() {
  ++head_;
  assigned_ = std::max(assigned_, head_);
}

void SendQueue::clear() {
  head_ = assigned_ = tail_ = 0;
}

}  // namespace ferry::transport
