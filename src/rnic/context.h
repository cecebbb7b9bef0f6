#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "device/movable.h"
#include "device/record.h"
#include "rnic/engine/completion_queue.h"
#include "rnic/engine/engine.h"
#include "rnic/engine/qp/queue_pair.h"
#include "rnic/engine/qp/shared_receive_queue.h"
#include "rnic/memory/address_handle.h"
#include "rnic/memory/memory.h"
#include "rnic/progress/progress_thread.h"
#include "rnic/slot.h"
#include "rnic/system/netdev.h"
#include "rnic/system/port_source.h"

namespace ferry::rnic {

// One RNIC of a process: its objects, its engine, and a QPN slot of its own.
class Context final : public device::MovableContext {
 public:
  struct Options {
    device::EventSink* sink = nullptr;
    device::MoveSink* moves = nullptr;  // may be null
    Environment* environment = nullptr;
    std::shared_ptr<PortSource> ports;
    Settings settings;
    Netdev netdev;
    Forwarder::Management management;  // takes what comes for QP 1; none: that is dropped
    bool with_thread = true;           // without a thread the owner calls engine().run()
  };
  // Null and *error (errno): no free slot, no descriptor, no memory.
  static std::unique_ptr<Context> open(const Options& options, int* error);
  ~Context() override;

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
  int create_srq(device::SrqInit* init, device::Srq** out) override;
  int open_xrcd(const device::XrcdInit& init, device::Xrcd** out) override;
  int create_ah(device::Pd* pd, const ibv_ah_attr& attributes, device::Ah** out) override;
  std::uint64_t clock() const override;
  int destroy(device::Object* object) override;

  void prepare() override;
  void leave() override;
  int quiesce(std::chrono::nanoseconds limit, std::uint32_t* unacked_psns) override;
  int park(device::Parcel* out) override;
  int unpark(const device::Parcel& parcel) override;
  void resume(bool rollback) override;
  void abandon() override;

  int describe(std::vector<std::byte>* out, int* count) override;
  int restore(device::ObjectType type, device::RestoreCommand command,
              std::span<const std::byte> record, device::Object** object) override;

  void status(std::vector<device::QpStatus>* out) override;
  bool set_peer_retries(std::uint32_t qpn, const device::PeerRetries& peer) override;
  void counters(std::vector<device::Counter>* out) override;
  device::Parcel place() override;
  void sought(std::vector<port::Endpoint>* out) override;
  void located(const port::Endpoint& name, const port::Endpoint& location,
               std::uint32_t epoch) override;

  // park(), unpark() and place() in this RNIC's own terms: sockets with their slots. 0 or errno. On
  // failure of attach() all sockets stay the caller's.
  int detach(std::vector<Slot>* out);
  int attach(const std::vector<Slot>& slots);
  void places(std::vector<Slot>* out);  // without descriptors and entries

  Engine& engine() { return engine_; }

 private:
  explicit Context(const Options& options);
  int bind();
  AttributeLimits limits() const;
  int insert_mr(const device::MrInit& init, ProtectionDomain* pd, const std::uint32_t* key,
                Handle handle, device::Mr** out);
  int insert_null_mr(ProtectionDomain* pd, Handle handle, device::Mr** out);
  int insert_mw(ProtectionDomain* pd, ibv_mw_type type, const std::uint32_t* key, Handle handle,
                MemoryWindow** out);
  int insert_ah(ProtectionDomain* pd, const ibv_ah_attr& attributes, Handle handle,
                device::Ah** out);
  int insert_srq(const SharedReceiveQueue::Init& init, SharedReceiveQueue** out);
  int insert_qp(const QueuePair::Init& init, const std::uint32_t* index, device::Qp** out);
  // Adds `change` (+1 or -1) to the users of each object that a QP, or an SRQ, uses.
  static void use(const QueuePair::Init& init, int change);
  static void use(const SharedReceiveQueue::Init& init, int change);
  Slot place_of(std::size_t lane);  // without descriptor and entries
  int destroy_pd(ProtectionDomain* pd);
  int destroy_mr(MemoryRegion* mr);
  int destroy_mw(MemoryWindow* mw);
  int destroy_ah(AddressHandle* ah);
  int destroy_cq(CompletionQueue* cq);
  int destroy_xrcd(XrcDomain* xrcd);
  int destroy_srq(SharedReceiveQueue* srq);
  int destroy_qp(QueuePair* qp);
  void drain();
  // Runs the engine until `done` returns true, at most for `limit`.
  template <typename Done>
  void run_until(Done done, transport::Time limit);

  int restore_context(const device::Record& record);
  int restore_pd(const device::Record& record, device::Object** object);
  int restore_mr(device::RestoreCommand command, const device::Record& record,
                 device::Object** object);
  int restore_cq(device::RestoreCommand command, const device::Record& record,
                 device::Object** object);
  int restore_xrcd(const device::Record& record, device::Object** object);
  int restore_srq(device::RestoreCommand command, const device::Record& record,
                  device::Object** object);
  int restore_mw(const device::Record& record, device::Object** object);
  int restore_ah(const device::Record& record, device::Object** object);
  int restore_qp(device::RestoreCommand command, const device::Record& record,
                 device::Object** object);

  device::EventSink& sink_;
  const std::shared_ptr<PortSource> ports_;
  const Netdev netdev_;
  // What the application was told when the RNIC was opened. A restored RNIC has the values of the
  // one that was described.
  std::uint64_t guid_;
  std::uint32_t max_mtu_;
  std::uint32_t origin_slot_ = 0;
  std::uint32_t epoch_ = 0;  // counts stops and rollbacks, as the epoch of a QP does
  bool restored_ = false;

  Engine engine_;
  std::unique_ptr<ProgressThread> thread_;

  std::mutex mutex_;  // guards the objects below; taken before the engine's lock
  Handle next_handle_ = 1;
  std::map<Handle, std::unique_ptr<ProtectionDomain>> pds_;
  std::map<Handle, std::unique_ptr<MemoryRegion>> mrs_;
  std::map<Handle, std::unique_ptr<MemoryWindow>> mws_;
  std::map<Handle, std::unique_ptr<XrcDomain>> xrcds_;
  std::map<Handle, std::unique_ptr<CompletionQueue>> cqs_;
  std::map<Handle, std::unique_ptr<SharedReceiveQueue>> srqs_;
  std::map<Handle, std::unique_ptr<AddressHandle>> ahs_;
  std::map<Handle, std::unique_ptr<QueuePair>> qps_;
};

}  // namespace ferry::rnic
