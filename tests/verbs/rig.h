#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "device/fake.h"
#include "verbs/entry.h"

namespace ferry::verbs {

// What discover_rnics() gives: one fake, "fake0".
std::shared_ptr<device::fake::Log>& fake_log();
device::fake::FakeRnic* latest_rnic();
// How many devices are discovered from now on: "fake0", "fake1", ...; latest_rnic() is the first.
void set_discovered(int count);
// Whether contexts of these have channels and a descriptor for their events.
void set_own_descriptors(bool own);
// Whether a virtual device stands before each of these, as before a device of the kernel.
void set_virtual(bool is_virtual);

// A null pointer that the compiler does not see, for parameters that are declared to have none.
template <typename T>
T* unseen_null() {
  static T* volatile null = nullptr;
  return null;
}

// An opened device.
struct Rig : ::testing::Test {
  ibv_context* context = nullptr;
  device::fake::FakeContext* fake = nullptr;
  device::fake::Log& log = *fake_log();

  void SetUp() override;
  void TearDown() override;
};

// With one of everything.
struct FullRig : Rig {
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  device::fake::FakeCq* fake_cq = nullptr;
  device::fake::FakeQp* fake_qp = nullptr;
  char memory[4096] = {};

  void SetUp() override;
  void TearDown() override;
  ibv_qp_init_attr qp_attributes() const;
};

}  // namespace ferry::verbs
