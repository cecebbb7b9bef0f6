#pragma once

#include <iosfwd>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

// JSON as text. The library's reader and writer are templates: each file that calls them would compile them again.
namespace ferry {

// Throws nlohmann::json::exception where the text is not JSON.
nlohmann::json json_of(std::string_view text);
nlohmann::json json_of(std::istream& text);

// is_discarded() where the text is not JSON.
nlohmann::json json_or_discarded(std::string_view text);
nlohmann::json json_or_discarded(std::istream& text);

// In one line, or indented by so many spaces. Throws nlohmann::json::exception for strings that are not UTF-8.
std::string json_text(const nlohmann::json& value, int indent = -1);
// In one line. U+FFFD takes the place of what is not UTF-8.
std::string tolerant_json_text(const nlohmann::json& value);

}  // namespace ferry
