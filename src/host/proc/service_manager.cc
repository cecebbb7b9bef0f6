#include "host/proc/service_manager.h"

#include <systemd/sd-daemon.h>

#include "base/failure.h"
#include "base/log.h"

namespace ferry::host {

void tell_manager_ready() {
  const int error = ::sd_notify(1, "READY=1");
  if (error < 0) {
    log::warn("cannot tell the service manager that ferryd serves: {}", error_text(-error));
  }
}

}  // namespace ferry::host
