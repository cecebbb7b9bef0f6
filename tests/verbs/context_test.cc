#include <fcntl.h>
#include <poll.h>

#include <cstring>

#include "rig.h"
#include "verbs/objects.h"

namespace ferry::verbs {
namespace {

TEST(DeviceList, HasOurDevice) {
  int count = -1;
  ibv_device** list = ibv_get_device_list(&count);
  ASSERT_NE(list, nullptr);
  ASSERT_EQ(count, 1);
  EXPECT_EQ(list[1], nullptr);
  EXPECT_STREQ(ibv_get_device_name(list[0]), "fake0");
  EXPECT_EQ(ibv_get_device_guid(list[0]), __builtin_bswap64(0x0123456789abcdef));
  EXPECT_EQ(ibv_get_device_index(list[0]), -1);
  EXPECT_EQ(list[0]->node_type, IBV_NODE_CA);
  EXPECT_EQ(list[0]->transport_type, IBV_TRANSPORT_IB);
  EXPECT_STREQ(list[0]->ibdev_path, "/sys/class/infiniband/fake0");
  ibv_free_device_list(list);
}

TEST(DeviceList, SaysThatThereIsNoneWhenThereIsNone) {
  set_discovered(0);
  int count = -1;
  ibv_device** list = ibv_get_device_list(&count);
  set_discovered(1);
  ASSERT_NE(list, nullptr);
  EXPECT_EQ(count, 0);
  EXPECT_EQ(list[0], nullptr);
  ibv_free_device_list(list);
}

TEST(DeviceList, ADeviceKeepsItsAddressAndOutlivesTheList) {
  ibv_device** first = ibv_get_device_list(nullptr);
  ibv_device* device = first[0];
  ibv_free_device_list(first);
  ibv_device** second = ibv_get_device_list(nullptr);
  EXPECT_EQ(second[0], device);
  ibv_free_device_list(second);
  ibv_free_device_list(nullptr);
}

TEST_F(Rig, AContextLooksAsTheInlineFunctionsExpect) {
  EXPECT_GE(::fcntl(context->cmd_fd, F_GETFD), 0);
  EXPECT_GE(context->num_comp_vectors, 1);
  EXPECT_GE(::fcntl(context->async_fd, F_GETFD), 0);
  pollfd p{context->async_fd, POLLIN, 0};
  EXPECT_EQ(::poll(&p, 1, 0), 0);
  EXPECT_NE(verbs_get_ctx(context), nullptr);
  EXPECT_NE(verbs_get_ctx_op(context, query_device_ex), nullptr);
  EXPECT_EQ(context->device->name, std::string("fake0"));
}

TEST_F(Rig, ADeviceThatCannotBeOpenedGivesErrno) {
  fake_log()->fail_next("open", EMFILE);
  errno = 0;
  EXPECT_EQ(ibv_open_device(context->device), nullptr);
  EXPECT_EQ(errno, EMFILE);
}

TEST(OpenDevice, NullIsAnError) {
  errno = 0;
  EXPECT_EQ(ibv_open_device(nullptr), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_close_device(nullptr), -1);
}

TEST_F(Rig, TwoContextsOfOneDevice) {
  ibv_context* second = ibv_open_device(context->device);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(second, context);
  EXPECT_NE(second->async_fd, context->async_fd);
  EXPECT_EQ(ibv_close_device(second), 0);
}

}  // namespace
}  // namespace ferry::verbs
