#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "host/peers/messages.h"
#include "store/manifest.h"

// On which hosts the programs of a checkpoint go on.
namespace ferry::host {

struct Placed {
  std::string host;                     // as the user calls it, or as the manifest does
  std::vector<std::uint32_t> programs;  // their numbers in the checkpoint, in their order
  bool operator==(const Placed&) const = default;
};

// `here`: the host that is asked. Where the request names hosts, each program, the one with the largest image first,
// goes to the host that has the fewest bytes of images so far. Else it goes where the request maps its former host to,
// or to that host; programs of one host go on here. Throws Failure.
std::vector<Placed> placement_of(const store::Manifest& manifest, const v1::RestartRequest& request,
                                 const std::string& here);

}  // namespace ferry::host
