#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "transport/types.h"

// The send queue: a ring of WQEs with their scatter/gather elements and inline data, and the PSNs
// that they occupy. PSNs and SSNs here are 64 bits wide and never wrap ("extended"); their low 24
// bits are on the wire.
namespace ferry::transport {

template <Operation... kSet>
constexpr bool is_one_of(Operation operation) {
  constexpr std::uint32_t kBits = (... | (1u << static_cast<unsigned>(kSet)));
  return kBits >> static_cast<unsigned>(operation) & 1;
}

struct Wqe {
  std::uint64_t wr_id = 0;
  std::uint64_t remote_address = 0;
  std::uint64_t length = 0;
  // Once assigned, a WQE occupies the PSNs [first_psn, first_psn + psn_count) and the SSNs
  // [first_ssn, first_ssn + ssn_count). A READ occupies the PSNs of its responses, and is asked for
  // in ssn_count requests of kReadRequestBytes each, so that the responses never overflow the
  // requester's own receive buffer. A local operation occupies none: it is carried out when it is
  // assigned.
  std::uint64_t first_psn = 0;
  std::uint64_t first_ssn = 0;
  std::uint32_t psn_count = 0;
  std::uint32_t ssn_count = 0;
  std::uint32_t rkey = 0;
  std::uint32_t immediate = 0;
  std::uint32_t invalidate_rkey = 0;
  std::uint32_t remote_srqn = 0;
  Operation operation = Operation::kSend;
  Status local_error = Status::kSuccess;  // else it failed here: completes so when it is the oldest
  std::uint8_t sge_count = 0;
  bool is_inline = false;
  bool signaled = false;
  bool solicited = false;
  bool fence = false;

  std::uint64_t end_psn() const { return first_psn + psn_count; }
  // The WQE consumes a receive WQE of the peer, hence needs a credit.
  bool needs_receive() const {
    return is_one_of<Operation::kSend, Operation::kSendImm, Operation::kSendInvalidate,
                     Operation::kWriteImm>(operation);
  }
  // The WQE sends nothing.
  bool is_local() const {
    return is_one_of<Operation::kLocalInvalidate, Operation::kBindWindow>(operation);
  }
  bool is_atomic() const {
    return is_one_of<Operation::kCompareSwap, Operation::kFetchAdd>(operation);
  }
  // The WQE completes with a response of its own, never with an acknowledgement, and takes one of
  // the peer's responder resources. max_rd_atomic counts such WQEs, and a fence waits for them.
  bool has_response() const {
    return is_one_of<Operation::kRead, Operation::kCompareSwap, Operation::kFetchAdd,
                     Operation::kAtomicWrite, Operation::kFlush>(operation);
  }
};

// Operands that only few operations have.
struct WqeOperands {
  std::uint64_t compare_add = 0, swap = 0;  // atomics
  WindowBinding binding;                    // kBindWindow
  wire::Feth flush{};                       // kFlush
  std::uint64_t flush_length = 0;
};

inline constexpr std::uint32_t kAtomicBytes = 8;
inline constexpr std::uint32_t kReadRequestBytes = 64 * 1024;

class SendQueue {
 public:
  // Throws std::bad_alloc.
  SendQueue(std::uint32_t max_wr, std::uint32_t max_sge, std::uint32_t max_inline);

  // Copies the request to the tail. False: the queue is full. The caller has checked the limits.
  bool push(const SendRequest& request);

  // WQEs have numbers that never wrap: head() is the oldest WQE, [head, assigned) have PSNs,
  // [assigned, tail) have none yet.
  std::uint64_t head() const { return head_; }
  std::uint64_t assigned() const { return assigned_; }
  std::uint64_t tail() const { return tail_; }
  bool empty() const { return head_ == tail_; }
  std::uint32_t max_wr() const { return max_wr_; }

  Wqe& at(std::uint64_t index) { return wqes_[index & mask_]; }
  const Wqe& at(std::uint64_t index) const { return wqes_[index & mask_]; }
  std::span<const Sge> sges(std::uint64_t index) const;
  const std::byte* inline_data(std::uint64_t index) const;
  // Valid only for operations that have operands.
  const WqeOperands& operands(std::uint64_t index) const { return operands_[index & mask_]; }

  // Gives the WQE at assigned() its PSNs and SSNs.
  void assign(std::uint64_t first_psn, std::uint64_t first_ssn, std::uint32_t mtu);
  void pop();
  // Drops the WQEs from `tail` on, which have no PSNs yet.
  void truncate(std::uint64_t tail) { tail_ = tail; }
  void clear();

 private:
  std::uint32_t max_wr_, max_sge_, max_inline_;
  std::uint64_t mask_ = 0;
  std::uint64_t head_ = 0, assigned_ = 0, tail_ = 0;
  // From calloc(): pages that were never used cost nothing, and most programs use far less of the
  // queue than they ask for.
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  template <typename T>
  using Array = std::unique_ptr<T[], Free>;
  Array<Wqe> wqes_;
  Array<WqeOperands> operands_;
  Array<Sge> sges_;
  Array<std::byte> inline_;
};

}  // namespace ferry::transport
