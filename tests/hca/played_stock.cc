#include "played_stock.h"

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>

#undef ibv_reg_mr
#undef ibv_query_port

namespace ferry::hca {
namespace {

PlayedStock the_stock;

bool fails(const char* name) {
  the_stock.calls.emplace_back(name);
  if (the_stock.fails != name) return false;
  the_stock.fails.clear();
  errno = the_stock.error;
  return true;
}

// The objects that live. What a test does not destroy ends before the next one.
std::map<const void*, std::shared_ptr<void>> living;

template <typename T>
T* born() {
  const auto object = std::make_shared<T>();
  living.emplace(object.get(), object);
  return object.get();
}

template <typename T>
T* made(const char* name) {
  if (fails(name)) return nullptr;
  ++the_stock.live;
  auto* object = born<T>();
  object->context = &the_stock.verbs.context;
  return object;
}

// As most functions fail: with an errno value.
template <typename T>
int ended(const char* name, T* object) {
  if (fails(name)) return the_stock.error;
  --the_stock.live;
  living.erase(object);
  return 0;
}

std::uint32_t next_number() {
  static std::uint32_t number = 0x1000;
  return number += 0x10;
}

// A CQ of the extended kind; a plain one is its beginning.
struct PlayedCq {
  ibv_cq_ex ex{};
  ibv_wc current{};
};

PlayedCq& played(ibv_cq_ex* cq) {
  return *reinterpret_cast<PlayedCq*>(cq);
}

int poll_cq(ibv_cq* /*cq*/, int count, ibv_wc* out) {
  int got = 0;
  for (; got < count && !the_stock.completions.empty(); ++got) {
    out[got] = the_stock.completions.front();
    the_stock.completions.pop_front();
  }
  return got;
}

int request_notify(ibv_cq* /*cq*/, int solicited) {
  the_stock.calls.emplace_back(solicited != 0 ? "arm solicited" : "arm any");
  return 0;
}

int post_send(ibv_qp* /*qp*/, ibv_send_wr* list, ibv_send_wr** bad) {
  the_stock.lists.push_back(list);
  for (; list != nullptr; list = list->next) {
    if (the_stock.refused_wr_id != 0 && list->wr_id == the_stock.refused_wr_id) {
      *bad = list;
      return ENOMEM;
    }
    the_stock.posted.push_back(*list);
  }
  return 0;
}

int post_recv(ibv_qp* /*qp*/, ibv_recv_wr* /*list*/, ibv_recv_wr** /*bad*/) {
  return fails("post_recv") ? the_stock.error : 0;
}

int post_srq_recv(ibv_srq* /*srq*/, ibv_recv_wr* /*list*/, ibv_recv_wr** /*bad*/) {
  return fails("post_srq_recv") ? the_stock.error : 0;
}

int query_port(ibv_context* /*context*/, std::uint8_t port, ibv_port_attr* out, std::size_t size) {
  if (port != 1) return EINVAL;
  std::memset(out, 0, size);
  out->lid = 7;
  out->gid_tbl_len = 1024;
  return 0;
}

int query_device_ex(ibv_context* /*context*/, const ibv_query_device_ex_input* /*input*/,
                    ibv_device_attr_ex* out, std::size_t size) {
  std::memset(out, 0, size);
  out->orig_attr.max_qp = 77;
  out->phys_port_cnt_ex = 1;
  out->orig_attr.device_cap_flags = IBV_DEVICE_XRC | IBV_DEVICE_SRQ_RESIZE;
  return 0;
}

ibv_qp_ex* built(ibv_qp_ex* qp, const char* call) {
  the_stock.calls.push_back(std::string(call) + " " + std::to_string(qp->wr_id));
  return qp;
}

void fill(ibv_qp_ex* ex) {
  ex->wr_start = [](ibv_qp_ex*) { the_stock.calls.emplace_back("wr_start"); };
  ex->wr_complete = [](ibv_qp_ex*) { return fails("wr_complete") ? the_stock.error : 0; };
  ex->wr_abort = [](ibv_qp_ex*) { the_stock.calls.emplace_back("wr_abort"); };
  ex->wr_send = [](ibv_qp_ex* qp) { built(qp, "wr_send"); };
  ex->wr_rdma_write = [](ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address) {
    built(qp, "wr_rdma_write");
    the_stock.calls.push_back("to " + std::to_string(rkey) + " " + std::to_string(address));
  };
  ex->wr_set_ud_addr = [](ibv_qp_ex* qp, ibv_ah* ah, std::uint32_t qpn, std::uint32_t) {
    built(qp, "wr_set_ud_addr");
    the_stock.calls.push_back("ah " + std::to_string(ah->handle) + " qpn " + std::to_string(qpn));
  };
  ex->wr_set_xrc_srqn = [](ibv_qp_ex* qp, std::uint32_t number) {
    built(qp, "wr_set_xrc_srqn");
    the_stock.calls.push_back("srqn " + std::to_string(number));
  };
  ex->wr_set_sge = [](ibv_qp_ex* qp, std::uint32_t, std::uint64_t, std::uint32_t length) {
    built(qp, "wr_set_sge");
    the_stock.calls.push_back("length " + std::to_string(length));
  };
  ex->wr_set_inline_data = [](ibv_qp_ex* qp, void* data, std::size_t length) {
    built(qp, "wr_set_inline_data");
    the_stock.calls.push_back("bytes " + std::string(static_cast<char*>(data), length));
  };
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes) {
  if (fails("ibv_create_cq_ex")) return nullptr;
  ++the_stock.live;
  auto* cq = born<PlayedCq>();
  cq->ex.context = context;
  cq->ex.cqe = static_cast<int>(attributes->cqe);
  cq->ex.cq_context = attributes->cq_context;
  the_stock.wc_flags = attributes->wc_flags;
  cq->ex.start_poll = [](ibv_cq_ex* ex, ibv_poll_cq_attr*) {
    if (poll_cq(nullptr, 1, &played(ex).current) == 0) return ENOENT;
    ex->wr_id = played(ex).current.wr_id;
    ex->status = played(ex).current.status;
    return 0;
  };
  cq->ex.end_poll = [](ibv_cq_ex*) { the_stock.calls.emplace_back("end_poll"); };
  cq->ex.read_opcode = [](ibv_cq_ex* ex) { return played(ex).current.opcode; };
  cq->ex.read_vendor_err = [](ibv_cq_ex* ex) { return played(ex).current.vendor_err; };
  cq->ex.read_byte_len = [](ibv_cq_ex* ex) { return played(ex).current.byte_len; };
  cq->ex.read_imm_data = [](ibv_cq_ex* ex) { return played(ex).current.imm_data; };
  cq->ex.read_qp_num = [](ibv_cq_ex* ex) { return played(ex).current.qp_num; };
  cq->ex.read_src_qp = [](ibv_cq_ex* ex) { return played(ex).current.src_qp; };
  cq->ex.read_wc_flags = [](ibv_cq_ex* ex) { return played(ex).current.wc_flags; };
  cq->ex.read_slid = [](ibv_cq_ex* ex) -> std::uint32_t { return played(ex).current.slid; };
  cq->ex.read_sl = [](ibv_cq_ex* ex) { return played(ex).current.sl; };
  cq->ex.read_dlid_path_bits = [](ibv_cq_ex* ex) { return played(ex).current.dlid_path_bits; };
  cq->ex.read_completion_ts = [](ibv_cq_ex*) -> std::uint64_t { return 1234; };
  cq->ex.read_completion_wallclock_ns = [](ibv_cq_ex*) -> std::uint64_t { return 5678; };
  return &cq->ex;
}

// Null: the function fails.
ibv_qp_ex* made_qp(const char* name, ibv_context* context, void* qp_context, ibv_qp_type type,
                   std::uint32_t number) {
  if (fails(name)) return nullptr;
  ++the_stock.live;
  auto* qp = born<ibv_qp_ex>();
  qp->qp_base.context = context;
  qp->qp_base.qp_context = qp_context;
  qp->qp_base.qp_type = type;
  qp->qp_base.qp_num = number;
  return qp;
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attributes) {
  ibv_qp_ex* qp = made_qp("ibv_create_qp_ex", context, attributes->qp_context, attributes->qp_type,
                          next_number());
  if (qp == nullptr) return nullptr;
  fill(qp);
  return &qp->qp_base;
}

ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attributes) {
  ibv_qp_ex* qp = made_qp("ibv_open_qp", context, attributes->qp_context, attributes->qp_type,
                          attributes->qp_num);
  return qp != nullptr ? &qp->qp_base : nullptr;
}

ibv_xrcd* open_xrcd(ibv_context* /*context*/, ibv_xrcd_init_attr* attributes) {
  auto* xrcd = made<ibv_xrcd>("ibv_open_xrcd");
  the_stock.calls.push_back("file " + std::to_string(attributes->fd) + " flags " +
                            std::to_string(attributes->oflags));
  return xrcd;
}

int close_xrcd(ibv_xrcd* xrcd) {
  return ended("ibv_close_xrcd", xrcd);
}

// An SRQ whose struct is large enough for the number that get_srq_num() gives.
struct PlayedSrq {
  ibv_srq srq{};
  std::uint32_t number = 0;
};

ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attributes) {
  if (fails("ibv_create_srq_ex")) return nullptr;
  ++the_stock.live;
  auto* played = born<PlayedSrq>();
  played->srq.context = context;
  played->srq.srq_context = attributes->srq_context;
  played->srq.pd = attributes->pd;
  played->number = next_number();
  the_stock.calls.push_back("srq type " + std::to_string(attributes->srq_type));
  return &played->srq;
}

int get_srq_num(ibv_srq* srq, std::uint32_t* out) {
  if (fails("ibv_get_srq_num")) return the_stock.error;
  *out = reinterpret_cast<PlayedSrq*>(srq)->number;
  return 0;
}

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  auto* mw = made<ibv_mw>("ibv_alloc_mw");
  if (mw != nullptr) *mw = {&the_stock.verbs.context, pd, next_number(), next_number(), type};
  return mw;
}

int bind_mw(ibv_qp* /*qp*/, ibv_mw* mw, ibv_mw_bind* /*bind*/) {
  if (fails("ibv_bind_mw")) return the_stock.error;
  ++mw->rkey;
  return 0;
}

int dealloc_mw(ibv_mw* mw) {
  return ended("ibv_dealloc_mw", mw);
}

}  // namespace

std::size_t PlayedStock::count(const std::string& call) const {
  return static_cast<std::size_t>(std::count(calls.begin(), calls.end(), call));
}

PlayedStock& stock() {
  return the_stock;
}

void reset_stock() {
  the_stock = {};
  living.clear();
  std::strcpy(the_stock.device.name, "played0");
  verbs_context& v = the_stock.verbs;
  v.sz = sizeof v;
  v.query_port = query_port;
  v.query_device_ex = query_device_ex;
  v.create_cq_ex = create_cq_ex;
  v.create_qp_ex = create_qp_ex;
  v.open_qp = open_qp;
  v.open_xrcd = open_xrcd;
  v.close_xrcd = close_xrcd;
  v.create_srq_ex = create_srq_ex;
  v.get_srq_num = get_srq_num;
  v.context.device = &the_stock.device;
  v.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  v.context.cmd_fd = 41;
  v.context.async_fd = 42;
  v.context.num_comp_vectors = 3;
  v.context.ops.poll_cq = poll_cq;
  v.context.ops.req_notify_cq = request_notify;
  v.context.ops.post_send = post_send;
  v.context.ops.post_recv = post_recv;
  v.context.ops.post_srq_recv = post_srq_recv;
  v.context.ops.alloc_mw = alloc_mw;
  v.context.ops.bind_mw = bind_mw;
  v.context.ops.dealloc_mw = dealloc_mw;
}

}  // namespace ferry::hca

using namespace ferry::hca;

extern "C" {

const char* ibv_get_device_name(ibv_device* device) {
  return device->name;
}
__be64 ibv_get_device_guid(ibv_device* /*device*/) {
  return htobe64(0x1122334455667788);
}
int ibv_get_device_index(ibv_device* /*device*/) {
  return 5;
}
ibv_context* ibv_open_device(ibv_device* /*device*/) {
  if (fails("ibv_open_device")) return nullptr;
  return &stock().verbs.context;
}
int ibv_close_device(ibv_context* /*context*/) {
  stock().calls.emplace_back("ibv_close_device");
  return 0;
}
int ibv_query_device(ibv_context* /*context*/, ibv_device_attr* out) {
  *out = {};
  out->vendor_id = stock().vendor;
  return 0;
}
int ibv_query_port(ibv_context* /*context*/, std::uint8_t /*port*/,
                   _compat_ibv_port_attr* /*out*/) {
  return EOPNOTSUPP;
}
ssize_t _ibv_query_gid_table(ibv_context* /*context*/, ibv_gid_entry* entries,
                             std::size_t max_entries, std::uint32_t /*flags*/,
                             std::size_t entry_size) {
  if (fails("ibv_query_gid_table")) return -stock().error;
  if (max_entries < 2 || entry_size != sizeof(ibv_gid_entry)) return -EINVAL;
  for (std::uint32_t index : {0u, 1u}) {
    entries[index] = {};
    entries[index].port_num = 1;
    entries[index].gid_index = index;
  }
  return 2;
}
int _ibv_query_gid_ex(ibv_context* /*context*/, std::uint32_t port, std::uint32_t index,
                      ibv_gid_entry* out, std::uint32_t /*flags*/, std::size_t size) {
  if (port != 1 || index > 1) return ENODATA;
  std::memset(out, 0, size);
  out->gid_index = index;
  return 0;
}
int ibv_query_pkey(ibv_context* /*context*/, std::uint8_t /*port*/, int /*index*/, __be16* out) {
  *out = htobe16(0xffff);
  return 0;
}
ibv_pd* ibv_alloc_pd(ibv_context* /*context*/) {
  return made<ibv_pd>("ibv_alloc_pd");
}
int ibv_dealloc_pd(ibv_pd* pd) {
  return ended("ibv_dealloc_pd", pd);
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t length, std::uint64_t /*iova*/,
                         unsigned /*access*/) {
  auto* mr = made<ibv_mr>("ibv_reg_mr_iova2");
  if (mr == nullptr) return mr;
  const std::uint32_t key = next_number();
  *mr = {&stock().verbs.context, pd, address, length, next_number(), key, key + 1};
  return mr;
}
int ibv_rereg_mr(ibv_mr* mr, int /*flags*/, ibv_pd* /*pd*/, void* /*address*/,
                 std::size_t /*length*/, int /*access*/) {
  if (fails("ibv_rereg_mr")) return IBV_REREG_MR_ERR_CMD;
  mr->lkey = next_number();
  return 0;
}
int ibv_dereg_mr(ibv_mr* mr) {
  return ended("ibv_dereg_mr", mr);
}
ibv_comp_channel* ibv_create_comp_channel(ibv_context* /*context*/) {
  auto* channel = made<ibv_comp_channel>("ibv_create_comp_channel");
  if (channel != nullptr) channel->fd = 43;
  return channel;
}
int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  return ended("ibv_destroy_comp_channel", channel);
}
ibv_cq* ibv_create_cq(ibv_context* context, int cqe, void* cq_context, ibv_comp_channel* channel,
                      int vector) {
  if (fails("ibv_create_cq")) return nullptr;
  ++stock().live;
  auto* cq = reinterpret_cast<ibv_cq*>(born<PlayedCq>());
  cq->context = context;
  cq->cqe = cqe + 1;
  cq->cq_context = cq_context;
  cq->channel = channel;
  stock().last_cq = cq;
  stock().calls.push_back("vector " + std::to_string(vector));
  return cq;
}
int ibv_resize_cq(ibv_cq* cq, int cqe) {
  if (fails("ibv_resize_cq")) return stock().error;
  cq->cqe = cqe;
  return 0;
}
int ibv_destroy_cq(ibv_cq* cq) {
  return ended("ibv_destroy_cq", reinterpret_cast<PlayedCq*>(cq));
}
int ibv_get_cq_event(ibv_comp_channel* /*channel*/, ibv_cq** cq, void** cq_context) {
  if (stock().cq_events.empty()) {
    errno = EAGAIN;
    return -1;
  }
  *cq = stock().cq_events.front();
  *cq_context = (*cq)->cq_context;
  stock().cq_events.pop_front();
  return 0;
}
void ibv_ack_cq_events(ibv_cq* /*cq*/, unsigned count) {
  stock().calls.push_back("ack_cq " + std::to_string(count));
}
ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* attributes) {
  ibv_qp_ex* qp = made_qp("ibv_create_qp", pd->context, attributes->qp_context, attributes->qp_type,
                          next_number());
  if (qp == nullptr) return nullptr;
  attributes->cap.max_send_wr += 3;
  stock().last_qp = &qp->qp_base;
  return &qp->qp_base;
}
ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  return reinterpret_cast<ibv_qp_ex*>(qp);
}
int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  if (fails("ibv_modify_qp")) return stock().error;
  if ((mask & IBV_QP_STATE) != 0) qp->state = attributes->qp_state;
  return 0;
}
int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int /*mask*/, ibv_qp_init_attr* /*init*/) {
  attributes->qp_state = qp->state;
  return 0;
}
int ibv_destroy_qp(ibv_qp* qp) {
  return ended("ibv_destroy_qp", reinterpret_cast<ibv_qp_ex*>(qp));
}
int ibv_attach_mcast(ibv_qp* /*qp*/, const ibv_gid* /*gid*/, std::uint16_t /*lid*/) {
  return fails("ibv_attach_mcast") ? stock().error : 0;
}
int ibv_detach_mcast(ibv_qp* /*qp*/, const ibv_gid* /*gid*/, std::uint16_t /*lid*/) {
  return fails("ibv_detach_mcast") ? stock().error : 0;
}
ibv_srq* ibv_create_srq(ibv_pd* /*pd*/, ibv_srq_init_attr* attributes) {
  auto* srq = made<ibv_srq>("ibv_create_srq");
  if (srq == nullptr) return srq;
  srq->srq_context = attributes->srq_context;
  attributes->attr.max_wr += 3;
  return srq;
}
int ibv_modify_srq(ibv_srq* /*srq*/, ibv_srq_attr* /*attributes*/, int /*mask*/) {
  return fails("ibv_modify_srq") ? stock().error : 0;
}
int ibv_query_srq(ibv_srq* /*srq*/, ibv_srq_attr* attributes) {
  attributes->max_wr = 9;
  return 0;
}
int ibv_destroy_srq(ibv_srq* srq) {
  return ended("ibv_destroy_srq", srq);
}
ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* /*attributes*/) {
  auto* ah = made<ibv_ah>("ibv_create_ah");
  if (ah != nullptr) *ah = {&stock().verbs.context, pd, next_number()};
  return ah;
}
int ibv_destroy_ah(ibv_ah* ah) {
  return ended("ibv_destroy_ah", ah);
}
int ibv_get_async_event(ibv_context* /*context*/, ibv_async_event* event) {
  if (stock().events.empty()) {
    errno = EAGAIN;
    return -1;
  }
  *event = stock().events.front();
  stock().events.pop_front();
  return 0;
}
void ibv_ack_async_event(ibv_async_event* event) {
  stock().calls.push_back("ack_async " + std::to_string(event->event_type));
}

}  // extern "C"
