#pragma once

#include <set>

#include "virtual/messages/letters.h"
#include "virtual/queues/completion_queue.h"
#include "virtual/queues/marker_objects.h"
#include "virtual/queues/queue_pair.h"
#include "virtual/queues/taken_numbers.h"
#include "virtual/shadows/device_behind.h"
#include "virtual/shadows/shadow_table.h"
#include "virtual/stop/calls.h"

namespace ferry::virt {

// Stops of single QPs, whose peers move while the context of these stays where it is. One thread at a
// time calls these functions, and no QP goes meanwhile.
class QpStops {
 public:
  QpStops(ShadowTable& shadows, DeviceBehind& device, Calls& calls, MarkerObjects& markers,
          const TakenNumbers& taken)
      : shadows_(shadows), device_(device), calls_(calls), markers_(markers), taken_(taken) {}

  // Holds the QP's requests, and keeps some completions of its CQs from the program, until it is
  // drained or its queues are resumed.
  void hold(Qp& qp);
  // Whether the device has done all of its requests. False: not yet, ask again.
  bool is_drained(Qp& qp);
  // The queues of one QP give completions to the program again.
  void resume_queues(Qp& qp);
  // Its receives come back, until it is replaced.
  void flush(Qp& qp);
  // Whether another QP of the device stands behind, connected with `peer`. False: not yet, ask again.
  bool is_replaced(Qp& qp, const Introduction& peer);
  void connect(Qp& qp, const Introduction& peer);
  // Takes completions of the QP's CQs from the device.
  void sweep(Qp& qp);

  // The QP goes on, if need be later.
  void resume(Qp& qp);
  // Resumes those that were to go on later. True: some are to do so still.
  bool resume_late();
  // The QP, or none of them, goes on later. Whether it was to.
  bool forget_late(Qp& qp) { return late_.erase(&qp) > 0; }
  void forget_late() { late_.clear(); }

 private:
  void stop_queues(Qp& qp);
  // Gives the QP another one of the device. 0 or errno: it still has the old one.
  int replace(Qp& qp);

  ShadowTable& shadows_;
  DeviceBehind& device_;
  Calls& calls_;
  MarkerObjects& markers_;
  const TakenNumbers& taken_;
  std::set<Qp*> late_;  // Qp::resume() is to be called again
};

}  // namespace ferry::virt
