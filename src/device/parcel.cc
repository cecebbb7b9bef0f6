#include "device/parcel.h"

#include <cstddef>
#include <span>

namespace ferry::device {

Parcel to_parcel(const std::string& device_behind) {
  const auto name = std::as_bytes(std::span(device_behind));
  return {Kind::kVirtual, {}, {name.begin(), name.end()}};
}

std::string device_behind(const Parcel& parcel) {
  if (parcel.kind != Kind::kVirtual) return {};
  return {reinterpret_cast<const char*>(parcel.bytes.data()), parcel.bytes.size()};
}

}  // namespace ferry::device
