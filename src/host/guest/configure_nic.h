#pragma once

#include <functional>
#include <string>

#include "host/guest/nic_note.h"

namespace ferry::host {

// Makes a device on an interface. Returns why it cannot be made, one line; empty: it is there.
using MakeRdmaDevice = std::function<std::string(const RdmaDevice&, const std::string& interface)>;

// The kernel does.
std::string make_rdma_device(const RdmaDevice& device, const std::string& interface);

// Gives an interface what it lacks, each in its turn. Returns the first problem, one line; empty: there was none.
std::string configure_nic(const NicNote& wanted, const Missing& missing, Nic nic,
                          const MakeRdmaDevice& make_device);

}  // namespace ferry::host
