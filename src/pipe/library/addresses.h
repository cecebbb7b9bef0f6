#pragma once

#include <sys/socket.h>

#include "pipe/protocol/control.h"

namespace ferry::pd {

// 0 or errno.
int read_address(const sockaddr* address, socklen_t size, std::uint16_t family,
                 pipe::SocketAddress* result);
// As accept(2) has it: cut off where there is too little room. Nothing where `address` is null.
void write_address(const pipe::SocketAddress& from, sockaddr* address, socklen_t* size);
// What a socket of the kernel's is bound to or, `peer`, connected with.
pipe::SocketAddress address_of(int socket, bool peer);

}  // namespace ferry::pd
