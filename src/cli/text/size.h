#pragma once

#include <cstdint>
#include <string>

namespace ferry::cli {

// As "211.0 MB"; decimal, as the figures of moves.
std::string size_text(std::uint64_t bytes);

}  // namespace ferry::cli
