#pragma once

#include "virtual/queues/queue_pair.h"
#include "virtual/shadows/device_behind.h"
#include "virtual/shadows/objects.h"
#include "virtual/shadows/shadow_table.h"

namespace ferry::virt {

// The objects of the device behind that markers need (SendMarker): a window for each RC or UC QP, with
// a region of its PD, and for each UD QP an AH by which it reaches itself. No QP goes while a function
// runs.
class MarkerObjects {
 public:
  MarkerObjects(ShadowTable& shadows, DeviceBehind& device) : shadows_(shadows), device_(device) {}

  // Those that there are not yet. 0 or errno.
  int make_windows();
  int make_window(Qp& qp);
  // EADDRNOTAVAIL: the port of a QP has no GID.
  int make_paths();

  // Also when a marker may have been flushed: then the provider and the device may have other keys of
  // the window, and the device would refuse the next bind of it.
  void destroy_window(Qp& qp);
  void destroy_path(Qp& qp);
  void destroy_region(Pd& pd);

 private:
  ShadowTable& shadows_;
  DeviceBehind& device_;
};

}  // namespace ferry::virt
