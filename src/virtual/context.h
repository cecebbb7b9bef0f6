#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "device/movable.h"
#include "virtual/calls.h"
#include "virtual/completion_queue.h"
#include "virtual/gids.h"
#include "virtual/objects.h"
#include "virtual/queue_pair.h"
#include "virtual/returns.h"

// A decorator: it is a device, and has one of any kind (hca/, rnic/, a fake), which needs to know
// nothing of moves. The application holds shadows of its objects. A stop empties the queues of the
// device behind (MigrRDMA's wait-before-stop) and closes it; the objects are made anew, on this host
// or on another one, and the application keeps the numbers that it knows (docs/any_rnic.md).
namespace ferry::virt {

class Context final : public device::MovableContext, private device::EventSink {
 public:
  // Opens the device behind. Null and *error (errno): it cannot be opened.
  static std::unique_ptr<Context> open(std::shared_ptr<device::Rnic> rnic, device::EventSink& sink,
                                       int* error);
  ~Context() override;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int query_device(ibv_device_attr_ex* out) override;
  int query_port(std::uint8_t port_number, ibv_port_attr* out) override;
  int query_gid(std::uint8_t port_number, unsigned index, ibv_gid_entry* out) override;
  int query_pkey(std::uint8_t port_number, int index, std::uint16_t* out) override;
  int alloc_pd(device::Pd** out) override;
  int reg_mr(const device::MrInit& init, device::Mr** out) override;
  int create_cq(const device::CqInit& init, device::Cq** out) override;
  int create_qp(device::QpInit* init, device::Qp** out) override;
  int alloc_null_mr(device::Pd* pd, device::Mr** out) override;
  int rereg_mr(device::Mr* mr, int flags, const device::MrInit& init) override;
  int alloc_mw(device::Pd* pd, ibv_mw_type type, device::Mw** out) override;
  int create_ah(device::Pd* pd, const ibv_ah_attr& attributes, device::Ah** out) override;
  int create_srq(device::SrqInit* init, device::Srq** out) override;
  int open_xrcd(device::Xrcd** out) override;
  int completion_vectors() const override;
  int create_channel(device::Channel** out) override;
  // A device with descriptors of its own is never stopped.
  int asynchronous_descriptor() const override { return inner_->asynchronous_descriptor(); }
  int take_asynchronous(device::AsynchronousEvent* out) override;
  void acknowledge(const device::AsynchronousEvent& event) override;
  int command_descriptor() const override { return inner_->command_descriptor(); }
  bool checks_requests() const override;
  std::uint64_t clock() const override;
  int destroy(device::Object* object) override;
  bool survives_fork() const override;
  void abandon() override;
  void leave() override;
  void counters(std::vector<device::Counter>* out) override;

  void prepare() override;
  // ETIMEDOUT: a request was not done in time; EOPNOTSUPP: the context has what cannot be made anew
  // yet (docs/any_rnic.md).
  int quiesce(std::chrono::nanoseconds limit, std::uint32_t* unacked_psns) override;
  int park(device::Parcel* out) override;
  int unpark(const device::Parcel& parcel) override;
  void resume(bool rollback) override;
  int describe(std::vector<std::byte>* /*out*/, int* /*count*/) override { return EOPNOTSUPP; }
  int restore(device::ObjectType /*type*/, device::RestoreCommand /*command*/,
              std::span<const std::byte> /*record*/, device::Object** /*object*/) override {
    return EOPNOTSUPP;
  }
  void status(std::vector<device::QpStatus>* out) override;
  device::Parcel place() override { return {device::Kind::kVirtual, {}, {}}; }

 private:
  using Deadline = std::chrono::steady_clock::time_point;

  Context(std::shared_ptr<device::Rnic> rnic, device::EventSink& sink)
      : rnic_(std::move(rnic)), sink_(sink) {}

  void completion(device::Cq& cq) override;
  void asynchronous(ibv_event_type type, device::Object* object) override;

  // Makes an object behind by make(&object), and its shadow, a T of that object and `arguments`.
  // Gives 0 or errno.
  template <typename T, typename Base, typename Make, typename... Arguments>
  int keep(Base** out, Make make, const Arguments&... arguments);
  // Whether the number of an object that is new behind is one that the application has for another.
  bool collides(const device::Object& made) const;
  // `real_qpn`: the number that the QP had behind.
  void forget_numbers(device::Object* shadow, std::uint32_t real_qpn);
  void name(const Mr& mr);
  // The shadows of type T.
  template <typename T>
  std::vector<T*> all() {
    std::vector<T*> found;
    std::lock_guard lock(mutex_);
    for (const auto& [object, owner] : objects_) {
      if (auto* shadow = dynamic_cast<T*>(object)) found.push_back(shadow);
    }
    return found;
  }

  // --- The parts of a stop (context_move.cc)

  bool can_stop();
  bool is_peer_here(const Qp& qp);
  int make_windows();
  void shut_gates();
  // True: some completion came.
  bool sweep();
  // Puts a marker into the queue of each QP by mark(qp, wr_id), and waits until all have come back.
  // 0, or ETIMEDOUT.
  template <typename Mark>
  int pass_markers(std::vector<Qp*> qps, Deadline deadline, Mark mark);
  // Waits until the device has done what it has. 0, ETIMEDOUT.
  int drain(Deadline deadline);
  int make_anew();
  int make_memory_anew();
  int make_queues_anew();
  void number_anew();
  void leave_device();

  const std::shared_ptr<device::Rnic> rnic_;
  device::EventSink& sink_;
  mutable Calls calls_;
  Returns returns_;
  Gids gids_;
  std::unique_ptr<Numbers> numbers_;  // null before the first move; changes while all calls wait
  std::mutex mutex_;                  // guards objects_
  std::unordered_map<device::Object*, std::unique_ptr<device::Object>> objects_;
  std::unique_ptr<device::Context> inner_;  // ends first: it may raise events. Null while parked
};

}  // namespace ferry::virt
