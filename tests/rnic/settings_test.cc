#include "rnic/system/settings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "rnic/discover.h"
#include "rnic/system/netdev.h"

namespace ferry::rnic {
namespace {

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(Settings, Defaults) {
  for (const char* name : {"FERRY_NETDEV", "FERRY_FAMILY", "FERRY_MIGRATION",
                           "FERRY_PAUSED_LIMIT_MS", "FERRY_HELLO_TRIES", "FERRY_PROGRESS_PRIORITY",
                           "FERRY_FAULT_LOSS", "FERRY_FAULT_RECEIVE_LOSS", "FERRY_FAULT_SEED"}) {
    unsetenv(name);
  }
  const Settings settings = settings_from_environment();
  EXPECT_TRUE(settings.netdevs.empty());
  EXPECT_TRUE(settings.use_ipv4 && settings.use_ipv6);
  EXPECT_TRUE(settings.migration.enabled);
  EXPECT_EQ(settings.migration.paused_limit, std::chrono::seconds(60));
  EXPECT_EQ(settings.migration.hello_repeats, 12u);
  EXPECT_EQ(settings.progress_priority, 10u);
  EXPECT_EQ(settings.loss.sending, 0);
  EXPECT_EQ(settings.loss.receiving, 0);
  EXPECT_EQ(settings.loss.seed, 1u);
}

TEST(Settings, AreRead) {
  Variable netdev("FERRY_NETDEV", "rdma0,,eth1,");
  Variable family("FERRY_FAMILY", "6");
  Variable migration("FERRY_MIGRATION", "off");
  Variable limit("FERRY_PAUSED_LIMIT_MS", "1500");
  Variable tries("FERRY_HELLO_TRIES", "3");
  Variable priority("FERRY_PROGRESS_PRIORITY", "0");
  Variable loss("FERRY_FAULT_LOSS", "0.25");
  Variable receive_loss("FERRY_FAULT_RECEIVE_LOSS", "1");
  Variable seed("FERRY_FAULT_SEED", "42");
  const Settings settings = settings_from_environment();
  EXPECT_EQ(settings.netdevs, (std::vector<std::string>{"rdma0", "eth1"}));
  EXPECT_FALSE(settings.use_ipv4);
  EXPECT_TRUE(settings.use_ipv6);
  EXPECT_FALSE(settings.migration.enabled);
  EXPECT_EQ(settings.migration.paused_limit, std::chrono::milliseconds(1500));
  EXPECT_EQ(settings.migration.hello_repeats, 3u);
  EXPECT_EQ(settings.progress_priority, 0u);
  EXPECT_EQ(settings.loss.sending, 0.25);
  EXPECT_EQ(settings.loss.receiving, 1);
  EXPECT_EQ(settings.loss.seed, 42u);
}

TEST(Settings, NonsenseIsIgnoredWithALine) {
  Variable family("FERRY_FAMILY", "5");
  Variable migration("FERRY_MIGRATION", "perhaps");
  Variable limit("FERRY_PAUSED_LIMIT_MS", "-3");
  Variable tries("FERRY_HELLO_TRIES", "1001");
  Variable priority("FERRY_PROGRESS_PRIORITY", "21");
  Variable loss("FERRY_FAULT_LOSS", "1.5");
  Variable receive_loss("FERRY_FAULT_RECEIVE_LOSS", "5%");
  Variable seed("FERRY_FAULT_SEED", "18446744073709551616");
  ::testing::internal::CaptureStderr();
  const Settings settings = settings_from_environment();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(settings.use_ipv4 && settings.use_ipv6);
  EXPECT_TRUE(settings.migration.enabled);
  EXPECT_EQ(settings.migration.paused_limit, Settings().migration.paused_limit);
  EXPECT_EQ(settings.migration.hello_repeats, Settings().migration.hello_repeats);
  EXPECT_EQ(settings.loss.sending, 0);
  EXPECT_EQ(settings.loss.receiving, 0);
  EXPECT_EQ(settings.loss.seed, 1u);
  for (const char* name :
       {"FERRY_FAMILY=5", "FERRY_MIGRATION=perhaps", "FERRY_PAUSED_LIMIT_MS=-3",
        "FERRY_HELLO_TRIES=1001", "FERRY_PROGRESS_PRIORITY=21", "FERRY_FAULT_LOSS=1.5",
        "FERRY_FAULT_RECEIVE_LOSS=5%", "FERRY_FAULT_SEED=18446744073709551616"}) {
    EXPECT_NE(said.find(name), std::string::npos) << name;
  }
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 8);
  EXPECT_NE(said.find("FERRY_PAUSED_LIMIT_MS=-3: wanted is a number, 1 to 86400000\n"),
            std::string::npos);
}

TEST(Netdev, LoopbackServesWhenNamed) {
  Settings settings;
  settings.netdevs = {"lo"};
  const auto netdevs = list_netdevs(settings);
  ASSERT_EQ(netdevs.size(), 1u);
  EXPECT_TRUE(netdevs[0].loopback);
  EXPECT_EQ(netdevs[0].addresses.at(0), port::Address::from_ipv4(0x7F000001));
  EXPECT_NE(netdevs[0].guid, 0u);
  settings.netdevs = {"no-such-netdev"};
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(list_netdevs(settings).empty());
  EXPECT_TRUE(list_netdevs(settings).empty());
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "ferry: FERRY_NETDEV names no-such-netdev, and no interface of that name is up and has "
            "an address\n");  // once
}

// rdma_cm finds a device by all addresses of its interface, also where FERRY_FAMILY leaves GIDs out.
TEST(Netdev, TheSettingsLimitTheGidTableOnly) {
  Settings settings;
  settings.netdevs = {"lo"};
  const auto both = list_netdevs(settings).at(0).addresses;
  const Variable netdev("FERRY_NETDEV", "lo"), family("FERRY_FAMILY", "4");
  const auto rnics = discover();
  ASSERT_EQ(rnics.size(), 1u);
  device::PortFacts facts;
  ASSERT_EQ(rnics[0]->query(&facts), 0);
  EXPECT_EQ(facts.gids.size(), 1u);
  const auto found_by = rnics[0]->addresses();
  ASSERT_EQ(found_by.size(), both.size());
  for (std::size_t i = 0; i < both.size(); ++i) {
    EXPECT_EQ(std::memcmp(found_by[i].raw, both[i].bytes.data(), 16), 0) << i;
  }
}

TEST(Netdev, PayloadMtu) {
  EXPECT_EQ(payload_mtu(1500), 1024u);
  EXPECT_EQ(payload_mtu(9000), 4096u);
  EXPECT_EQ(payload_mtu(65536), 4096u);
  EXPECT_EQ(payload_mtu(4195), 2048u);
  EXPECT_EQ(payload_mtu(4196), 4096u);
  EXPECT_EQ(payload_mtu(576), 256u);
  EXPECT_EQ(payload_mtu(100), 256u);
}

}  // namespace
}  // namespace ferry::rnic
