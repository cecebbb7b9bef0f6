#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host/move/source/group/move_group.h"

// With whom the programs of a checkpoint are connected. A checkpoint has both ends of a connection, or none.
namespace ferry::host {

class ControlServer;

struct Connection {
  struct End {
    std::string address;     // numeric
    std::uint16_t port = 0;  // UDP for a QP
    auto operator<=>(const End&) const = default;
  };
  std::string program;
  std::uint32_t qpn = 0;  // 0: of TCP
  End local;
  End peer;                // none: a QP that is not connected
  bool is_closed = false;  // by its peer, for what comes from there
};

// Throws Failure, also for a program with a device of the kernel, and for a connection over loopback that leads out of
// its program. Those of loopback are left out.
std::vector<Connection> connections_of(ControlServer& control,
                                       const std::vector<MoveGroup::Program>& programs);

// `all`: of all programs of the checkpoint. Throws Failure when one leads elsewhere.
void need_closed(const std::vector<Connection>& all);

}  // namespace ferry::host
