#include "hca/completion_queue.h"

#include <cerrno>

namespace ferry::hca {
namespace {

// The fields that ibv_wc has.
constexpr std::uint64_t kPlainFields = IBV_WC_STANDARD_FLAGS;

// Reads the fields of a completion; of a failed one only those that mean something. A field that the
// provider does not fill in for this kind of completion means nothing in *out either.
void read(ibv_cq_ex* cq, ibv_wc* out) {
  *out = {};
  out->wr_id = cq->wr_id;
  out->status = cq->status;
  out->vendor_err = ibv_wc_read_vendor_err(cq);
  out->qp_num = ibv_wc_read_qp_num(cq);
  if (cq->status != IBV_WC_SUCCESS) return;
  out->opcode = ibv_wc_read_opcode(cq);
  out->wc_flags = ibv_wc_read_wc_flags(cq);
  out->byte_len = ibv_wc_read_byte_len(cq);
  out->imm_data = ibv_wc_read_imm_data(cq);  // a union with invalidated_rkey
  out->src_qp = ibv_wc_read_src_qp(cq);
  out->slid = static_cast<std::uint16_t>(ibv_wc_read_slid(cq));
  out->sl = ibv_wc_read_sl(cq);
  out->dlid_path_bits = ibv_wc_read_dlid_path_bits(cq);
}

}  // namespace

int Channel::create(ibv_context* context) {
  return error_of(real = ibv_create_comp_channel(context));
}

int Channel::take(device::Cq** out) {
  ibv_cq* cq = nullptr;
  void* of = nullptr;
  if (const int error = error_of(ibv_get_cq_event(real, &cq, &of))) return error;
  *out = static_cast<Cq*>(of);
  return 0;
}

int Cq::create(ibv_context* context, const device::CqInit& init) {
  if (init.timestamps || init.ignore_overrun) return create_extended(context, init);
  ibv_comp_channel* channel =
      init.channel != nullptr ? static_cast<Channel*>(init.channel)->real : nullptr;
  return error_of(real = ibv_create_cq(context, init.cqe, this, channel, init.vector));
}

int Cq::create_extended(ibv_context* context, const device::CqInit& init) {
  ibv_cq_init_attr_ex wanted{};
  wanted.cqe = static_cast<std::uint32_t>(init.cqe);
  wanted.cq_context = this;
  if (init.channel != nullptr) wanted.channel = static_cast<Channel*>(init.channel)->real;
  wanted.comp_vector = static_cast<std::uint32_t>(init.vector);
  wanted.wc_flags = kPlainFields;
  if (init.timestamps) wanted.wc_flags |= IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  if (init.wallclock) wanted.wc_flags |= IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  if (init.ignore_overrun) {
    wanted.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    wanted.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  }
  ibv_cq_ex* cq = ibv_create_cq_ex(context, &wanted);
  if (cq == nullptr) return error_of(cq);
  real = ibv_cq_ex_to_cq(cq);
  if (init.timestamps) timed_ = cq;
  wallclock_ = init.wallclock;
  return 0;
}

int Cq::poll_one(ibv_wc* out, device::CompletionTimes* times) {
  *times = {};
  if (timed_ == nullptr) return poll(1, out);
  ibv_poll_cq_attr attributes{};
  const int error = ibv_start_poll(timed_, &attributes);
  if (error == ENOENT) return 0;
  if (error != 0) return -error;
  read(timed_, out);
  times->clock = ibv_wc_read_completion_ts(timed_);
  if (wallclock_) times->wallclock = ibv_wc_read_completion_wallclock_ns(timed_);
  ibv_end_poll(timed_);
  return 1;
}

int Cq::moderate(std::uint16_t count, std::uint16_t period) {
  ibv_modify_cq_attr attributes{};
  attributes.attr_mask = IBV_CQ_ATTR_MODERATE;
  attributes.moderate = {count, period};
  return error_of(ibv_modify_cq(real, &attributes));
}

}  // namespace ferry::hca
