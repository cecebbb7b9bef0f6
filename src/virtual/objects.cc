#include "virtual/objects.h"

#include "virtual/completion_queue.h"

namespace ferry::virt {

// An event of a CQ that the application does not know cannot be: it has not armed it.
int Channel::take(device::Cq** out) {
  device::Cq* raised = nullptr;
  if (const int error = inner->take(&raised)) return error;
  *out = shadow_of(*raised);
  static_cast<Cq*>(*out)->raised();
  return 0;
}

}  // namespace ferry::virt
