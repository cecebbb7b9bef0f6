#include "relay/abi.h"

#include <gtest/gtest.h>

namespace ferry::relay {
namespace {

TEST(Command, KnowsWhereTheIdIs) {
  rdma_ucm_connect body{};
  body.id = 77;
  auto command = Command::read(own_command(RDMA_USER_CM_CMD_CONNECT, body, 0));
  ASSERT_TRUE(command);
  EXPECT_EQ(command->id(), 77u);
  command->set_id(5);
  EXPECT_EQ(command->body<rdma_ucm_connect>().id, 5u);
}

// CREATE_ID alone has the address of its answer behind another field.
TEST(Command, KnowsWhereTheAnswerGoes) {
  rdma_ucm_create_id create{};
  create.uid = 1;
  create.response = 2;
  EXPECT_EQ(Command::read(own_command(RDMA_USER_CM_CMD_CREATE_ID, create, 4))->response(), 2u);
  rdma_ucm_destroy_id destroy{};
  destroy.response = 3;
  EXPECT_EQ(Command::read(own_command(RDMA_USER_CM_CMD_DESTROY_ID, destroy, 4))->response(), 3u);
}

TEST(Command, WhatIsTooShortOrUnknownIsRefused) {
  auto bytes = own_command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{1, 2}, 0);
  EXPECT_TRUE(Command::read(bytes));
  bytes.pop_back();
  EXPECT_FALSE(Command::read(bytes)) << "the header promises more";
  EXPECT_FALSE(Command::read(std::span(bytes).first(3)));
  EXPECT_FALSE(Command::read(own_command(RDMA_USER_CM_CMD_LISTEN, std::uint32_t{1}, 0)));
  EXPECT_FALSE(Command::read(own_command(999, rdma_ucm_listen{1, 2}, 0)));
}

// librdmacm of before the field `ece` writes such commands.
TEST(Command, OlderProgramsWriteLess) {
  auto bytes = own_command(RDMA_USER_CM_CMD_CONNECT, rdma_ucm_connect{}, 0);
  const std::uint16_t in = offsetof(rdma_ucm_connect, ece);
  std::memcpy(bytes.data() + offsetof(rdma_ucm_cmd_hdr, in), &in, sizeof in);
  bytes.resize(sizeof(rdma_ucm_cmd_hdr) + in);
  const auto command = Command::read(bytes);
  ASSERT_TRUE(command);
  EXPECT_EQ(command->body<rdma_ucm_connect>().ece.vendor_id, 0u);
}

}  // namespace
}  // namespace ferry::relay
