#pragma once

#include <map>
#include <set>
#include <vector>

#include "virtual/messages/letters.h"
#include "virtual/queues/completion_queue.h"
#include "virtual/queues/marker_objects.h"
#include "virtual/queues/queue_pair.h"
#include "virtual/queues/taken_numbers.h"
#include "virtual/shadows/device_behind.h"
#include "virtual/shadows/shadow_table.h"
#include "virtual/stop/calls.h"
#include "virtual/talks/late_qps.h"
#include "virtual/windows/window_binder.h"
#include "virtual/windows/windows.h"

namespace ferry::virt {

// Stops single QPs whose peers move, while the context of these QPs stays where it is. One thread at a
// time calls these functions, and no QP is destroyed meanwhile.
class QpStops {
 public:
  QpStops(ShadowTable& shadows, DeviceBehind& device, Calls& calls, MarkerObjects& markers,
          const TakenNumbers& taken, Windows& windows, WindowBinder& binder)
      : shadows_(shadows),
        device_(device),
        calls_(calls),
        markers_(markers),
        taken_(taken),
        windows_(windows),
        binder_(binder) {}

  // Holds the QP's requests until resume(), and stops its CQs until is_drained() is true, or until
  // resume_queues().
  void hold(Qp& qp);
  // Whether the device has done all requests of the QP. False: not yet, ask again.
  bool is_drained(Qp& qp);
  // The queues of one QP give completions to the program again.
  void resume_queues(Qp& qp);
  // Flushes the QP's receives. Threads that post receives wait until is_replaced() or is_left() is true.
  void flush(Qp& qp);
  // Gives the QP another object, connected with `peer`, when its receives have come back. False: not yet,
  // ask again. The former object lasts until end_former() or clear(), if prepare() has made the other one.
  bool is_replaced(Qp& qp, const Introduction& peer);
  // The flushed QP leaves the device when its receives have come back, and is one of `late`. False: not yet, ask
  // again.
  bool is_left(Qp& qp, LateQps& late);
  void connect(Qp& qp, const Introduction& peer);
  // The QP is connected: binds the memory windows that are bound to the QP, and that the device does not know.
  // False: the QP has failed.
  bool bind_windows(Qp& qp);
  // Takes completions of the QP's CQs from the device.
  void sweep(Qp& qp);

  // The QP's peer has left its device: makes the object for is_replaced(), so that the peer need not wait for that
  // (partner pre-setup: MigrRDMA, section 3.2). Where the device has no room for another QP, is_replaced() makes it.
  void prepare(Qp& qp);
  // Destroys one of the former objects.
  void end_former();
  bool has_former() const { return !former_.empty(); }
  // Destroys what prepare() has made and is_replaced() has left, of one QP or of all.
  void clear(Qp& qp);
  void clear();

  // The QP goes on, now or in resume_late().
  void resume(Qp& qp);
  // Resumes the QPs that could not go on at once. True: some still cannot.
  bool resume_late();
  // resume_late() resumes the QP, or any QP, no longer. True: it would have resumed this QP.
  bool forget_late(Qp& qp) { return late_.erase(&qp) > 0; }
  void forget_late() { late_.clear(); }

 private:
  // The CQs that get completions of the QP: those of the SRQs, if it is an XRC target, else its own.
  std::vector<Cq*> queues_of(const Qp& qp);
  void stop_queues(Qp& qp);
  // Makes another object for the QP. 0 or errno.
  int make(Qp& qp, device::Qp** out);
  // Gives the QP another object of the device. 0 or errno: the QP still has the old object (after ENOMEM
  // perhaps the new one).
  int replace(Qp& qp);
  // False: there is no memory, and nothing has changed.
  bool leave(Qp& qp, LateQps& late);
  // The QP is about to have another number on the device: its CQs get the tables of numbers. All calls wait. Throws
  // std::bad_alloc.
  Numbers& rename_queues(Qp& qp);

  ShadowTable& shadows_;
  DeviceBehind& device_;
  Calls& calls_;
  MarkerObjects& markers_;
  const TakenNumbers& taken_;
  Windows& windows_;
  WindowBinder& binder_;
  std::set<Qp*> late_;  // QPs whose resume() is to be called again
  std::map<Qp*, device::Qp*> prepared_;
  std::multimap<Qp*, device::Qp*> former_;
};

}  // namespace ferry::virt
