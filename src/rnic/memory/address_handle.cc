#include "rnic/memory/address_handle.h"

#include <cstring>

namespace ferry::rnic {

AddressHandle::AddressHandle(std::uint32_t number, ProtectionDomain* domain,
                             const ibv_ah_attr& attributes)
    : number_(number), pd_(domain), attributes_(attributes) {
  const ibv_global_route& grh = attributes.grh;
  std::memcpy(address_.destination.bytes.data(), grh.dgid.raw, 16);
  address_.traffic_class = grh.traffic_class;
  address_.hop_limit = grh.hop_limit;
  address_.flow_label = grh.flow_label;
}

}  // namespace ferry::rnic
