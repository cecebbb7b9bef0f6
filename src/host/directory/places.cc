#include "host/directory/places.h"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <charconv>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/net.h"
#include "ferry.pb.h"
#include "port/address_text.h"
#include "port/slot.h"

namespace ferry::host {

using nlohmann::json;

namespace {

std::optional<port::Endpoint> endpoint_of(const std::string& address, std::uint64_t slot) {
  const auto parsed = port::parse_address(address);
  if (!parsed || slot > port::kMaxSlot) return std::nullopt;
  return port::Endpoint{*parsed, port::udp_port_of_slot(static_cast<std::uint32_t>(slot))};
}

}  // namespace

void to_message(const port::Endpoint& endpoint, v1::Endpoint* message) {
  message->set_address(endpoint.address.bytes.data(), endpoint.address.bytes.size());
  message->set_port(endpoint.udp_port);
}

std::optional<port::Endpoint> from_message(const v1::Endpoint& message) {
  port::Endpoint endpoint;
  if (message.address().size() != endpoint.address.bytes.size() || message.port() > 0xFFFF) {
    return std::nullopt;
  }
  std::memcpy(endpoint.address.bytes.data(), message.address().data(), message.address().size());
  endpoint.udp_port = static_cast<std::uint16_t>(message.port());
  return endpoint;
}

void to_message(const Place& place, v1::Place* message) {
  to_message(place.origin, message->mutable_origin());
  to_message(place.location, message->mutable_location());
  message->set_host(place.host);
  message->set_ferryd(place.ferryd);
  message->set_epoch(place.epoch);
  message->set_ended(place.ended);
}

std::optional<Place> from_message(const v1::Place& message) {
  const auto origin = from_message(message.origin());
  const auto location = from_message(message.location());
  if (!origin || !location || port::slot_of_udp_port(origin->udp_port) > port::kMaxSlot ||
      port::slot_of_udp_port(location->udp_port) > port::kMaxSlot) {
    return std::nullopt;
  }
  return Place{*origin,          *location,       message.host(),
               message.ferryd(), message.epoch(), message.ended()};
}

std::vector<Place> places_of(const std::vector<rnic::Slot>& slots, const std::string& host,
                             const std::string& ferryd) {
  std::vector<Place> places;
  for (const auto& slot : slots) {
    if (slot.has_origin() && slot.epoch > 0) {
      places.push_back({slot.origin, slot.local, host, ferryd, slot.epoch, false});
    }
  }
  return places;
}

std::string origin_text(const port::Endpoint& origin) {
  return fmt::format("{}/{}", to_string(origin.address), port::slot_of_udp_port(origin.udp_port));
}

std::optional<port::Endpoint> parse_origin(const std::string& text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos) return std::nullopt;
  std::uint32_t slot = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + slash + 1, end, slot);
  if (error != std::errc() || stop != end) return std::nullopt;
  return endpoint_of(text.substr(0, slash), slot);
}

std::string value_text(const Place& place) {
  json value{{"host", place.host},
             {"ferryd", place.ferryd},
             {"address", to_string(place.location.address)},
             {"slot", port::slot_of_udp_port(place.location.udp_port)},
             {"epoch", place.epoch}};
  if (place.ended) value["ended"] = true;
  return tolerant_json_text(value);
}

std::optional<Place> parse_value(const port::Endpoint& origin, const std::string& text) {
  try {
    const json value = json_of(text);
    const auto location =
        endpoint_of(value.at("address").get<std::string>(), value.at("slot").get<std::uint64_t>());
    if (!location) return std::nullopt;
    return Place{origin,
                 *location,
                 value.at("host").get<std::string>(),
                 value.at("ferryd").get<std::string>(),
                 value.at("epoch").get<std::uint32_t>(),
                 value.value("ended", false)};
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

}  // namespace ferry::host
