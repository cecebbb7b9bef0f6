#pragma once

#include <string>

#include "device/movable.h"
#include "host/peers/messages.h"
#include "port/endpoint.h"

// Letters, GIDs and the names of QPs, as ferryds tell each other (host/peers/ferry.proto).
namespace ferry::host {

// These throw Failure for a GID that is none.
port::Address gid_of(const std::string& bytes);
device::Letter::End name_of(const v1::QpName& message);
device::Letter letter_of(const v1::Letter& message);

std::string bytes_of(const port::Address& gid);
void to_message(const device::Letter::End& name, v1::QpName* message);
void to_message(const device::Letter& letter, v1::Letter* message);

}  // namespace ferry::host
