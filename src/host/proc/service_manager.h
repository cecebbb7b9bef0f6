#pragma once

namespace ferry::host {

// Tells the service manager that started this program, if one did and wants to know (sd_notify(3)),
// that it serves. Programs that are started afterwards do not hear of the manager.
void tell_manager_ready();

}  // namespace ferry::host
