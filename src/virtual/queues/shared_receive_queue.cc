#include "virtual/queues/shared_receive_queue.h"

#include <new>
#include <utility>

#include "virtual/queues/completion_queue.h"

namespace ferry::virt {

void Srq::rename_by(const Numbers& numbers) {
  const auto lock = gate().lock();
  renamed_.reset();
  if (numbers.lkeys.is_used()) {
    renamed_ = std::make_unique<RenamedSrq>(*inner, numbers.lkeys, init_.attributes.max_sge);
    receives_.direct(*renamed_);
  } else {
    receives_.direct(*inner);
  }
}

void Srq::resize(std::uint32_t max_wr) {
  if (index_ == nullptr) return receives_.resize(max_wr, max_wr);
  const auto lock = index_->lock();
  // Completions that wait in a CQ may be of receives before the latest `max_wr`; and the index sees half of them.
  receives_.resize(max_wr, 4 * max_wr);
}

void Srq::find_receives() {
  std::lock_guard lock(resizing_);
  if (index_ != nullptr) return;
  index_ = std::make_unique<ReceiveIndex>();
  resize(init_.attributes.max_wr);
}

std::optional<PostedReceives::Receive> Srq::posted_receive(std::uint64_t wr_id) try {
  return index_ != nullptr ? receives_.find(*index_, wr_id) : std::nullopt;
} catch (const std::bad_alloc&) {
  return std::nullopt;
}

int Srq::modify(const ibv_srq_attr& attributes, int mask) {
  const Calls::Call call(calls_);
  std::lock_guard lock(resizing_);
  // Makes room first: a thread may post more receives as soon as the device takes more.
  if ((mask & IBV_SRQ_MAX_WR) != 0 && attributes.max_wr > init_.attributes.max_wr)
    resize(attributes.max_wr);
  if (const int error = inner->modify(attributes, mask)) return error;
  if ((mask & IBV_SRQ_MAX_WR) == 0) return 0;
  ibv_srq_attr granted{};
  if (const int error = inner->query(&granted)) return error;
  resize(granted.max_wr);
  init_.attributes.max_wr = granted.max_wr;
  return 0;
}

int Srq::query(ibv_srq_attr* attributes) const {
  const Calls::Call call(calls_);
  return inner->query(attributes);
}

int Srq::prepare_to_empty(device::Context& device, const Numbers* numbers) {
  sender_ = std::make_unique<SelfSender>(device);
  device::Pd& pd = *behind(init_.pd);
  if (init_.xrcd == nullptr) return sender_->open(pd, *inner);
  const auto is_known = [&](std::uint32_t qpn) {
    return numbers != nullptr && numbers->qpns.has_index_of(qpn);
  };
  const auto room = static_cast<std::uint32_t>(behind(init_.cq)->capacity());
  return sender_->open_xrc(pd, *behind(init_.xrcd), *inner, room, is_known);
}

int Srq::empty(std::chrono::steady_clock::time_point deadline) {
  receives_.wait(true);
  waiting_ = 0;
  ibv_srq_attr attributes{};
  if (const int error = inner->query(&attributes)) return error;
  limit_ = attributes.srq_limit;
  attributes.srq_limit = 0;
  if (limit_ != 0) {
    if (const int error = inner->modify(attributes, IBV_SRQ_LIMIT)) return error;
  }
  return take_all(deadline);
}

// Completions of receives from an XRC SRQ come to the application's CQ, which is stopped, and has been swept.
int Srq::take_all(std::chrono::steady_clock::time_point deadline) {
  if (init_.xrcd == nullptr) return sender_->empty(deadline, &waiting_);
  target_ = sender_->target();
  returns_.count_taken(target_);
  return sender_->empty(deadline, [&] {
    static_cast<Cq*>(init_.cq)->sweep();
    return waiting_ = returns_.taken(target_);
  });
}

void Srq::forget_taken() {
  if (target_ != 0) returns_.forget_taken(std::exchange(target_, 0));
}

void Srq::leave_device() {
  sender_.reset();
  receives_.leave(waiting_);
  renamed_.reset();
  inner = nullptr;
}

device::SrqInit Srq::remade() const {
  device::SrqInit init = init_;
  init.pd = behind(init_.pd);
  init.xrcd = behind(init_.xrcd);
  init.cq = behind(init_.cq);
  init.attributes.srq_limit = 0;  // resume() sets it, when receives wait again
  return init;
}

int Srq::resume() {
  sender_.reset();
  int error = receives_.pass();
  if (error != 0 || limit_ == 0) return error;
  ibv_srq_attr attributes{};
  attributes.srq_limit = std::exchange(limit_, 0);
  return inner->modify(attributes, IBV_SRQ_LIMIT);
}

}  // namespace ferry::virt
