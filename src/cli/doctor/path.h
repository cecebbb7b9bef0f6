#pragma once

#include <google/protobuf/repeated_ptr_field.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "port/endpoint.h"

namespace ferry::v1 {
class RdmaAddress;
}

// Whether RDMA packets of full size get to another host.
namespace ferry::cli::doctor {

struct Path {
  port::Address to;
  std::string netdev;        // the interface of this host that leads there
  std::uint32_t wanted = 0;  // the RDMA MTU that both ends have
  std::uint32_t passes = 0;  // the largest RDMA MTU that gets there; 0: none does
};

// The largest RDMA MTU, up to `wanted`, that gets there; 0: none does. `arrives`: whether a packet of so many bytes was
// seen to arrive. Nothing: not even small packets were, so that nothing is known.
std::optional<std::uint32_t> largest_mtu(std::uint32_t wanted,
                                         const std::function<bool(std::size_t bytes)>& arrives);

// The paths to these addresses of one host, as far as they lead over an interface that is a device
// of Ferry's and the other kernel tells that packets arrive.
std::vector<Path> paths_to(const google::protobuf::RepeatedPtrField<v1::RdmaAddress>& addresses);

}  // namespace ferry::cli::doctor
