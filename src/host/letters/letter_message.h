#pragma once

#include <string>

#include "device/movable.h"
#include "host/peers/messages.h"
#include "port/endpoint.h"

// Letters, GIDs and the names of QPs, as ferryds tell them to each other (host/peers/ferry.proto).
namespace ferry::host {

// gid_of(), name_of() and letter_of() throw Failure for bytes that are no GID.
port::Address gid_of(const std::string& bytes);
device::Letter::End name_of(const v1::QpName& message);
device::Letter letter_of(const v1::Letter& message);

std::string bytes_of(const port::Address& gid);
void to_message(const device::Letter::End& name, v1::QpName* message);
void to_message(const device::Letter& letter, v1::Letter* message);

}  // namespace ferry::host
