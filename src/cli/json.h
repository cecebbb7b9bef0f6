#pragma once

#include <nlohmann/json_fwd.hpp>

namespace google::protobuf {
class Message;
}  // namespace google::protobuf

namespace ferry::cli {

// Gives every field under its own name, also when it is zero or empty; 64-bit numbers as numbers
// (protobuf's own JSON makes them strings).
nlohmann::ordered_json to_json(const google::protobuf::Message& message);

}  // namespace ferry::cli
