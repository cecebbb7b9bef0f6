#pragma once

#include "virtual/queues/queue_pair.h"
#include "virtual/shadows/device_behind.h"
#include "virtual/shadows/objects.h"
#include "virtual/shadows/shadow_table.h"

namespace ferry::virt {

// The objects of the device behind that markers need (SendMarker): a window for each connected QP that sends, with an
// MR of its PD, and for each UD QP an AH by which the QP reaches itself. No QP is destroyed while a
// function runs.
class MarkerObjects {
 public:
  MarkerObjects(ShadowTable& shadows, DeviceBehind& device) : shadows_(shadows), device_(device) {}

  // Makes the windows that are missing. 0 or errno.
  int make_windows();
  // The same for one QP.
  int make_window(Qp& qp);
  // Makes the AHs that are missing. 0 or errno; EADDRNOTAVAIL: the port of a QP has no GID.
  int make_paths();

  // Is called also when a marker may have been flushed: then the provider and the device may disagree
  // about the window's key, and the device would refuse the next bind of the window.
  void destroy_window(Qp& qp);
  void destroy_path(Qp& qp);
  void destroy_region(Pd& pd);

 private:
  ShadowTable& shadows_;
  DeviceBehind& device_;
};

}  // namespace ferry::virt
