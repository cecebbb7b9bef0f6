#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ferry::device {

// The kind of a device, which tells who understands its parcels. The values are part of messages
// and images.
enum class Kind : std::uint16_t {
  kFerry = 1,   // rnic/
  kVirtual = 2  // virtual/
};

// What a parked context leaves with ferryd, and what ferryd gives it to go on with. A parcel is
// opaque to all but those who know devices of its kind.
struct Parcel {
  Kind kind = Kind::kFerry;
  std::vector<int> descriptors;  // owned by whoever holds the struct
  std::vector<std::byte> bytes;
};

// The parcel of a kVirtual context is the name of the device behind the context: to_parcel() makes the parcel, and
// device_behind() gives the name in it; empty: the parcel is of another kind.
Parcel to_parcel(const std::string& device_behind);
std::string device_behind(const Parcel& parcel);

}  // namespace ferry::device
