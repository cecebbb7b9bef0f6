#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "port/endpoint.h"

namespace ferry::rnic {

// The bytes under way to one endpoint, over all QPs (transport::Host::window).
struct Destination {
  port::Endpoint endpoint;
  std::int64_t outstanding = 0;
  std::uint32_t users = 0;
};

// The endpoints that the QPs of an RNIC send to. Used under the engine's lock.
class Destinations {
 public:
  Destination* use(const port::Endpoint& endpoint) {
    for (auto& destination : destinations_) {
      if (destination->endpoint == endpoint) {
        ++destination->users;
        return destination.get();
      }
    }
    destinations_.push_back(std::make_unique<Destination>(Destination{endpoint, 0, 1}));
    return destinations_.back().get();
  }
  void release(Destination* destination) {
    if (--destination->users > 0) return;
    std::erase_if(destinations_, [destination](const auto& d) { return d.get() == destination; });
  }

 private:
  std::vector<std::unique_ptr<Destination>> destinations_;
};

}  // namespace ferry::rnic
