#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "device/movable.h"

// The application holds a shadow of each object of the device behind. The cookie of an object behind
// points to its shadow, so that events find the shadow.
namespace ferry::virt {

// A shadow of any class.
class Shadowing {
 public:
  virtual ~Shadowing() = default;
  virtual device::Object* object_behind() = 0;
};

template <typename Base>
class Shadow : public Base, public Shadowing {
 public:
  Shadow() = default;
  explicit Shadow(Base& object) { attach(object); }
  device::Object* object_behind() override { return inner; }
  void attach(Base& object) {
    inner = &object;
    object.cookie = static_cast<device::Object*>(this);
  }
  Base* inner =
      nullptr;  // null: the device behind is away or has no such object, or this is a late QP (LateQps)
};

// Gives the object behind a shadow of virt::Context; null for null.
template <typename Base>
Base* behind(Base* shadow) {
  return shadow != nullptr ? static_cast<Shadow<Base>*>(shadow)->inner : nullptr;
}

// Gives the shadow of an object of the device; null: the application does not know the object yet.
template <typename Base>
Base* shadow_of(Base& object) {
  return static_cast<Base*>(static_cast<device::Object*>(object.cookie));
}

class Xrcd final : public Shadow<device::Xrcd> {
 public:
  Xrcd(device::Xrcd& object, bool has_file) : Shadow(object), is_shared(has_file) {}
  const bool is_shared;  // others may have the domain, too
};

class Pd final : public Shadow<device::Pd> {
 public:
  using Shadow::Shadow;
  // An MR of the device behind, which the markers of a stop name when they bind their windows to no
  // byte of it. Null: there is none yet.
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
  // Takes over the keys of the object behind.
  void take_keys() {
    lkey_ = inner->lkey();
    rkey_ = inner->rkey();
  }

  device::MrInit init;  // as the application gave it
  const bool is_null;   // a null MR: only the PD of `init` counts

 private:
  std::uint32_t lkey_, rkey_;
};

}  // namespace ferry::virt
