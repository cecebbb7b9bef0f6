#include "rig.h"

#include "verbs/devices.h"
#include "verbs/objects.h"
#include "virtual/rnic.h"

namespace ferry::verbs {
namespace {

int discovered = 1;
bool own_descriptors = false;
bool is_virtual_device = false;
device::fake::FakeRnic* latest = nullptr;

}  // namespace

std::vector<std::unique_ptr<device::MovableRnic>> discover_rnics() {
  std::vector<std::unique_ptr<device::MovableRnic>> all;
  for (int i = 0; i < discovered; ++i) {
    auto rnic = std::make_unique<device::fake::FakeRnic>(
        fake_log(), "fake" + std::to_string(i), "eth" + std::to_string(9 + i),
        0x0123456789abcdef + static_cast<std::uint64_t>(i));
    rnic->own_descriptors = own_descriptors;
    if (i == 0) latest = rnic.get();
    if (is_virtual_device) {
      all.push_back(std::make_unique<virt::Rnic>(std::move(rnic)));
    } else {
      all.push_back(std::move(rnic));
    }
  }
  return all;
}

std::unique_ptr<device::MovableRnic> find_rnic(const std::string& /*name*/) {
  return nullptr;
}

std::shared_ptr<device::fake::Log>& fake_log() {
  static auto log = std::make_shared<device::fake::Log>();
  return log;
}

device::fake::FakeRnic* latest_rnic() {
  return latest;
}
void set_discovered(int count) {
  discovered = count;
}
void set_own_descriptors(bool own) {
  own_descriptors = own;
}
void set_virtual(bool is_virtual) {
  is_virtual_device = is_virtual;
}

void Rig::SetUp() {
  fake_log()->clear();
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ASSERT_NE(list, nullptr);
  ASSERT_GE(count, 1);
  context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  ASSERT_NE(context, nullptr);
  fake = latest->last_opened();
}

void Rig::TearDown() {
  if (context) {
    EXPECT_EQ(ibv_close_device(context), 0);
  }
}

ibv_qp_init_attr FullRig::qp_attributes() const {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = attributes.recv_cq = cq;
  attributes.cap = {16, 16, 2, 2, 64};
  attributes.qp_type = IBV_QPT_RC;
  return attributes;
}

void FullRig::SetUp() {
  Rig::SetUp();
  pd = ibv_alloc_pd(context);
  ASSERT_NE(pd, nullptr);
  channel = ibv_create_comp_channel(context);
  ASSERT_NE(channel, nullptr);
  cq = ibv_create_cq(context, 32, this, channel, 0);
  ASSERT_NE(cq, nullptr);
  ibv_qp_init_attr attributes = qp_attributes();
  qp = ibv_create_qp(pd, &attributes);
  ASSERT_NE(qp, nullptr);
  fake_cq = static_cast<device::fake::FakeCq*>(to_cq(cq)->device);
  fake_qp = static_cast<device::fake::FakeQp*>(to_qp(qp)->device);
}

void FullRig::TearDown() {
  if (qp) {
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
  }
  if (cq) {
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
  }
  if (channel) {
    EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
  }
  if (pd) {
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
  }
  Rig::TearDown();
}

}  // namespace ferry::verbs
