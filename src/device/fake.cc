#include "device/fake.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "device/fake_format.h"
#include "device/record.h"

namespace ferry::device::fake {
namespace {

// Adds `change` to the users of each object that a QP uses.
void count_uses(const QpInit& init, int change) {
  if (init.pd != nullptr) static_cast<FakePd*>(init.pd)->users += change;
  if (init.send_cq != nullptr) static_cast<FakeCq*>(init.send_cq)->users += change;
  if (init.recv_cq != nullptr) static_cast<FakeCq*>(init.recv_cq)->users += change;
  if (init.srq != nullptr) static_cast<FakeSrq*>(init.srq)->users += change;
  if (init.xrcd != nullptr) static_cast<FakeXrcd*>(init.xrcd)->users += change;
}

}  // namespace

void Log::add(std::string function, std::string detail) {
  std::lock_guard lock(mutex_);
  calls_.push_back({std::move(function), std::move(detail)});
}

std::vector<Call> Log::calls() const {
  std::lock_guard lock(mutex_);
  return calls_;
}

std::size_t Log::count(const std::string& function) const {
  std::lock_guard lock(mutex_);
  return static_cast<std::size_t>(std::count_if(
      calls_.begin(), calls_.end(), [&](const Call& call) { return call.function == function; }));
}

std::string Log::last(const std::string& function) const {
  std::lock_guard lock(mutex_);
  for (auto at = calls_.rbegin(); at != calls_.rend(); ++at) {
    if (at->function == function) return at->detail;
  }
  return {};
}

void Log::clear() {
  std::lock_guard lock(mutex_);
  calls_.clear();
}

void Log::fail_next(const std::string& function, int error) {
  std::lock_guard lock(mutex_);
  failures_[function].push_back(error);
}

int Log::take_failure(const std::string& function) {
  std::lock_guard lock(mutex_);
  std::deque<int>& errors = failures_[function];
  if (errors.empty()) return 0;
  const int error = errors.front();
  errors.pop_front();
  return error;
}

// --- Context -------------------------------------------------------------------------------------

FakeContext::FakeContext(std::shared_ptr<Log> log, EventSink& sink, MoveSink& moves,
                         std::uint64_t guid, bool own_descriptors)
    : log_(std::move(log)), sink_(sink), moves_(moves) {
  if (own_descriptors) events = std::make_unique<Waiting>();
  ibv_device_attr& a = device_attributes.orig_attr;
  a.node_guid = __builtin_bswap64(guid);
  a.max_qp = a.max_cq = a.max_mr = a.max_pd = 1024;
  a.max_qp_wr = 4096;
  a.max_cqe = 65535;
  a.max_sge = 16;
  a.phys_port_cnt = 1;
  port_attributes.state = IBV_PORT_ACTIVE;
  port_attributes.max_mtu = IBV_MTU_4096;
  port_attributes.active_mtu = IBV_MTU_1024;
  port_attributes.gid_tbl_len = 1;
  port_attributes.pkey_tbl_len = 1;
  port_attributes.link_layer = IBV_LINK_LAYER_ETHERNET;
  gids.push_back({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 1});
}

FakeContext::~FakeContext() {
  log_->add("close");
}

template <typename T>
T* FakeContext::keep(std::unique_ptr<T> object) {
  T* result = object.get();
  std::lock_guard lock(mutex_);
  objects_.emplace(result, std::move(object));
  return result;
}

int FakeContext::create_channel(Channel** out) {
  if (!events) return EOPNOTSUPP;
  log_->add("create_channel");
  if (const int error = log_->take_failure("create_channel"); error != 0) return error;
  *out = keep(std::make_unique<FakeChannel>());
  return 0;
}

int FakeContext::asynchronous_descriptor() const {
  return events ? events->descriptor() : -1;
}

int FakeContext::take_asynchronous(AsynchronousEvent* out) {
  return events->take(out);
}

void FakeContext::acknowledge(const AsynchronousEvent& event) {
  log_->add("acknowledge", std::to_string(event.type));
}

int FakeContext::query_device(ibv_device_attr_ex* out) {
  log_->add("query_device");
  if (const int error = log_->take_failure("query_device"); error != 0) return error;
  *out = device_attributes;
  return 0;
}

int FakeContext::query_port(std::uint8_t port_number, ibv_port_attr* out) {
  log_->add("query_port", std::to_string(port_number));
  if (const int error = log_->take_failure("query_port"); error != 0) return error;
  if (port_number != 1) return EINVAL;
  *out = port_attributes;
  return 0;
}

int FakeContext::query_gid(std::uint8_t port_number, unsigned index, ibv_gid_entry* out) {
  log_->add("query_gid", std::to_string(index));
  if (const int error = log_->take_failure("query_gid"); error != 0) return error;
  if (port_number != 1 || index >= gids.size()) return EINVAL;
  *out = {};
  std::memcpy(out->gid.raw, gids[index].data(), 16);
  out->gid_index = index;
  out->port_num = port_number;
  out->gid_type = IBV_GID_TYPE_ROCE_V2;
  return 0;
}

int FakeContext::query_pkey(std::uint8_t port_number, int index, std::uint16_t* out) {
  log_->add("query_pkey", std::to_string(index));
  if (const int error = log_->take_failure("query_pkey"); error != 0) return error;
  if (port_number != 1 || index != 0) return EINVAL;
  *out = 0xFFFF;
  return 0;
}

int FakeContext::alloc_pd(Pd** out) {
  log_->add("alloc_pd");
  if (const int error = log_->take_failure("alloc_pd"); error != 0) return error;
  *out = keep(std::make_unique<FakePd>());
  return 0;
}

int FakeContext::reg_mr(const MrInit& init, Mr** out) {
  log_->add("reg_mr", format("length=%zu access=%#x iova=%#llx", init.length, init.access,
                             static_cast<unsigned long long>(init.iova)));
  if (const int error = log_->take_failure("reg_mr"); error != 0) return error;
  auto mr = std::make_unique<FakeMr>();
  mr->init = init;
  mr->key = next_key_ += 0x100;
  ++static_cast<FakePd*>(init.pd)->users;
  *out = keep(std::move(mr));
  return 0;
}

int FakeContext::create_cq(const CqInit& init, Cq** out) {
  log_->add("create_cq", format("%d timestamps=%d ignore_overrun=%d", init.cqe, init.timestamps,
                                init.ignore_overrun));
  if (const int error = log_->take_failure("create_cq"); error != 0) return error;
  *out = keep(std::make_unique<FakeCq>(log_, sink_, init));
  return 0;
}

int FakeContext::create_qp(QpInit* init, Qp** out) {
  log_->add("create_qp", format("type=%d send_wr=%u recv_wr=%u sig_all=%d", init->type,
                                init->cap.max_send_wr, init->cap.max_recv_wr, init->sq_sig_all));
  if (const int error = log_->take_failure("create_qp"); error != 0) return error;
  count_uses(*init, 1);
  *out = keep(std::make_unique<FakeQp>(log_, *init, next_qpn_++));
  return 0;
}

int FakeContext::alloc_null_mr(Pd* pd, Mr** out) {
  log_->add("alloc_null_mr");
  if (const int error = log_->take_failure("alloc_null_mr"); error != 0) return error;
  auto mr = std::make_unique<FakeMr>();
  mr->init.pd = pd;
  mr->key = next_key_ += 2;
  ++static_cast<FakePd*>(pd)->users;
  *out = keep(std::move(mr));
  return 0;
}

int FakeContext::rereg_mr(Mr* mr, int flags, const MrInit& init) {
  log_->add("rereg_mr", format("flags=%d length=%zu access=%#x", flags, init.length, init.access));
  if (const int error = log_->take_failure("rereg_mr"); error != 0) return error;
  auto* fake = static_cast<FakeMr*>(mr);
  if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) {
    --static_cast<FakePd*>(fake->init.pd)->users;
    fake->init.pd = init.pd;
    ++static_cast<FakePd*>(init.pd)->users;
  }
  fake->key += 0x10;
  return 0;
}

int FakeContext::alloc_mw(Pd* pd, ibv_mw_type type, Mw** out) {
  log_->add("alloc_mw", std::to_string(type));
  if (const int error = log_->take_failure("alloc_mw"); error != 0) return error;
  auto* owner = static_cast<FakePd*>(pd);
  ++owner->users;
  *out = keep(std::make_unique<FakeMw>(owner, type, next_handle_++));
  return 0;
}

int FakeContext::create_ah(Pd* pd, const ibv_ah_attr& attributes, Ah** out) {
  log_->add("create_ah", format("sgid_index=%u", attributes.grh.sgid_index));
  if (const int error = log_->take_failure("create_ah"); error != 0) return error;
  auto* owner = static_cast<FakePd*>(pd);
  ++owner->users;
  *out = keep(std::make_unique<FakeAh>(owner, attributes, next_handle_++));
  return 0;
}

int FakeContext::create_srq(SrqInit* init, Srq** out) {
  log_->add("create_srq", format("max_wr=%u max_sge=%u xrc=%d", init->attributes.max_wr,
                                 init->attributes.max_sge, init->xrcd != nullptr));
  if (const int error = log_->take_failure("create_srq"); error != 0) return error;
  init->attributes.max_wr = std::max(init->attributes.max_wr, 8u);
  ++static_cast<FakePd*>(init->pd)->users;
  if (init->xrcd != nullptr) ++static_cast<FakeXrcd*>(init->xrcd)->users;
  if (init->cq != nullptr) ++static_cast<FakeCq*>(init->cq)->users;
  *out =
      keep(std::make_unique<FakeSrq>(log_, sink_, *init, init->xrcd != nullptr ? next_srqn_++ : 0));
  return 0;
}

int FakeContext::open_xrcd(const XrcdInit& init, Xrcd** out) {
  log_->add("open_xrcd", format("file=%d flags=%d", init.file >= 0, init.flags));
  if (const int error = log_->take_failure("open_xrcd"); error != 0) return error;
  *out = keep(std::make_unique<FakeXrcd>());
  return 0;
}

int FakeContext::open_qp(Xrcd* xrcd, std::uint32_t qpn, Qp** out) {
  log_->add("open_qp", std::to_string(qpn));
  if (const int error = log_->take_failure("open_qp"); error != 0) return error;
  QpInit init;
  init.type = IBV_QPT_XRC_RECV;
  init.xrcd = xrcd;
  count_uses(init, 1);
  *out = keep(std::make_unique<FakeQp>(log_, init, qpn));
  return 0;
}

int FakeContext::destroy(Object* object) {
  std::lock_guard lock(mutex_);
  const auto at = objects_.find(object);
  if (at == objects_.end()) {
    log_->add("destroy", "unknown");
    return EINVAL;
  }
  const char* kind = "pd";
  if (auto* pd = dynamic_cast<FakePd*>(object); pd != nullptr && pd->users > 0) return EBUSY;
  if (auto* xrcd = dynamic_cast<FakeXrcd*>(object)) {
    if (xrcd->users > 0) return EBUSY;
    kind = "xrcd";
  }
  if (auto* cq = dynamic_cast<FakeCq*>(object)) {
    if (cq->users > 0) return EBUSY;
    kind = "cq";
  }
  if (auto* srq = dynamic_cast<FakeSrq*>(object); srq != nullptr && srq->users > 0) return EBUSY;
  if (const int error = log_->take_failure("destroy"); error != 0) return error;
  if (auto* mr = dynamic_cast<FakeMr*>(object)) {
    --static_cast<FakePd*>(mr->init.pd)->users;
    kind = "mr";
  }
  if (auto* window = dynamic_cast<FakeMw*>(object)) {
    --window->pd->users;
    kind = "mw";
  }
  if (auto* ah = dynamic_cast<FakeAh*>(object)) {
    --ah->pd->users;
    kind = "ah";
  }
  if (auto* srq = dynamic_cast<FakeSrq*>(object)) {
    --static_cast<FakePd*>(srq->init.pd)->users;
    if (srq->init.xrcd != nullptr) --static_cast<FakeXrcd*>(srq->init.xrcd)->users;
    if (srq->init.cq != nullptr) --static_cast<FakeCq*>(srq->init.cq)->users;
    kind = "srq";
  }
  if (auto* qp = dynamic_cast<FakeQp*>(object)) {
    count_uses(qp->init, -1);
    kind = "qp";
  }
  log_->add("destroy", kind);
  objects_.erase(at);
  return 0;
}

void FakeContext::prepare() {
  log_->add("prepare");
}

int FakeContext::quiesce(std::chrono::nanoseconds, std::uint32_t* out) {
  log_->add("quiesce");
  if (const int error = log_->take_failure("quiesce"); error != 0) return error;
  suspended_ = true;
  if (last_letter) write(*last_letter);
  *out = unacked_psns;
  return 0;
}

int FakeContext::park(Parcel* out) {
  log_->add("park");
  if (const int error = log_->take_failure("park"); error != 0) return error;
  if (!suspended_) return EINVAL;
  *out = std::exchange(parcel, {});
  return 0;
}

int FakeContext::unpark(const Parcel& taken) {
  log_->add("unpark", std::to_string(taken.descriptors.size()));
  if (const int error = log_->take_failure("unpark"); error != 0) return error;
  parcel = taken;
  return 0;
}

void FakeContext::resume(bool rollback) {
  log_->add("resume", rollback ? "rollback" : "move");
  suspended_ = false;
}

void FakeContext::abandon() {
  log_->add("abandon");
}

// Writes the record of the context alone: how a device describes its objects is its own affair.
int FakeContext::describe(std::vector<std::byte>* out, int* count) {
  log_->add("describe");
  if (const int error = log_->take_failure("describe"); error != 0) return error;
  put_record(out, ObjectType::kContext, 0, {});
  *count = 1;
  return 0;
}

int FakeContext::restore(ObjectType type, RestoreCommand command, std::span<const std::byte> record,
                         Object** object) {
  log_->add("restore", format("type=%d command=%d bytes=%zu", static_cast<int>(type),
                              static_cast<int>(command), record.size()));
  if (const int error = log_->take_failure("restore"); error != 0) return error;
  Record parsed;
  if (!next_record(&record, &parsed) || parsed.type != type) return EINVAL;
  if (command == RestoreCommand::kCreate && type == ObjectType::kPd) {
    *object = keep(std::make_unique<FakePd>());
  }
  return 0;
}

void FakeContext::status(std::vector<QpStatus>* out) {
  log_->add("status");
  std::lock_guard lock(mutex_);
  for (const auto& [object, owner] : objects_) {
    if (const auto* qp = dynamic_cast<const FakeQp*>(object)) {
      QpStatus status;
      status.qpn = status.wire_qpn = qp->qpn();
      status.type = static_cast<std::uint8_t>(qp->init.type);
      status.state = static_cast<std::uint8_t>(qp->state());
      status.resume_pending = resume_pending;
      out->push_back(status);
    }
  }
}

Parcel FakeContext::place() {
  return {parcel.kind, {}, parcel.bytes};
}

void FakeContext::suspend_peers() {
  log_->add("suspend_peers");
}

bool FakeContext::peers_are_suspended() {
  return peers_suspended;
}

void FakeContext::release_peers() {
  log_->add("release_peers");
}

void FakeContext::take_letters(std::vector<Letter>* out) {
  std::lock_guard lock(mutex_);
  out->insert(out->end(), written_.begin(), written_.end());
  written_.clear();
}

int FakeContext::deliver(const Letter& letter) {
  std::lock_guard lock(mutex_);
  delivered_.push_back(letter);
  return letter.bytes.empty() ? EINVAL : 0;
}

void FakeContext::write(const Letter& letter) {
  {
    std::lock_guard lock(mutex_);
    written_.push_back(letter);
  }
  moves_.has_letters();
}

void FakeContext::repeat_letters() {
  log_->add("repeat_letters");
}

void FakeContext::moved(const MovedNames& names) {
  log_->add("moved " + std::to_string(names.gids.size()) + " " +
            std::to_string(names.datagram_qps.size()));
}

DatagramQps FakeContext::moved_datagram_qps() {
  std::lock_guard lock(mutex_);
  return datagram_qps_;
}

void FakeContext::move(const DatagramQps& qps) {
  {
    std::lock_guard lock(mutex_);
    datagram_qps_ = qps;
  }
  moves_.has_letters();
}

std::vector<Letter> FakeContext::delivered() {
  std::lock_guard lock(mutex_);
  return delivered_;
}

void FakeContext::sought(std::vector<port::Endpoint>* out) {
  std::lock_guard lock(mutex_);
  out->insert(out->end(), sought_.begin(), sought_.end());
  sought_.clear();
}

void FakeContext::seek(const port::Endpoint& name) {
  {
    std::lock_guard lock(mutex_);
    sought_.push_back(name);
  }
  moves_.seeks();
}

void FakeContext::located(const port::Endpoint& name, const port::Endpoint& location,
                          std::uint32_t epoch) {
  std::lock_guard lock(mutex_);
  told_.push_back({name, location, epoch});
}

std::vector<FakeContext::Located> FakeContext::told() {
  std::lock_guard lock(mutex_);
  return told_;
}

void FakeContext::counters(std::vector<Counter>* out) {
  out->insert(out->end(), counted.begin(), counted.end());
}

// Tells of a port without a link.
int FakeRnic::query(PortFacts* out) {
  out->attributes.state = IBV_PORT_DOWN;
  out->attributes.link_layer = IBV_LINK_LAYER_ETHERNET;
  return 0;
}

std::unique_ptr<MovableContext> FakeRnic::open_movable(EventSink& sink, MoveSink& moves,
                                                       int* error) {
  log_->add("open", name_);
  *error = log_->take_failure("open");
  if (*error != 0) return nullptr;
  auto context = std::make_unique<FakeContext>(log_, sink, moves, guid_, own_descriptors);
  last_opened_ = context.get();
  return context;
}

}  // namespace ferry::device::fake
