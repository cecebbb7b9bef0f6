#pragma once

#include <optional>
#include <string>
#include <vector>

#include "host/directory/directory.h"
#include "host/peers/messages.h"
#include "rnic/slot.h"

// Places in messages between ferryds and in the keys and values of etcd.
namespace ferry::host {

void to_message(const port::Endpoint& endpoint, v1::Endpoint* message);
void to_message(const Place& place, v1::Place* message);
// Nothing when the message is malformed.
std::optional<port::Endpoint> from_message(const v1::Endpoint& message);
std::optional<Place> from_message(const v1::Place& message);

// The places of RNICs that have been stopped at least once, at these slots of host `host`.
std::vector<Place> places_of(const std::vector<rnic::Slot>& slots, const std::string& host,
                             const std::string& ferryd);

// "10.0.0.1/0": the address and the slot. The address is numeric, so that equal origins have equal
// texts.
std::string origin_text(const port::Endpoint& origin);
// JSON with the other fields: {"host":"h2","ferryd":"10.77.0.2:4780","address":"10.78.2.1",
// "slot":1,"epoch":3}, and "ended":true.
std::string value_text(const Place& place);
std::optional<Place> parse_value(const port::Endpoint& origin, const std::string& text);
std::optional<port::Endpoint> parse_origin(const std::string& text);

}  // namespace ferry::host
