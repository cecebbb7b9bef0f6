#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace ferry::cli {

// Prints a line of --events on stderr: `event`, with the time. `failure`: one line; empty: it has not failed.
void print_event(nlohmann::ordered_json event, const std::string& failure = {});

}  // namespace ferry::cli
