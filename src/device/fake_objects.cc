#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <string>
#include <utility>

#include "device/fake.h"
#include "device/fake_format.h"

// The CQs, SRQs and QPs of the fake.
namespace ferry::device::fake {

// --- CQ ------------------------------------------------------------------------------------------

int FakeCq::poll(int count, ibv_wc* out) {
  std::lock_guard lock(mutex_);
  int taken = 0;
  for (; taken < count && !completions_.empty(); ++taken) {
    out[taken] = completions_.front();
    completions_.pop_front();
  }
  return taken == 0 && overflowed_ ? -EOVERFLOW : taken;
}

int FakeCq::poll_one(ibv_wc* out, CompletionTimes* times) {
  const int got = poll(1, out);
  std::lock_guard lock(mutex_);
  if (got == 1) ++polled_;
  *times = init.timestamps ? CompletionTimes{polled_, 1000 + polled_} : CompletionTimes{};
  return got;
}

int FakeCq::arm(bool solicited_only) {
  log_->add("arm", solicited_only ? "solicited" : "any");
  if (const int error = log_->take_failure("arm"); error != 0) return error;
  std::lock_guard lock(mutex_);
  (solicited_only ? armed_solicited_ : armed_any_) = true;
  return 0;
}

int FakeCq::resize(int cqe) {
  log_->add("resize", std::to_string(cqe));
  if (const int error = log_->take_failure("resize"); error != 0) return error;
  std::lock_guard lock(mutex_);
  capacity_ = cqe;
  return 0;
}

int FakeCq::moderate(std::uint16_t count, std::uint16_t period) {
  log_->add("moderate", format("count=%u period=%u", count, period));
  return log_->take_failure("moderate");
}

void FakeCq::push(const ibv_wc& completion, bool solicited) {
  bool raise = false;
  {
    std::lock_guard lock(mutex_);
    completions_.push_back(completion);
    raise = armed_any_ || (armed_solicited_ && (solicited || completion.status != IBV_WC_SUCCESS));
    if (raise) armed_any_ = armed_solicited_ = false;
  }
  if (!raise) return;
  if (init.channel != nullptr) {
    static_cast<FakeChannel*>(init.channel)->waiting.push({IBV_EVENT_CQ_ERR, this});
  } else {
    sink_.completion(*this);
  }
}

void FakeCq::overflow() {
  {
    std::lock_guard lock(mutex_);
    overflowed_ = true;
  }
  sink_.asynchronous(IBV_EVENT_CQ_ERR, this);
}

bool FakeCq::armed() const {
  std::lock_guard lock(mutex_);
  return armed_any_ || armed_solicited_;
}

// --- events --------------------------------------------------------------------------------------

Waiting::Waiting() {
  if (::pipe2(ends_, O_CLOEXEC | O_NONBLOCK) != 0) throw std::bad_alloc();
}

Waiting::~Waiting() {
  for (const int end : ends_) ::close(end);
}

void Waiting::push(const AsynchronousEvent& event) {
  std::lock_guard lock(mutex_);
  events_.push_back(event);
  const char byte = 0;
  if (::write(ends_[1], &byte, 1) != 1) events_.pop_back();
}

int Waiting::take(AsynchronousEvent* out) {
  std::lock_guard lock(mutex_);
  char byte = 0;
  if (::read(ends_[0], &byte, 1) != 1) return EAGAIN;
  *out = events_.front();
  events_.pop_front();
  return 0;
}

int FakeChannel::take(Cq** out) {
  AsynchronousEvent event;
  if (const int error = waiting.take(&event)) return error;
  *out = static_cast<Cq*>(event.object);
  return 0;
}

// --- SRQ -----------------------------------------------------------------------------------------

int FakeSrq::post_recv(ibv_recv_wr* list, ibv_recv_wr** bad) {
  for (; list != nullptr; list = list->next) {
    log_->add("post_srq_recv", format("wr_id=%llu", static_cast<unsigned long long>(list->wr_id)));
    if (const int error = log_->take_failure("post_srq_recv"); error != 0) {
      *bad = list;
      return error;
    }
    std::lock_guard lock(mutex_);
    received_.push_back({list->wr_id, {list->sg_list, list->sg_list + list->num_sge}});
  }
  return 0;
}

int FakeSrq::modify(const ibv_srq_attr& attributes, int mask) {
  log_->add("modify_srq", format("mask=%#x max_wr=%u limit=%u", static_cast<unsigned>(mask),
                                 attributes.max_wr, attributes.srq_limit));
  if (const int error = log_->take_failure("modify_srq"); error != 0) return error;
  std::lock_guard lock(mutex_);
  if ((mask & IBV_SRQ_MAX_WR) != 0) attributes_.max_wr = attributes.max_wr;
  if ((mask & IBV_SRQ_LIMIT) != 0) attributes_.srq_limit = attributes.srq_limit;
  return 0;
}

int FakeSrq::query(ibv_srq_attr* attributes) const {
  log_->add("query_srq");
  if (const int error = log_->take_failure("query_srq"); error != 0) return error;
  std::lock_guard lock(mutex_);
  *attributes = attributes_;
  return 0;
}

std::vector<Received> FakeSrq::received() const {
  std::lock_guard lock(mutex_);
  return received_;
}

// --- QP ------------------------------------------------------------------------------------------

ibv_qp_state FakeQp::state() const {
  std::lock_guard lock(mutex_);
  return attributes_.qp_state;
}

int FakeQp::post_send(ibv_send_wr* list, ibv_send_wr** bad) {
  for (; list != nullptr; list = list->next) {
    log_->add("post_send", format("qpn=%#x wr_id=%llu opcode=%d", qpn_,
                                  static_cast<unsigned long long>(list->wr_id), list->opcode));
    if (const int error = log_->take_failure("post_send"); error != 0) {
      *bad = list;
      return error;
    }
    keep(*list);
  }
  return 0;
}

int FakeQp::post_all(ibv_send_wr* list) {
  log_->add("post_all", format("qpn=%#x", qpn_));
  if (const int error = log_->take_failure("post_all"); error != 0) return error;
  for (; list != nullptr; list = list->next) keep(*list);
  return 0;
}

void FakeQp::keep(const ibv_send_wr& request) {
  Sent copy{request, {request.sg_list, request.sg_list + request.num_sge}, {}};
  if ((request.send_flags & IBV_SEND_INLINE) != 0) {
    for (const ibv_sge& sge : copy.sges) {
      const auto* data = reinterpret_cast<const std::byte*>(sge.addr);
      copy.inline_data.insert(copy.inline_data.end(), data, data + sge.length);
    }
  }
  copy.wr.next = nullptr;
  copy.wr.sg_list = nullptr;
  std::lock_guard lock(mutex_);
  sent_.push_back(std::move(copy));
}

int FakeQp::post_recv(ibv_recv_wr* list, ibv_recv_wr** bad) {
  for (; list != nullptr; list = list->next) {
    log_->add("post_recv",
              format("qpn=%#x wr_id=%llu", qpn_, static_cast<unsigned long long>(list->wr_id)));
    if (const int error = log_->take_failure("post_recv"); error != 0) {
      *bad = list;
      return error;
    }
    std::lock_guard lock(mutex_);
    received_.push_back({list->wr_id, {list->sg_list, list->sg_list + list->num_sge}});
  }
  return 0;
}

int FakeQp::modify(const ibv_qp_attr& attributes, int mask) {
  log_->add("modify", format("qpn=%#x mask=%#x state=%d", qpn_, static_cast<unsigned>(mask),
                             attributes.qp_state));
  if (const int error = log_->take_failure("modify"); error != 0) return error;
  std::lock_guard lock(mutex_);
  const ibv_qp_state before = attributes_.qp_state;
  attributes_ = attributes;
  if ((mask & IBV_QP_STATE) == 0) attributes_.qp_state = before;
  return 0;
}

int FakeQp::query(ibv_qp_attr* attributes) const {
  log_->add("query_qp", format("qpn=%#x", qpn_));
  if (const int error = log_->take_failure("query_qp"); error != 0) return error;
  std::lock_guard lock(mutex_);
  *attributes = attributes_;
  attributes->cap = init.cap;
  return 0;
}

int FakeQp::limit_rate(const ibv_qp_rate_limit_attr& attributes) {
  log_->add("limit_rate", format("qpn=%#x rate=%u burst=%u", qpn_, attributes.rate_limit,
                                 attributes.max_burst_sz));
  return log_->take_failure("limit_rate");
}

int FakeQp::attach_mcast(const ibv_gid& gid, std::uint16_t lid) {
  log_->add("attach_mcast",
            format("qpn=%#x gid=%02x..%02x lid=%u", qpn_, gid.raw[0], gid.raw[15], lid));
  return log_->take_failure("attach_mcast");
}

int FakeQp::detach_mcast(const ibv_gid& gid, std::uint16_t lid) {
  log_->add("detach_mcast",
            format("qpn=%#x gid=%02x..%02x lid=%u", qpn_, gid.raw[0], gid.raw[15], lid));
  return log_->take_failure("detach_mcast");
}

int FakeQp::bind_mw(Mw* window, const MwBind& bind, std::uint32_t* rkey) {
  log_->add("bind_mw", format("qpn=%#x handle=%#x length=%llu access=%#x", qpn_, window->handle(),
                              static_cast<unsigned long long>(bind.length), bind.access));
  if (const int error = log_->take_failure("bind_mw"); error != 0) return error;
  ++static_cast<FakeMw*>(window)->bound;
  *rkey = window->rkey();
  return 0;
}

std::vector<Sent> FakeQp::sent() const {
  std::lock_guard lock(mutex_);
  return sent_;
}

std::vector<Received> FakeQp::received() const {
  std::lock_guard lock(mutex_);
  return received_;
}

}  // namespace ferry::device::fake
