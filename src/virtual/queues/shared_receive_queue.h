#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "virtual/messages/needs.h"
#include "virtual/queues/renamed_queues.h"
#include "virtual/receives/receive_index.h"
#include "virtual/receives/receive_queue.h"
#include "virtual/shadows/numbers.h"
#include "virtual/shadows/objects.h"
#include "virtual/stop/calls.h"
#include "virtual/stop/returns.h"
#include "virtual/stop/self_sender.h"

namespace ferry::virt {

class Srq final : public Shadow<device::Srq> {
 public:
  // `init`: as the application gave it, with what the device has granted. Throws std::bad_alloc.
  Srq(device::Srq& object, const device::SrqInit& init, Calls& calls, Returns& returns)
      : Shadow(object),
        init_(init),
        calls_(calls),
        returns_(returns),
        number_(object.number()),
        receives_(init.attributes.max_wr, init.attributes.max_sge, init.attributes.max_wr, object) {
  }

  // As Qp::rename_by().
  void rename_by(const Numbers& numbers);

  int post_recv(ibv_recv_wr* list, ibv_recv_wr** bad) override { return receives_.post(list, bad); }
  int modify(const ibv_srq_attr& attributes, int mask) override;
  int query(ibv_srq_attr* attributes) const override;
  std::uint32_t number() const override { return number_; }

  // A UD QP uses the SRQ: from now on posted_receive() finds its receives. Threads may be posting. Throws
  // std::bad_alloc.
  void find_receives();
  // Gives the receive that a completion with this wr_id is about (ReceiveIndex).
  std::optional<PostedReceives::Receive> posted_receive(std::uint64_t wr_id);

  // The domain of an XRC SRQ and its CQ; null for another SRQ.
  const device::Xrcd* xrcd() const { return init_.xrcd; }
  device::Cq* cq() const { return init_.cq; }

  Needs::Srq needs() const {
    return {init_.attributes.max_wr, init_.attributes.max_sge, init_.xrcd != nullptr};
  }

  // --- A stop of the device behind. The program's calls wait, and the gate is shut.

  Gate& gate() { return receives_.gate(); }
  // Makes what empty() needs: a device that refuses that leaves the SRQ as it is. 0 or errno. resume() or
  // leave_device() ends it. `numbers` null: no number of the context has changed.
  int prepare_to_empty(device::Context& device, const Numbers* numbers);
  // Empties the SRQ to learn how many receives wait in it. No QP of the application uses the SRQ any more;
  // threads that post receives wait until leave_device(). Notes the limit of the SRQ, and sets it to 0, so
  // that no event of the limit comes. 0; or errno: the device has failed, and receives may be lost.
  int empty(std::chrono::steady_clock::time_point deadline);
  // The SRQ of the device, which the caller destroys, is about to end. Receives are kept from now on.
  void leave_device();
  // The CQ of the device has ended, too: no completion of empty() can come any more.
  void forget_taken();
  // Gives the SrqInit with which the SRQ is made anew.
  device::SrqInit remade() const;
  // The SRQ has been made anew as `object`.
  void enter_device(device::Srq& object) { attach(object); }
  // Posts the receives that are kept. 0 or errno.
  int refill() { return receives_.refill(); }
  // As refill(), lets threads post again, and sets the limit again.
  int resume();

 private:
  void resize(std::uint32_t max_wr);
  int take_all(std::chrono::steady_clock::time_point deadline);

  std::mutex resizing_;  // held while the room for receives changes, or the index is made
  device::SrqInit init_;
  Calls& calls_;
  Returns& returns_;
  const std::uint32_t number_;
  std::unique_ptr<RenamedSrq> renamed_;
  ReceiveQueue<device::Srq> receives_;
  std::unique_ptr<ReceiveIndex> index_;  // null: no UD QP has used the SRQ
  std::unique_ptr<SelfSender> sender_;  // between prepare_to_empty() and leave_device() or resume()
  std::uint32_t target_ = 0;            // of sender_, if its completions are taken out of the CQ
  std::uint32_t waiting_ = 0;           // receives that empty() has taken out
  std::uint32_t limit_ = 0;             // the limit that is to be set again; 0: none
};

}  // namespace ferry::virt
