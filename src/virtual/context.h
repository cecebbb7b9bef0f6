#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "device/movable.h"
#include "virtual/events/asynchronous_events.h"
#include "virtual/messages/needs.h"
#include "virtual/queues/completion_queue.h"
#include "virtual/queues/datagrams.h"
#include "virtual/queues/marker_objects.h"
#include "virtual/queues/queue_pair.h"
#include "virtual/queues/shared_receive_queue.h"
#include "virtual/queues/taken_numbers.h"
#include "virtual/shadows/address_handle.h"
#include "virtual/shadows/device_behind.h"
#include "virtual/shadows/objects.h"
#include "virtual/shadows/shadow_table.h"
#include "virtual/stop/calls.h"
#include "virtual/stop/returns.h"
#include "virtual/talks/talks.h"
#include "virtual/windows/window_binder.h"
#include "virtual/windows/windows.h"

// A decorator: a device that has another device of any kind behind it (hca/, rnic/, a fake), which
// needs to know nothing of moves. The application holds shadows of the objects of the device behind.
// A stop empties the queues of that device (MigrRDMA's wait-before-stop) and closes it; the objects are
// made anew, on this host or on another one, and the application keeps the numbers that it knows
// (docs/any_rnic.md).
namespace ferry::virt {

class Context final : public device::MovableContext, private device::EventSink {
 public:
  // Opens the device behind. Null and *error (errno): the device cannot be opened. `watch`: as Talks has it.
  static std::unique_ptr<Context> open(std::shared_ptr<device::Rnic> rnic, device::EventSink& sink,
                                       device::MoveSink& moves, std::chrono::milliseconds watch,
                                       int* error);
  ~Context() override;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int query_device(ibv_device_attr_ex* out) override;
  int query_port(std::uint8_t port_number, ibv_port_attr* out) override;
  int query_gid(std::uint8_t port_number, unsigned index, ibv_gid_entry* out) override;
  std::vector<ibv_gid_entry> gids() override;
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
  int open_xrcd(const device::XrcdInit& init, device::Xrcd** out) override;
  bool shares_xrcds() const override;
  int open_qp(device::Xrcd* xrcd, std::uint32_t qpn, device::Qp** out) override;
  int completion_vectors() const override;
  int create_channel(device::Channel** out) override;
  int asynchronous_descriptor() const override { return events_.descriptor(); }
  int take_asynchronous(device::AsynchronousEvent* out) override;
  void acknowledge(const device::AsynchronousEvent& event) override;
  // The command descriptor of the device on which the program started.
  int command_descriptor() const override { return command_descriptor_; }
  bool checks_requests() const override;
  std::uint64_t clock() const override;
  int destroy(device::Object* object) override;
  void before_fork() override { calls_.before_fork(); }
  void after_fork() override { calls_.after_fork(); }
  bool survives_fork() const override;
  void abandon() override;
  void leave() override;
  // Gives no counters in a stop: ferryd asks for them at any time, and must not wait.
  void counters(std::vector<device::Counter>* out) override;

  void prepare() override;
  // ETIMEDOUT: a request, or a call of the program, was not done in time; EBUSY: a peer is not suspended,
  // or is in the midst of a move of its own; EOPNOTSUPP: the context has an object that cannot be made
  // anew yet (docs/any_rnic.md).
  int quiesce(std::chrono::nanoseconds limit, std::uint32_t* unacked_psns) override;
  int park(device::Parcel* out) override;
  int unpark(const device::Parcel& parcel) override;
  void resume(bool rollback) override;
  int describe(std::vector<std::byte>* /*out*/, int* /*count*/) override { return EOPNOTSUPP; }
  int restore(device::ObjectType /*type*/, device::RestoreCommand /*command*/,
              std::span<const std::byte> /*record*/, device::Object** /*object*/) override {
    return EOPNOTSUPP;
  }
  void suspend_peers() override { talks_.suspend_peers(); }
  void release_peers() override { talks_.release_peers(); }
  bool peers_are_suspended() override { return talks_.peers_are_suspended(); }
  void take_letters(std::vector<device::Letter>* out) override { talks_.take_letters(out); }
  int deliver(const device::Letter& letter) override { return talks_.deliver(letter); }
  bool progress() override { return talks_.progress(); }
  bool awaits_letters() override { return talks_.awaits_letters(); }
  void repeat_letters() override { talks_.repeat_letters(); }
  void tell_peer(const device::Letter::End& own, const device::Letter::End& peer,
                 device::CmNews news) override {
    talks_.tell_peer(own, peer, news);
  }
  // Neither waits for the end of a stop: the agent asks, which ends stops. In a stop the application comes to know no
  // other GIDs.
  bool can_name_gid(std::uint8_t port, std::uint8_t index, std::uint8_t at) override;
  void name_gid(std::uint8_t port, std::uint8_t index, std::uint8_t at) override;
  void moved(const device::MovedNames& names) override;
  device::DatagramQps moved_datagram_qps() override;
  std::vector<port::Address> datagram_destinations() override;
  void status(std::vector<device::QpStatus>* out) override;
  const char* obstacle() override;
  std::string needs() override;
  // A parcel with the name of the device.
  device::Parcel place() override;

 private:
  using Deadline = std::chrono::steady_clock::time_point;

  Context(std::shared_ptr<device::Rnic> rnic, device::EventSink& sink, device::MoveSink& moves,
          std::chrono::milliseconds watch)
      : rnic_(std::move(rnic)), sink_(sink), moves_(moves), watch_(watch) {}

  // Gives an entry of the device's own table. The caller is in calls_. False: it is empty.
  bool query_real_gid(std::uint8_t port, std::uint8_t index, ibv_gid_entry* out);

  void completion(device::Cq& cq) override;
  void asynchronous(ibv_event_type type, device::Object* object) override;

  // Makes an object behind by make(&object), and its shadow as T(object, arguments...). 0 or errno.
  template <typename T, typename Base, typename Make, typename... Arguments>
  int keep(Base** out, Make make, const Arguments&... arguments);
  // keep() for a QP.
  template <typename Make>
  int keep_qp(const device::QpInit& init, Make make, device::Qp** out);
  // The program has destroyed the object behind the shadow. `real_qpn`: the QPN of that object, if the shadow
  // is a QP that had one; else 0.
  void forget(device::Object& shadow, std::uint32_t real_qpn);
  // Removes the shadow's numbers from the tables.
  void forget_numbers(device::Object* shadow, std::uint32_t real_qpn);
  void name(const Mr& mr);
  // The program has a memory window: from now on its queues look for what is about windows.
  void look_for_windows();

  // --- The parts of a stop (context_move.cc)

  int can_stop();
  const char* obstacle_of(Qp& qp);
  void shut_gates();
  // Takes completions from all CQs of the device, and events from its channels. True: a completion came.
  bool sweep();
  // Sweeps until nothing more comes.
  void settle();
  // Sweeps until is_done(qp) is true of each of `qps`. 0 or ETIMEDOUT.
  template <typename IsDone>
  int await(std::vector<Qp*> qps, Deadline deadline, IsDone is_done);
  // Holds further requests, and waits until the device has done those that it has. 0 or ETIMEDOUT.
  int drain(Deadline deadline);
  int drive_out(Deadline deadline);
  int make_anew();
  int make_mr_anew(Mr& mr);
  int make_memory_anew();
  int make_windows_anew();
  int make_queues_anew();
  void number_anew();
  void leave_device();

  // --- Datagrams (context_datagrams.cc)

  // The program has made a UD QP, or destroyed one.
  void add_ud(Qp& qp);
  void remove_ud(Qp& qp);
  // For each place to which QPs of ah.destination() have moved, makes the AH of the device by which
  // datagrams go there, unless the device refuses it. The caller is in alone() or for_each() of shadows_.
  void add_ways(Ah& ah);
  int destroy_ah(Ah& ah);
  // After a move, and when UD QPs come or go later: tells datagrams_ and ferryd where the UD QPs of this
  // context are.
  void name_own_datagrams();
  // Adds to *needs the GIDs and the MTU that AHs and UD QPs need at the destination.
  void need_paths(Needs* needs);
  // As query_gid(), for the source of a path; works also while the device is away.
  int query_source(const ibv_ah_attr& path, ibv_gid_entry* out);

  const std::shared_ptr<device::Rnic> rnic_;
  device::EventSink& sink_;
  device::MoveSink& moves_;
  const std::chrono::milliseconds watch_;
  mutable Calls calls_;
  Returns returns_;
  Datagrams datagrams_;
  AsynchronousEvents events_;
  std::string name_;  // the name of the device on the host where the program is
  int command_descriptor_ = -1;
  ShadowTable shadows_;
  DeviceBehind device_;
  Windows windows_{shadows_, device_};
  WindowBinder binder_{windows_, returns_};
  const TakenNumbers taken_{device_, datagrams_, windows_};
  MarkerObjects markers_{shadows_, device_};
  QpStops stops_{shadows_, device_, calls_, markers_, taken_, windows_, binder_};
  Talks talks_{shadows_, device_, calls_, markers_, stops_, windows_, moves_, watch_};
  bool is_drained_ = false;    // drain() has stopped the queues
  bool is_made_anew_ = false;  // the objects have been made anew since quiesce()
};

}  // namespace ferry::virt
