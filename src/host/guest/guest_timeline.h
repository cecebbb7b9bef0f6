#pragma once

#include "guest.pb.h"
#include "host/timeline/timeline.h"

namespace ferry::host {

inline constexpr char kGuestFerrydLane[] = "ferryd";

// Adds what the guest has done since `told` spans were told, and the time of the guest's clock. Returns how many are
// told now.
std::size_t tell_spans(const Timeline& timeline, std::size_t told, v1::GuestReply* reply);

}  // namespace ferry::host
