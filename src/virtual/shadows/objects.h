#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "device/movable.h"

// What the application holds: a shadow of each object of the device behind. The cookie of an object
// behind is its shadow, by which events find it.
namespace ferry::virt {

// A shadow, of whatever class.
class Shadowing {
 public:
  virtual ~Shadowing() = default;
  virtual device::Object* object_behind() = 0;
};

template <typename Base>
class Shadow : public Base, public Shadowing {
 public:
  explicit Shadow(Base& object) { attach(object); }
  device::Object* object_behind() override { return inner; }
  void attach(Base& object) {
    inner = &object;
    object.cookie = static_cast<device::Object*>(this);
  }
  Base* inner = nullptr;  // null: the device behind is away
};

// Null for null. `shadow` is one of virt::Context's.
template <typename Base>
Base* behind(Base* shadow) {
  return shadow != nullptr ? static_cast<Shadow<Base>*>(shadow)->inner : nullptr;
}

// Null: the application does not know the object yet.
template <typename Base>
Base* shadow_of(Base& object) {
  return static_cast<Base*>(static_cast<device::Object*>(object.cookie));
}

using Xrcd = Shadow<device::Xrcd>;

class Pd final : public Shadow<device::Pd> {
 public:
  using Shadow::Shadow;
  // Of the device behind, for the markers of a stop: they bind windows to no byte of it. Null: there is
  // none yet.
  device::Mr* region = nullptr;
};

class Mr final : public Shadow<device::Mr> {
 public:
  Mr(device::Mr& object, const device::MrInit& wanted, bool null_region)
      : Shadow(object),
        init(wanted),
        is_null(null_region),
        lkey_(object.lkey()),
        rkey_(object.rkey()) {}
  std::uint32_t lkey() const override { return lkey_; }
  std::uint32_t rkey() const override { return rkey_; }
  // The keys are those of the object behind.
  void take_keys() {
    lkey_ = inner->lkey();
    rkey_ = inner->rkey();
  }

  device::MrInit init;  // as the application gave it
  const bool is_null;   // only the PD of `init` counts

 private:
  std::uint32_t lkey_, rkey_;
};

class Mw final : public Shadow<device::Mw> {
 public:
  using Shadow::Shadow;
  std::uint32_t rkey() const override { return inner->rkey(); }
  std::uint32_t handle() const override { return inner->handle(); }
};

}  // namespace ferry::virt
