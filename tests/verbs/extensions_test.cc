#include "ferry/verbs_ext.h"

#include <vector>

#include "device/record.h"
#include "rig.h"
#include "verbs/process.h"

namespace ferry::verbs {
namespace {

std::vector<std::byte> record(device::ObjectType type, std::uint32_t handle, std::size_t body = 0) {
  std::vector<std::byte> bytes;
  device::put_record(&bytes, type, handle, std::vector<std::byte>(body));
  return bytes;
}

struct Extensions : FullRig {
  int restore(void** object, int type, int command, std::vector<std::byte> bytes) {
    return ibv_restore_object(context, object, type, command, bytes.data(), bytes.size());
  }
};

TEST_F(Extensions, ADumpStopsOnceAndTellsItsSize) {
  int count = 0;
  const int size = ibv_dump_context(context, &count, nullptr, 0);
  ASSERT_EQ(size, static_cast<int>(sizeof(ibv_dump_record)));
  EXPECT_EQ(count, 1);
  std::vector<std::byte> bytes(static_cast<std::size_t>(size));
  EXPECT_EQ(ibv_dump_context(context, &count, bytes.data(), bytes.size()), size);
  EXPECT_EQ(bytes, record(device::ObjectType::kContext, 0));
  EXPECT_EQ(log.count("quiesce"), 1u);
  EXPECT_EQ(log.count("resume"), 0u);
  // It is no part of a move any more.
  int contexts = 0;
  process().registry.for_each([&](agent::Registry::Entry& e) { contexts += e.context == fake; });
  EXPECT_EQ(contexts, 0);
}

TEST_F(Extensions, DumpErrors) {
  int count = 0;
  char byte;
  EXPECT_EQ(ibv_dump_context(nullptr, &count, nullptr, 0), -EINVAL);
  EXPECT_EQ(ibv_dump_context(context, nullptr, nullptr, 0), -EINVAL);
  EXPECT_EQ(ibv_dump_context(context, &count, nullptr, 5), -EINVAL);
  log.fail_next("quiesce", EIO);
  EXPECT_EQ(ibv_dump_context(context, &count, &byte, 1), -EIO);
  log.fail_next("describe", ENOMEM);
  EXPECT_EQ(ibv_dump_context(context, &count, &byte, 1), -ENOMEM);
}

TEST_F(Extensions, RestoresAPd) {
  void* object = nullptr;
  ASSERT_EQ(restore(&object, IBV_OBJECT_PD, IBV_RESTORE_CREATE, record(device::ObjectType::kPd, 5)),
            0);
  auto* made = static_cast<ibv_pd*>(object);
  EXPECT_EQ(made->context, context);
  ibv_mr* mr = ibv_reg_mr(made, memory, 8, 0);
  ASSERT_NE(mr, nullptr);
  object = mr;
  EXPECT_EQ(
      restore(&object, IBV_OBJECT_MR, IBV_RESTORE_MR_KEYS, record(device::ObjectType::kMr, 6, 40)),
      0);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_dealloc_pd(made), 0);
}

TEST_F(Extensions, TheContextsRefillResumes) {
  void* object = nullptr;
  ASSERT_EQ(restore(&object, IBV_OBJECT_CONTEXT, IBV_RESTORE_CREATE,
                    record(device::ObjectType::kContext, 0)),
            0);
  EXPECT_EQ(object, context);
  EXPECT_EQ(log.count("resume"), 0u);
  EXPECT_EQ(restore(&object, IBV_OBJECT_CONTEXT, IBV_RESTORE_REFILL,
                    record(device::ObjectType::kContext, 0)),
            0);
  EXPECT_EQ(log.last("resume"), "move");
}

// Its heir may run already.
TEST_F(Extensions, WhatWasDumpedIsNotResumed) {
  int count = 0;
  ASSERT_GT(ibv_dump_context(context, &count, nullptr, 0), 0);
  void* object = context;
  EXPECT_EQ(restore(&object, IBV_OBJECT_CONTEXT, IBV_RESTORE_REFILL,
                    record(device::ObjectType::kContext, 0)),
            EINVAL);
  object = nullptr;
  EXPECT_EQ(restore(&object, IBV_OBJECT_PD, IBV_RESTORE_CREATE, record(device::ObjectType::kPd, 5)),
            EINVAL);
  EXPECT_EQ(log.count("resume"), 0u);
}

TEST_F(Extensions, RestoreErrors) {
  void* object = nullptr;
  const auto pd_record = record(device::ObjectType::kPd, 5);
  EXPECT_EQ(restore(&object, IBV_OBJECT_CQ, IBV_RESTORE_CREATE, pd_record), EINVAL);  // other type
  EXPECT_EQ(restore(&object, IBV_OBJECT_PD, 99, pd_record), EINVAL);
  object = pd;
  EXPECT_EQ(restore(&object, IBV_OBJECT_PD, IBV_RESTORE_REFILL, pd_record), EINVAL);
  EXPECT_EQ(restore(&object, IBV_OBJECT_PD, IBV_RESTORE_MR_KEYS, pd_record), EINVAL);
  object = nullptr;
  EXPECT_EQ(restore(&object, IBV_OBJECT_QP, IBV_RESTORE_REFILL, record(device::ObjectType::kQp, 5)),
            EINVAL);
  auto cut = pd_record;
  cut.pop_back();
  EXPECT_EQ(restore(&object, IBV_OBJECT_PD, IBV_RESTORE_CREATE, cut), EINVAL);
  auto longer = pd_record;
  longer.push_back(std::byte{0});
  EXPECT_EQ(restore(&object, IBV_OBJECT_PD, IBV_RESTORE_CREATE, longer), EINVAL);
  EXPECT_EQ(ibv_restore_object(nullptr, &object, 0, 0, memory, 8), EINVAL);
  EXPECT_EQ(ibv_restore_object(context, nullptr, 0, 0, memory, 8), EINVAL);
  EXPECT_EQ(ibv_restore_object(context, &object, 0, 0, nullptr, 8), EINVAL);
  log.fail_next("restore", ENOENT);
  EXPECT_EQ(restore(&object, IBV_OBJECT_PD, IBV_RESTORE_CREATE, pd_record), ENOENT);
}

}  // namespace
}  // namespace ferry::verbs
