#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace google::protobuf {
class Message;
}  // namespace google::protobuf

namespace ferry::cli {

// Gives every field under its own name, also when it is zero or empty; 64-bit numbers as numbers
// (protobuf's own JSON makes them strings).
nlohmann::ordered_json to_json(const google::protobuf::Message& message);

// The id of a move or a group, as `ferry resolve` takes it: readers of JSON keep 53 bits of a
// number. Empty for 0.
std::string id_text(std::uint64_t id);

}  // namespace ferry::cli
