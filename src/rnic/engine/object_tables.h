#pragma once

#include <cstdint>
#include <unordered_map>

#include "rnic/engine/qp/shared_receive_queue.h"
#include "rnic/memory/address_handle.h"
#include "rnic/memory/memory.h"

namespace ferry::rnic {

// The objects that QPs look up by number when they send and receive: memory by its keys, address
// handles, XRC SRQs. Used under the engine's lock.
class ObjectTables {
 public:
  MemoryTable& memory() { return memory_; }

  void add(const AddressHandle* ah) { address_handles_[ah->handle()] = ah; }
  void remove(const AddressHandle* ah) { address_handles_.erase(ah->handle()); }
  const AddressHandle* address_handle(std::uint32_t handle) const {
    const auto at = address_handles_.find(handle);
    return at == address_handles_.end() ? nullptr : at->second;
  }

  void add_xrc(SharedReceiveQueue* srq) { xrc_srqs_.emplace(srq->number(), srq); }
  void remove_xrc(SharedReceiveQueue* srq) { xrc_srqs_.erase(srq->number()); }
  SharedReceiveQueue* xrc_srq(std::uint32_t number) const {
    const auto at = xrc_srqs_.find(number);
    return at == xrc_srqs_.end() ? nullptr : at->second;
  }
  template <typename F>
  void for_each_xrc_srq(F&& function) {
    for (const auto& [number, srq] : xrc_srqs_) function(*srq);
  }

 private:
  MemoryTable memory_;
  std::unordered_map<std::uint32_t, const AddressHandle*> address_handles_;
  std::unordered_map<std::uint32_t, SharedReceiveQueue*> xrc_srqs_;
};

}  // namespace ferry::rnic
