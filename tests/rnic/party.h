#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "rnic/context.h"

// A queue pair of the simulation with the application that uses it: posts random requests, and
// checks everything that comes of them.
namespace ferry::rnic::testing {

// The objects of a process at its new place, by what the application knows of them.
struct MovedObjects {
  std::map<std::uint32_t, device::Qp*> qps;  // by QPN
  std::map<std::uint32_t, device::Mr*> mrs;  // by key
  std::map<std::uint32_t, device::Mw*> mws;  // by handle
  std::map<std::uint32_t, device::Ah*> ahs;  // by handle
};

class Party {
 public:
  virtual ~Party() = default;

  // Where its memory lies, to be registered as one region.
  virtual std::byte* memory() = 0;
  virtual std::size_t memory_size() const = 0;

  // Objects of the RNIC it is on now; they change with a move.
  device::Qp* qp = nullptr;
  device::Mr* mr = nullptr;
  virtual void moved(std::uint32_t qpn, const MovedObjects& objects) {
    qp = objects.qps.at(qpn);
    mr = objects.mrs.at(mr->rkey());
  }

  // Posts a request, if its queue has room for one. `last`: signalled, so that everything before it
  // is known to be done.
  virtual void post_request(bool last) = 0;
  virtual void post_receive() = 0;
  virtual void completed(const ibv_wc& wc) = 0;
  virtual std::size_t requests_posted() const = 0;
  // Nothing is to come any more for certain.
  virtual bool done() const = 0;
  // At the end.
  virtual void check() = 0;
  virtual std::string describe() const = 0;
};

}  // namespace ferry::rnic::testing
