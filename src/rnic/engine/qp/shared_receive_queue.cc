#include "rnic/engine/qp/shared_receive_queue.h"

#include <array>
#include <bit>
#include <cerrno>
#include <new>

#include "rnic/engine/engine.h"
#include "rnic/engine/requests/work_requests.h"

namespace ferry::rnic {

int SharedReceiveQueue::grant(ibv_srq_attr* attributes) {
  if (attributes->max_wr == 0 || attributes->max_wr > kMaxWr || attributes->max_sge > kMaxSge) {
    return EINVAL;
  }
  attributes->max_wr = std::bit_ceil(attributes->max_wr);
  if (attributes->max_sge == 0) attributes->max_sge = 1;
  return 0;
}

SharedReceiveQueue::SharedReceiveQueue(Engine& engine, device::EventSink& sink, const Init& init)
    : engine_(engine),
      sink_(sink),
      init_(init),
      max_wr_(init.max_wr),
      receives_(init.max_wr, init.max_sge) {}

int SharedReceiveQueue::post_recv(ibv_recv_wr* list, ibv_recv_wr** bad) {
  if (engine_.abandoned()) {
    *bad = list;
    return ENODEV;
  }
  Engine::Lock lock(engine_);
  return push_receives(list, init_.max_sge, receives_, bad);
}

int SharedReceiveQueue::modify(const ibv_srq_attr& attributes, int mask) try {
  if (engine_.abandoned()) return ENODEV;
  if ((mask & ~(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT)) != 0) return EINVAL;
  Engine::Lock lock(engine_);
  std::uint32_t max_wr = max_wr_;
  if ((mask & IBV_SRQ_MAX_WR) != 0) {
    ibv_srq_attr wanted = attributes;
    wanted.max_sge = init_.max_sge;
    if (const int error = grant(&wanted); error != 0) return error;
    max_wr = wanted.max_wr;
    if (max_wr < receives_.count()) return EINVAL;
  }
  if ((mask & IBV_SRQ_LIMIT) != 0 && attributes.srq_limit > max_wr) return EINVAL;
  if (max_wr != max_wr_) receives_.resize(max_wr);
  max_wr_ = max_wr;
  if ((mask & IBV_SRQ_LIMIT) != 0) limit_ = attributes.srq_limit;
  check_limit();
  return 0;
} catch (const std::bad_alloc&) {
  return ENOMEM;
}

int SharedReceiveQueue::query(ibv_srq_attr* attributes) const {
  if (engine_.abandoned()) return ENODEV;
  Engine::Lock lock(engine_);
  *attributes = {max_wr_, init_.max_sge, limit_};
  return 0;
}

// One shot (clause 10.2.9.3).
void SharedReceiveQueue::check_limit() {
  if (receives_.count() >= limit_) return;
  limit_ = 0;
  sink_.asynchronous(IBV_EVENT_SRQ_LIMIT_REACHED, this);
}

bool SharedReceiveQueue::take(transport::ReceiveRequest* out) {
  if (!receives_.pop(out)) return false;
  check_limit();
  return true;
}

void SharedReceiveQueue::check_overflow() {
  if (failed_ || init_.cq == nullptr || !init_.cq->overflowed()) return;
  failed_ = true;
  sink_.asynchronous(IBV_EVENT_SRQ_ERR, this);
}

void SharedReceiveQueue::save(wire::ByteWriter& out) const {
  out.put(limit_);
  out.put(static_cast<std::uint8_t>(failed_));
  save_receives(receives_, out);
}

bool SharedReceiveQueue::load(wire::ByteReader& in) {
  limit_ = in.get<std::uint32_t>();
  failed_ = in.get<std::uint8_t>() != 0;
  return limit_ <= max_wr_ && load_receives(in, max_wr_, init_.max_sge, &receives_);
}

}  // namespace ferry::rnic
