#pragma once

#include <cstddef>
#include <string>
#include <string_view>

// Ferry's own devices are called "ferry0", "ferry1", …, so that whoever gets the name of a device, without the device,
// can tell them from those of the kernel.
namespace ferry::device {

inline constexpr std::string_view kOwnPrefix = "ferry";

inline std::string own_name(std::size_t index) {
  return std::string(kOwnPrefix) + std::to_string(index);
}

inline bool is_own_name(std::string_view name) {
  return name.starts_with(kOwnPrefix) && name.size() > kOwnPrefix.size() &&
         name.find_first_not_of("0123456789", kOwnPrefix.size()) == std::string_view::npos;
}

}  // namespace ferry::device
