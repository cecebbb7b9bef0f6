#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "device/movable.h"

// The recording fake of the tests: a device that only keeps account. It records every call, gives
// the results that the test asked for and the completions that the test pushes, and moves no data.
// The log, the queues and what waits in them are thread-safe; a context makes and destroys objects,
// stops and resumes for one thread at a time.
namespace ferry::device::fake {

// One call: the function's name and what identifies its object and arguments, as in "modify 0x1234
// mask=0x79 state=1".
struct Call {
  std::string function;
  std::string detail;
};

// Shared by a FakeRnic, its contexts and their objects; the test keeps it.
class Log {
 public:
  void add(std::string function, std::string detail = {});
  std::vector<Call> calls() const;
  std::size_t count(const std::string& function) const;
  // The detail of the last call of `function`; empty when there was none.
  std::string last(const std::string& function) const;
  void clear();

  // The next call of `function` fails with `error` (errno) instead of being carried out.
  void fail_next(const std::string& function, int error);
  // Takes the oldest error of fail_next() off and returns it; 0 when there is none.
  int take_failure(const std::string& function);

 private:
  mutable std::mutex mutex_;
  std::vector<Call> calls_;
  std::map<std::string, std::deque<int>> failures_;
};

class FakePd final : public Pd {
 public:
  int users = 0;
};

class FakeXrcd final : public Xrcd {
 public:
  int users = 0;
};

class FakeMr final : public Mr {
 public:
  std::uint32_t lkey() const override { return key; }
  std::uint32_t rkey() const override { return key + 1; }
  MrInit init;
  std::uint32_t key = 0;
};

class FakeMw final : public Mw {
 public:
  FakeMw(FakePd* owner, ibv_mw_type kind, std::uint32_t number)
      : pd(owner), type(kind), handle_(number) {}
  std::uint32_t rkey() const override { return handle_ << 8 | bound; }
  std::uint32_t handle() const override { return handle_; }
  FakePd* const pd;
  const ibv_mw_type type;
  std::uint8_t bound = 0;  // how often Qp::bind_mw() has bound it

 private:
  const std::uint32_t handle_;
};

class FakeAh final : public Ah {
 public:
  FakeAh(FakePd* owner, const ibv_ah_attr& wanted, std::uint32_t number)
      : pd(owner), attributes(wanted), handle_(number) {}
  std::uint32_t handle() const override { return handle_; }
  FakePd* const pd;
  const ibv_ah_attr attributes;

 private:
  const std::uint32_t handle_;
};

// A descriptor that is readable while events wait.
class Waiting {
 public:
  Waiting();
  ~Waiting();
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;
  int descriptor() const { return ends_[0]; }
  void push(const AsynchronousEvent& event);
  // 0, or EAGAIN when no event waits.
  int take(AsynchronousEvent* out);

 private:
  int ends_[2] = {-1, -1};
  std::mutex mutex_;
  std::deque<AsynchronousEvent> events_;
};

class FakeChannel final : public Channel {
 public:
  int descriptor() const override { return waiting.descriptor(); }
  int take(Cq** out) override;
  Waiting waiting;
};

class FakeCq final : public Cq {
 public:
  FakeCq(std::shared_ptr<Log> log, EventSink& sink, const CqInit& wanted)
      : init(wanted), log_(std::move(log)), sink_(sink), capacity_(wanted.cqe) {}
  int poll(int count, ibv_wc* out) override;
  // The times of the nth completion are {n, 1000 + n}.
  int poll_one(ibv_wc* out, CompletionTimes* times) override;
  int arm(bool solicited_only) override;
  int resize(int cqe) override;
  int capacity() const override { return capacity_; }
  int moderate(std::uint16_t count, std::uint16_t period) override;
  void acknowledge() override { log_->add("acknowledge_cq"); }

  // Adds a completion for poll(), and raises the event when the CQ is armed for it.
  void push(const ibv_wc& completion, bool solicited = false);
  // Raises IBV_EVENT_CQ_ERR; once the completions that wait are taken, poll() is negative.
  void overflow();
  bool armed() const;

  const CqInit init;
  int users = 0;

 private:
  std::shared_ptr<Log> log_;
  EventSink& sink_;
  mutable std::mutex mutex_;
  std::deque<ibv_wc> completions_;
  std::uint64_t polled_ = 0;
  int capacity_;
  bool armed_any_ = false, armed_solicited_ = false, overflowed_ = false;
};

// Copies of what was posted; elements and inline bytes stand in place of the pointers to them.
struct Sent {
  ibv_send_wr wr;
  std::vector<ibv_sge> sges;
  std::vector<std::byte> inline_data;
};
struct Received {
  std::uint64_t wr_id;
  std::vector<ibv_sge> sges;
};

class FakeSrq final : public Srq {
 public:
  FakeSrq(std::shared_ptr<Log> log, EventSink& sink, const SrqInit& wanted, std::uint32_t number)
      : init(wanted), log_(std::move(log)), sink_(sink), number_(number) {
    attributes_ = wanted.attributes;
  }
  int post_recv(ibv_recv_wr* list, ibv_recv_wr** bad) override;
  int modify(const ibv_srq_attr& attributes, int mask) override;
  int query(ibv_srq_attr* attributes) const override;
  std::uint32_t number() const override { return number_; }

  std::vector<Received> received() const;
  // Raises the event that a real SRQ raises when its limit is reached.
  void reach_limit() { sink_.asynchronous(IBV_EVENT_SRQ_LIMIT_REACHED, this); }

  const SrqInit init;
  int users = 0;

 private:
  std::shared_ptr<Log> log_;
  EventSink& sink_;
  const std::uint32_t number_;
  mutable std::mutex mutex_;
  ibv_srq_attr attributes_{};
  std::vector<Received> received_;
};

class FakeQp final : public Qp {
 public:
  FakeQp(std::shared_ptr<Log> log, const QpInit& wanted, std::uint32_t number)
      : init(wanted), log_(std::move(log)), qpn_(number) {}
  std::uint32_t qpn() const override { return qpn_; }
  ibv_qp_state state() const override;
  int post_send(ibv_send_wr* list, ibv_send_wr** bad) override;
  int post_all(ibv_send_wr* list) override;
  int post_recv(ibv_recv_wr* list, ibv_recv_wr** bad) override;
  int modify(const ibv_qp_attr& attributes, int mask) override;
  int query(ibv_qp_attr* attributes) const override;
  int limit_rate(const ibv_qp_rate_limit_attr& attributes) override;
  int attach_mcast(const ibv_gid& gid, std::uint16_t lid) override;
  int detach_mcast(const ibv_gid& gid, std::uint16_t lid) override;
  int bind_mw(Mw* window, const MwBind& bind, std::uint32_t* rkey) override;

  std::vector<Sent> sent() const;
  std::vector<Received> received() const;
  const QpInit init;

 private:
  std::shared_ptr<Log> log_;
  const std::uint32_t qpn_;
  mutable std::mutex mutex_;
  ibv_qp_attr attributes_{};
  void keep(const ibv_send_wr& request);
  std::vector<Sent> sent_;
  std::vector<Received> received_;
};

class FakeContext final : public MovableContext {
 public:
  // With `own_descriptors` the context has channels and a descriptor for its events, checks requests itself and
  // survives a fork, as a device of the kernel does.
  FakeContext(std::shared_ptr<Log> log, EventSink& sink, MoveSink& moves, std::uint64_t guid,
              bool own_descriptors);
  ~FakeContext() override;

  int query_device(ibv_device_attr_ex* out) override;
  int query_port(std::uint8_t port_number, ibv_port_attr* out) override;
  int query_gid(std::uint8_t port_number, unsigned index, ibv_gid_entry* out) override;
  int query_pkey(std::uint8_t port_number, int index, std::uint16_t* out) override;
  int alloc_pd(Pd** out) override;
  int reg_mr(const MrInit& init, Mr** out) override;
  int create_cq(const CqInit& init, Cq** out) override;
  int create_qp(QpInit* init, Qp** out) override;
  int alloc_null_mr(Pd* pd, Mr** out) override;
  int rereg_mr(Mr* mr, int flags, const MrInit& init) override;
  int alloc_mw(Pd* pd, ibv_mw_type type, Mw** out) override;
  int create_ah(Pd* pd, const ibv_ah_attr& attributes, Ah** out) override;
  int create_srq(SrqInit* init, Srq** out) override;
  int open_xrcd(const XrcdInit& init, Xrcd** out) override;
  bool shares_xrcds() const override { return events != nullptr; }
  int open_qp(Xrcd* xrcd, std::uint32_t qpn, Qp** out) override;
  std::uint64_t clock() const override { return now; }
  int create_channel(Channel** out) override;
  int asynchronous_descriptor() const override;
  int take_asynchronous(AsynchronousEvent* out) override;
  void acknowledge(const AsynchronousEvent& event) override;
  bool checks_requests() const override { return events != nullptr; }
  bool survives_fork() const override { return events != nullptr; }
  int destroy(Object* object) override;
  void prepare() override;
  int quiesce(std::chrono::nanoseconds limit, std::uint32_t* unacked_psns) override;
  int park(Parcel* out) override;
  int unpark(const Parcel& taken) override;
  void resume(bool rollback) override;
  void abandon() override;
  int describe(std::vector<std::byte>* out, int* count) override;
  int restore(ObjectType type, RestoreCommand command, std::span<const std::byte> record,
              Object** object) override;
  void status(std::vector<QpStatus>* out) override;
  void counters(std::vector<Counter>* out) override;
  Parcel place() override;
  void suspend_peers() override;
  bool peers_are_suspended() override;
  void release_peers() override;
  void take_letters(std::vector<Letter>* out) override;
  int deliver(const Letter& letter) override;
  void repeat_letters() override;
  void moved(const MovedNames& names) override;
  DatagramQps moved_datagram_qps() override;
  void sought(std::vector<port::Endpoint>* out) override;
  void located(const port::Endpoint& name, const port::Endpoint& location,
               std::uint32_t epoch) override;

  EventSink& sink() { return sink_; }
  // The answers of query_device(), query_port(), query_gid(), clock(), counters() and quiesce();
  // the test may change them.
  ibv_device_attr_ex device_attributes{};
  ibv_port_attr port_attributes{};
  std::vector<std::array<std::uint8_t, 16>> gids;
  std::uint64_t now = 5000000007;  // clock()
  std::vector<Counter> counted;
  std::unique_ptr<Waiting> events;  // null without `own_descriptors`
  std::uint32_t unacked_psns = 0;
  Parcel parcel;  // what park() gives away; afterwards, what unpark() took
  std::atomic<std::uint8_t> resume_pending{0};  // what status() tells of every QP
  // write() gives the next take_letters() a letter, and tells the MoveSink; delivered() returns what
  // deliver() got. Peers are suspended when the test says so.
  void write(const Letter& letter);
  std::optional<Letter> last_letter;  // quiesce() writes it
  // moved_datagram_qps() gives these from now on; tells the MoveSink.
  void move(const DatagramQps& qps);
  std::vector<Letter> delivered();
  std::atomic<bool> peers_suspended{false};
  // seek() gives the next sought() a name, and tells the MoveSink; told() returns the calls of
  // located().
  void seek(const port::Endpoint& name);
  struct Located {
    port::Endpoint name, location;
    std::uint32_t epoch = 0;
  };
  std::vector<Located> told();

 private:
  template <typename T>
  T* keep(std::unique_ptr<T> object);

  std::shared_ptr<Log> log_;
  EventSink& sink_;
  MoveSink& moves_;
  std::mutex mutex_;
  std::map<Object*, std::unique_ptr<Object>> objects_;
  std::uint32_t next_key_ = 0x100;
  std::uint32_t next_qpn_ = 0x11;
  std::uint32_t next_handle_ = 0x21;  // of windows and address handles
  std::uint32_t next_srqn_ = 0x31;
  bool suspended_ = false;
  std::vector<Letter> written_, delivered_;
  DatagramQps datagram_qps_;
  std::vector<port::Endpoint> sought_;
  std::vector<Located> told_;
};

class FakeRnic final : public MovableRnic {
 public:
  FakeRnic(std::shared_ptr<Log> log, std::string name, std::string netdev, std::uint64_t guid)
      : log_(std::move(log)), name_(std::move(name)), netdev_(std::move(netdev)), guid_(guid) {}
  const std::string& name() const override { return name_; }
  const std::string& netdev() const override { return netdev_; }
  std::uint64_t guid() const override { return guid_; }
  int query(PortFacts* out) override;
  std::unique_ptr<MovableContext> open_movable(EventSink& sink, MoveSink& moves,
                                               int* error) override;

  // FakeContext's `own_descriptors` for contexts that are opened from now on.
  bool own_descriptors = false;

  // The context that was opened last; it belongs to whoever opened it.
  FakeContext* last_opened() const { return last_opened_; }

 private:
  std::shared_ptr<Log> log_;
  const std::string name_, netdev_;
  const std::uint64_t guid_;
  FakeContext* last_opened_ = nullptr;
};

}  // namespace ferry::device::fake
