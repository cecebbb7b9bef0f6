// Posts and polls on a device that does nothing, with or without the shadows of src/virtual before
// it: for counting what the layer costs in instructions.
//
//   virtual_layer direct|shadows|windows|moved send|receive|poll COUNT
//
// `windows`: the program has a memory window. `moved`: the shadows have left the device and entered it again.
//
// Under valgrind --tool=callgrind --instr-atstart=no only these COUNT calls are counted.
#include <valgrind/callgrind.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string_view>

#include "device/movable.h"
#include "virtual/rnic.h"

namespace {

using namespace ferry;

struct Pd final : device::Pd {};

struct Mw final : device::Mw {
  std::uint32_t rkey() const override { return 1; }
  std::uint32_t handle() const override { return 1; }
};

// Each region has keys that none had before, and each QP a number: after a move there are other ones.
struct Mr final : device::Mr {
  explicit Mr(std::uint32_t number) : key(number << 8) {}
  std::uint32_t lkey() const override { return key; }
  std::uint32_t rkey() const override { return key; }
  const std::uint32_t key;
};

struct Cq final : device::Cq {
  int poll(int, ibv_wc*) override { return 0; }
  int arm(bool) override { return 0; }
  int resize(int) override { return 0; }
  int capacity() const override { return 1; }
};

struct Qp final : device::Qp {
  std::uint32_t number = 0;
  std::uint32_t qpn() const override { return number; }
  ibv_qp_state state() const override { return IBV_QPS_RESET; }  // nothing is to be waited for
  int post_send(ibv_send_wr*, ibv_send_wr**) override { return 0; }
  int post_all(ibv_send_wr*) override { return 0; }
  int post_recv(ibv_recv_wr*, ibv_recv_wr**) override { return 0; }
  int modify(const ibv_qp_attr&, int) override { return 0; }
  int query(ibv_qp_attr*) const override { return 0; }
};

struct Context final : device::Context {
  Pd pd;
  Mw mw;
  Cq cq;
  Qp qp;
  std::deque<Mr> mrs;
  int alloc_mw(device::Pd*, ibv_mw_type, device::Mw** out) override { return give(mw, out); }
  int query_device(ibv_device_attr_ex*) override { return EOPNOTSUPP; }
  int query_port(std::uint8_t, ibv_port_attr*) override { return EOPNOTSUPP; }
  int query_gid(std::uint8_t, unsigned, ibv_gid_entry*) override { return EOPNOTSUPP; }
  int query_pkey(std::uint8_t, int, std::uint16_t*) override { return EOPNOTSUPP; }
  int alloc_pd(device::Pd** out) override { return give(pd, out); }
  int reg_mr(const device::MrInit&, device::Mr** out) override {
    return give(mrs.emplace_back(next_number++), out);
  }
  int create_cq(const device::CqInit&, device::Cq** out) override { return give(cq, out); }
  int create_qp(device::QpInit*, device::Qp** out) override {
    qp.number = next_number++;
    return give(qp, out);
  }
  int destroy(device::Object*) override { return 0; }
  void abandon() override {}

 private:
  static inline std::uint32_t next_number = 1;

  template <typename T, typename Base>
  static int give(T& object, Base** out) {
    *out = &object;
    return 0;
  }
};

struct Rnic final : device::Rnic {
  const std::string name_ = "nothing0", netdev_ = "";
  const std::string& name() const override { return name_; }
  const std::string& netdev() const override { return netdev_; }
  std::uint64_t guid() const override { return 1; }
  std::unique_ptr<device::Context> open(device::EventSink&, int* error) override {
    *error = 0;
    return std::make_unique<Context>();
  }
};

struct NoEvents : device::EventSink {
  void completion(device::Cq&) override {}
  void asynchronous(ibv_event_type, device::Object*) override {}
};

bool move(device::MovableContext& context) {
  std::uint32_t unacked = 0;
  device::Parcel parcel;
  if (context.quiesce(std::chrono::seconds(1), &unacked) != 0 || context.park(&parcel) != 0 ||
      context.unpark(parcel) != 0)
    return false;
  context.resume(false);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4)
    return std::fputs("usage: virtual_layer direct|shadows|windows|moved WHAT COUNT\n", stderr), 2;
  const std::string_view what = argv[2];
  const long count = std::atol(argv[3]);
  NoEvents events;
  int error = 0;
  const bool moved = std::string_view(argv[1]) == "moved";
  const bool windows = std::string_view(argv[1]) == "windows";
  std::unique_ptr<device::Rnic> rnic = std::make_unique<Rnic>();
  if (std::string_view(argv[1]) != "direct") rnic = std::make_unique<virt::Rnic>(std::move(rnic));
  const auto context = rnic->open(events, &error);
  device::Pd* pd = nullptr;
  device::Cq* cq = nullptr;
  device::Qp* qp = nullptr;
  device::Mr* mr = nullptr;
  device::QpInit init;
  if (context->alloc_pd(&pd) != 0 || context->create_cq({1}, &cq) != 0) return 1;
  init.pd = pd;
  init.send_cq = init.recv_cq = cq;
  init.cap = {1, 1, 1, 1, 0};
  device::MrInit region;
  region.pd = pd;
  if (context->create_qp(&init, &qp) != 0 || context->reg_mr(region, &mr) != 0) return 1;
  device::Mw* mw = nullptr;
  if (windows && context->alloc_mw(pd, IBV_MW_TYPE_2, &mw) != 0) return 1;
  if (moved && !move(static_cast<device::MovableContext&>(*context))) return 1;
  ibv_sge element{1, 1, mr->lkey()};
  ibv_send_wr send{}, *bad_send = nullptr;
  ibv_recv_wr receive{}, *bad_receive = nullptr;
  send.sg_list = receive.sg_list = &element;
  send.num_sge = receive.num_sge = 1;
  send.opcode = IBV_WR_SEND;
  ibv_wc completion;
  CALLGRIND_START_INSTRUMENTATION;
  for (long i = 0; i < count; ++i) {
    if (what == "send") qp->post_send(&send, &bad_send);
    if (what == "receive") qp->post_recv(&receive, &bad_receive);
    if (what == "poll") cq->poll(1, &completion);
  }
  CALLGRIND_STOP_INSTRUMENTATION;
  return 0;
}
