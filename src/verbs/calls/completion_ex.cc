#include <climits>

#include "verbs/entry.h"
#include "verbs/objects.h"

// ibv_cq_ex: completions read field by field. One completion is current between ibv_start_poll()
// and ibv_end_poll().
namespace ferry::verbs {
namespace {

constexpr std::uint64_t kSupportedFields =
    IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_IMM | IBV_WC_EX_WITH_QP_NUM | IBV_WC_EX_WITH_SRC_QP |
    IBV_WC_EX_WITH_SLID | IBV_WC_EX_WITH_SL | IBV_WC_EX_WITH_DLID_PATH_BITS |
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK |
    IBV_WC_EX_WITH_CVLAN | IBV_WC_EX_WITH_FLOW_TAG;
constexpr std::uint64_t kTimes =
    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;

Cq& self(ibv_cq_ex* cq) {
  return *reinterpret_cast<Cq*>(cq);
}

// Shows the current completion, if the poll took one (`got` 1). 0; ENOENT: there was none; EIO: the
// poll failed.
int show(ibv_cq_ex* ex, int got) {
  const Cq& cq = self(ex);
  if (got == 0) return ENOENT;
  if (got < 0) return EIO;
  ex->wr_id = cq.current.wr_id;
  ex->status = cq.current.status;
  return 0;
}

int next_poll(ibv_cq_ex* ex) {
  Cq& cq = self(ex);
  return show(ex, cq.device->take_one(&cq.current, &cq.times));
}

// Keeps the lock only when it returns 0: then the application calls ibv_end_poll().
int start_poll(ibv_cq_ex* ex, ibv_poll_cq_attr* attributes) {
  if (attributes && attributes->comp_mask) return EINVAL;
  Cq& cq = self(ex);
  if (!cq.single_threaded) cq.poll_mutex.lock();
  const int error = show(ex, cq.device->poll_one(&cq.current, &cq.times));
  if (error && !cq.single_threaded) cq.poll_mutex.unlock();
  return error;
}

void end_poll(ibv_cq_ex* ex) {
  if (!self(ex).single_threaded) self(ex).poll_mutex.unlock();
}

int make_extended(Context& context, const ibv_cq_init_attr_ex& attributes, Cq** out) {
  constexpr std::uint32_t kSupported = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
  constexpr std::uint32_t kFlags =
      IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  if (attributes.wc_flags & ~kSupportedFields) return EOPNOTSUPP;
  if (attributes.comp_mask & ~kSupported) return EOPNOTSUPP;
  const std::uint32_t flags =
      attributes.comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS ? attributes.flags : 0;
  if (flags & ~kFlags) return EOPNOTSUPP;
  if (attributes.cqe > INT_MAX || attributes.comp_vector > INT_MAX) return EINVAL;
  Pd* parent_domain = nullptr;
  if (attributes.comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) {
    ibv_pd* pd = attributes.parent_domain;
    if (!pd || pd->context != context.application() || !to_pd(pd)->parent_of) return EINVAL;
    parent_domain = to_pd(pd);
  }
  device::CqInit wanted;
  wanted.cqe = static_cast<int>(attributes.cqe);
  wanted.timestamps = attributes.wc_flags & kTimes;
  wanted.wallclock = attributes.wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
  wanted.ignore_overrun = flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  if (int error = make_cq(context, wanted, attributes.cq_context, attributes.channel,
                          static_cast<int>(attributes.comp_vector), out)) {
    return error;
  }
  (*out)->timestamps = wanted.timestamps;
  (*out)->single_threaded = flags & IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
  (*out)->parent_domain = parent_domain;
  if (parent_domain) ++parent_domain->users;
  return 0;
}

}  // namespace

void set_cq_ex_functions(Cq& cq) {
  ibv_cq_ex& ex = cq.ex;
  ex.start_poll = start_poll;
  ex.next_poll = next_poll;
  ex.end_poll = end_poll;
  ex.read_opcode = [](ibv_cq_ex* c) { return self(c).current.opcode; };
  ex.read_vendor_err = [](ibv_cq_ex* c) { return self(c).current.vendor_err; };
  ex.read_byte_len = [](ibv_cq_ex* c) { return self(c).current.byte_len; };
  ex.read_imm_data = [](ibv_cq_ex* c) { return self(c).current.imm_data; };
  ex.read_qp_num = [](ibv_cq_ex* c) { return self(c).current.qp_num; };
  ex.read_src_qp = [](ibv_cq_ex* c) { return self(c).current.src_qp; };
  ex.read_wc_flags = [](ibv_cq_ex* c) { return self(c).current.wc_flags; };
  ex.read_slid = [](ibv_cq_ex* c) -> std::uint32_t { return self(c).current.slid; };
  ex.read_sl = [](ibv_cq_ex* c) { return self(c).current.sl; };
  ex.read_dlid_path_bits = [](ibv_cq_ex* c) { return self(c).current.dlid_path_bits; };
  ex.read_completion_ts = [](ibv_cq_ex* c) { return self(c).times.clock; };
  ex.read_completion_wallclock_ns = [](ibv_cq_ex* c) { return self(c).times.wallclock; };
  // The kernel below takes VLAN tags off; nothing steers flows; no SRQ matches tags.
  ex.read_cvlan = [](ibv_cq_ex*) -> std::uint16_t { return 0; };
  ex.read_flow_tag = [](ibv_cq_ex*) -> std::uint32_t { return 0; };
  ex.read_tm_info = [](ibv_cq_ex*, ibv_wc_tm_info* info) { *info = {}; };
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes) {
  Cq* cq = nullptr;
  const int error = guarded([&] {
    if (!attributes) return EINVAL;
    return make_extended(*context_of(context), *attributes, &cq);
  });
  return pointer_or_errno(error, error ? nullptr : &cq->ex);
}

}  // namespace ferry::verbs
