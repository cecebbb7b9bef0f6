#include "base/json_text.h"

#include <istream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace ferry {

using nlohmann::json;

namespace {

std::string all_of(std::istream& in) {
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

json json_of(std::string_view text) {
  return json::parse(text);
}

json json_of(std::istream& text) {
  return json_of(all_of(text));
}

json json_or_discarded(std::string_view text) {
  return json::parse(text, nullptr, false);
}

json json_or_discarded(std::istream& text) {
  return json_or_discarded(all_of(text));
}

std::string json_text(const json& value, int indent) {
  return value.dump(indent);
}

std::string tolerant_json_text(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace ferry
