#include <cstring>

#include "rig.h"

namespace ferry::verbs {
namespace {

TEST_F(Rig, Device) {
  ibv_device_attr attributes{};
  ASSERT_EQ(ibv_query_device(context, &attributes), 0);
  EXPECT_EQ(attributes.max_sge, 16);
  EXPECT_EQ(ibv_query_device(nullptr, &attributes), EINVAL);
  EXPECT_EQ(ibv_query_device(context, nullptr), EINVAL);
  log.fail_next("query_device", EIO);
  EXPECT_EQ(ibv_query_device(context, &attributes), EIO);
}

TEST_F(Rig, ExtendedDeviceOfAnySize) {
  ibv_device_attr_ex attributes;
  std::memset(&attributes, 0xff, sizeof attributes);
  ASSERT_EQ(ibv_query_device_ex(context, nullptr, &attributes), 0);
  EXPECT_EQ(attributes.orig_attr.max_sge, 16);
  EXPECT_EQ(attributes.comp_mask, 0u);
  auto* extended = verbs_get_ctx(context);
  EXPECT_EQ(extended->query_device_ex(context, nullptr, &attributes, 8), EINVAL);
  ibv_query_device_ex_input input{1};
  EXPECT_EQ(ibv_query_device_ex(context, &input, &attributes), EINVAL);
}

TEST_F(Rig, PortInTheOldAndTheNewSize) {
  struct {
    ibv_port_attr attributes;
    unsigned char beyond[16];
  } out;
  std::memset(&out, 0xee, sizeof out);
  ASSERT_EQ(ibv_query_port(context, 1, reinterpret_cast<_compat_ibv_port_attr*>(&out)), 0);
  EXPECT_EQ(out.attributes.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(out.attributes.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(out.attributes.port_cap_flags2, 0xeeee);  // programs of old have no room for it
  ASSERT_EQ(verbs_get_ctx(context)->query_port(context, 1, &out.attributes, sizeof out.attributes),
            0);
  EXPECT_EQ(out.attributes.port_cap_flags2, 0);
  EXPECT_EQ(out.beyond[0], 0xee);
  EXPECT_EQ(verbs_get_ctx(context)->query_port(context, 2, &out.attributes, sizeof out.attributes),
            EINVAL);
}

TEST_F(Rig, Gids) {
  ibv_gid gid{};
  ASSERT_EQ(ibv_query_gid(context, 1, 0, &gid), 0);
  EXPECT_EQ(gid.raw[10], 0xff);
  EXPECT_EQ(gid.raw[12], 192);
  errno = 0;
  EXPECT_EQ(ibv_query_gid(context, 1, 1, &gid), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_query_gid(context, 1, -1, &gid), -1);
  EXPECT_EQ(ibv_query_gid(context, 2, 0, &gid), -1);
  int type = -1;
  EXPECT_EQ(ibv_query_gid_type(context, 1, 0, &type), 0);
  EXPECT_EQ(type, 1);  // RoCE v2, as sysfs counts
  ibv_gid_entry entry{};
  EXPECT_EQ(ibv_query_gid_ex(context, 1, 0, &entry, 0), 0);
  EXPECT_EQ(entry.gid_type, static_cast<unsigned>(IBV_GID_TYPE_ROCE_V2));
  EXPECT_EQ(ibv_query_gid_ex(context, 1, 0, &entry, 1), EOPNOTSUPP);
  EXPECT_EQ(ibv_query_gid_ex(context, 1, 5, &entry, 0), EINVAL);
  EXPECT_EQ(ibv_query_gid_ex(context, 257, 0, &entry, 0), EINVAL);
}

TEST_F(Rig, GidTable) {
  fake->gids.push_back({0xfe, 0x80});
  fake->port_attributes.gid_tbl_len = 4;  // two of them empty
  ibv_gid_entry entries[4]{};
  ASSERT_EQ(ibv_query_gid_table(context, entries, 4, 0), 2);
  EXPECT_EQ(entries[1].gid.raw[0], 0xfe);
  EXPECT_EQ(entries[1].gid_index, 1u);
  EXPECT_EQ(ibv_query_gid_table(context, entries, 1, 0), -EINVAL);
  EXPECT_EQ(ibv_query_gid_table(context, entries, 4, 1), -EOPNOTSUPP);
}

TEST_F(Rig, Pkeys) {
  __be16 key = 0;
  ASSERT_EQ(ibv_query_pkey(context, 1, 0, &key), 0);
  EXPECT_EQ(key, 0xffff);
  EXPECT_EQ(ibv_query_pkey(context, 1, 1, &key), -1);
  EXPECT_EQ(ibv_get_pkey_index(context, 1, 0xffff), 0);
  EXPECT_EQ(ibv_get_pkey_index(context, 1, 0x1234), -1);
}

TEST_F(Rig, TheClock) {
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  ASSERT_EQ(ibv_query_rt_values_ex(context, &values), 0);
  EXPECT_EQ(values.comp_mask, unsigned{IBV_VALUES_MASK_RAW_CLOCK});
  EXPECT_EQ(values.raw_clock.tv_sec, 0);
  EXPECT_EQ(values.raw_clock.tv_nsec, 5000000007);  // ticks
  values.comp_mask = IBV_VALUES_MASK_RESERVED;
  EXPECT_EQ(ibv_query_rt_values_ex(context, &values), EINVAL);
}

TEST_F(Rig, ADeviceWithoutAClockTellsNoTime) {
  fake->now = 0;
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  EXPECT_EQ(ibv_query_rt_values_ex(context, &values), EOPNOTSUPP);
}

TEST_F(Rig, NullsAreErrors) {
  EXPECT_EQ(ibv_query_device(context, nullptr), EINVAL);
  EXPECT_EQ(ibv_query_device_ex(context, nullptr, unseen_null<ibv_device_attr_ex>()), EINVAL);
  EXPECT_EQ(___ibv_query_port(context, 1, unseen_null<ibv_port_attr>()), EINVAL);
  EXPECT_EQ(ibv_query_gid(context, 1, 0, nullptr), -1);
  EXPECT_EQ(ibv_query_pkey(context, 1, 0, nullptr), -1);
  EXPECT_EQ(ibv_query_gid_ex(context, 1, 0, nullptr, 0), EINVAL);
  EXPECT_EQ(ibv_query_gid_table(context, nullptr, 4, 0), -EINVAL);
  EXPECT_EQ(ibv_query_rt_values_ex(context, nullptr), EINVAL);
  ibv_query_device_ex_input input{1};
  ibv_device_attr_ex attributes;
  EXPECT_EQ(ibv_query_device_ex(context, &input, &attributes), EINVAL);
}

}  // namespace
}  // namespace ferry::verbs
