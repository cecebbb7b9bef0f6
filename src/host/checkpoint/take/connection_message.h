#pragma once

#include "ferry.pb.h"
#include "host/checkpoint/take/connections.h"

// Connections as ferryds tell them each other.
namespace ferry::host {

void to_message(const Connection::End& end, v1::Connection::End* message);
void to_message(const Connection& connection, v1::Connection* message);
// What another host says: its texts are made fit to be printed.
Connection::End from_message(const v1::Connection::End& message);
Connection from_message(const v1::Connection& message);

}  // namespace ferry::host
