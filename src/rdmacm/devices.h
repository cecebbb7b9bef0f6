#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "port/endpoint.h"

// What rdma_cm must know of the RNICs of this process. verbs/ implements it.
namespace ferry::rdmacm {

struct Device {
  std::string name, netdev;
  std::uint64_t guid = 0;  // host byte order; 0: no device
};

class Devices {
 public:
  virtual ~Devices() = default;
  // Every device and its addresses, in the order of the devices.
  struct Listed {
    Device device;
    std::vector<port::Address> addresses;
  };
  virtual std::vector<Listed> list() = 0;
  // Index in the GID table of the device; that of the first GID of its family for an address that
  // is not in the table (the process was moved, its GIDs are virtual).
  virtual std::uint8_t gid_index(const Device& device, const port::Address& address) = 0;
  virtual std::uint8_t active_mtu(const Device& device) = 0;  // ibv_mtu

  // Where a QP of this process is, by its virtual QPN. False: there is no such QP.
  struct QpPlace {
    std::uint32_t wire_qpn = 0;
    port::Address peer;  // now; zero when it has none
  };
  virtual bool find_qp(const Device& device, std::uint32_t qpn, QpPlace* out) = 0;

  // What the peer of a QP was told to use for its own QP (clause 12.6.5, 12.6.7).
  struct Retries {
    std::uint8_t ack_timeout = 0, retry_count = 0, rnr_retry = 0;
  };
  virtual void peer_was_told(const Device& device, std::uint32_t qpn, const Retries& retries) = 0;

  // Finds the source address of packets to `to`: `from`, unless that is the any address. 0, or the
  // errno value of connect(2). `scope`: of a link-local `to`.
  virtual int route(const port::Address& from, const port::Address& to, std::uint32_t scope,
                    port::Address* source) = 0;
  // Whether the kernel knows the next hop to an address, or has no need to. `ask`: if not, the
  // kernel asks the network, and may know later.
  virtual bool next_hop_is_known(const port::Address& to, bool ask) = 0;
  virtual std::uint64_t random() = 0;
};

}  // namespace ferry::rdmacm
