#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <optional>

#include "virtual/shadows/objects.h"

namespace ferry::virt {

// A memory window. All numbers are those that the application knows.
class Mw final : public Shadow<device::Mw> {
 public:
  // What a window is bound to. A window of type 2 is bound for the peer of one QP (`qpn`).
  struct Binding {
    std::uint32_t lkey = 0;
    std::uint64_t address = 0, length = 0;
    unsigned access = 0;
    std::uint32_t qpn = 0;
  };
  // What the device knows of a binding.
  enum class Behind : std::uint8_t {
    kSame,
    kNew,  // the object behind is new, and was not bound yet
    kReleased  // the object behind was bound, and is so no longer, because its QP is about to be replaced
  };
  struct State {
    std::uint32_t rkey = 0;
    std::optional<Binding> binding;
    std::uint64_t change = 0;  // the number of the change that led to the state (Windows)
    Behind behind = Behind::kSame;
  };

  Mw(device::Mw& object, device::Pd* its_pd, ibv_mw_type its_type)
      : Shadow(object),
        pd(its_pd),
        type(its_type),
        state{object.rkey(), std::nullopt, 0, Behind::kSame},
        given_rkey(object.rkey()),
        handle_(object.handle()) {}
  std::uint32_t rkey() const override { return given_rkey; }
  std::uint32_t handle() const override { return handle_; }

  device::Pd* const pd;
  const ibv_mw_type type;
  // Guarded by the lock of Windows:
  State state;  // after all requests that were posted
  // The latest key that the application has got, or has given (type 2). The bind that makes a key of type 1
  // valid may be held.
  std::atomic<std::uint32_t> given_rkey;

 private:
  const std::uint32_t handle_;
};

}  // namespace ferry::virt
