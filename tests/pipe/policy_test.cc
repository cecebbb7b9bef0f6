// Who may connect to whom, and how much containers may send and have: lines of root, and what the driver makes of them.

#include <gtest/gtest.h>
#include <netinet/in.h>

#include <memory>
#include <string>
#include <vector>

#include "base/failure.h"
#include "chosen_engine.h"
#include "pipe/policy/command.h"
#include "pipe/policy/rate_limit.h"
#include "played.h"

namespace ferry::pipe {
namespace {

constexpr Domain kPolicyBridge{1, 7, 0};
constexpr std::uint64_t kSecond = 1'000'000'000, kMillisecond = 1'000'000;

TEST(PrefixTest, HasWhatBeginsWithItsBits) {
  const auto prefix = prefix_of("10.0.0.8/29");
  ASSERT_TRUE(prefix);
  EXPECT_TRUE(prefix->has(address_of(8, 1)));
  EXPECT_TRUE(prefix->has(address_of(15, 1)));
  EXPECT_FALSE(prefix->has(address_of(7, 1)));
  EXPECT_FALSE(prefix->has(address_of(16, 1)));
  const auto of_six = prefix_of("fd00::/65");
  ASSERT_TRUE(of_six);
  SocketAddress address{AF_INET6, 0, {0xfd}};
  address.ip[15] = 9;
  EXPECT_TRUE(of_six->has(address));
  address.ip[8] = 0x80;
  EXPECT_FALSE(of_six->has(address));
  EXPECT_FALSE(prefix_of("::/0")->has(address_of(8, 1))) << "of another family";
  EXPECT_TRUE(prefix_of("0.0.0.0/0")->has(address_of(8, 1)));
  EXPECT_TRUE(prefix_of("any")->has(address));
}

TEST(PrefixTest, IsWrittenAsItIsRead) {
  for (const char* text : {"any", "10.0.0.1", "10.0.0.0/24", "0.0.0.0/0", "fd00::1", "fd00::/64"}) {
    const auto prefix = prefix_of(text);
    ASSERT_TRUE(prefix) << text;
    EXPECT_EQ(text_of(*prefix), text);
  }
  EXPECT_EQ(text_of(address_of(1, 80)), "10.0.0.1:80");
}

TEST(CommandTest, MalformedOnesAreRefused) {
  const std::string zero("10.0.0.1\0", 9);
  for (const std::string& line : std::vector<std::string>{"",
                                                          " ",
                                                          "allow",
                                                          "deny 10.0.0.1",
                                                          "deny 10.0.0.1 10.0.0.2 10.0.0.3",
                                                          "deny all any",
                                                          "deny 10.0.0 any",
                                                          "deny 10.0.0.1/33 any",
                                                          "deny 10.0.0.1/24 any",
                                                          "deny 10.0.0.0/ any",
                                                          "deny 10.0.0.0/-1 any",
                                                          "deny 10.0.0.0/24x any",
                                                          "deny fd00::/129 any",
                                                          "deny any any:0",
                                                          "deny any any:65536",
                                                          "deny any any:",
                                                          "deny any any:+1",
                                                          "deny any :80",
                                                          "deny any [fd00::1]80",
                                                          "deny any [fd00::1",
                                                          "deny any []:80",
                                                          "deny any any --before",
                                                          "deny any any --before 0",
                                                          "deny any any --before -1",
                                                          "deny any any --after 1",
                                                          "deny any any --before 4294967296",
                                                          "forget",
                                                          "forget x",
                                                          "forget 0",
                                                          "forget 1 2",
                                                          "limit",
                                                          "limit any",
                                                          "limit any --rate",
                                                          "limit any --rate 1M --memory",
                                                          "limit any --speed 1M",
                                                          "limit any --rate 0",
                                                          "limit any --rate 1023",
                                                          "limit any --rate -1M",
                                                          "limit any --rate 1MB",
                                                          "limit any --rate M",
                                                          "limit any --rate 2000T",
                                                          "limit any --rate 18446744073709551615T",
                                                          "limit any --rate 99999999999999999999",
                                                          "limit any --memory 0",
                                                          "limit 10.0.0.1/24 --rate 1M",
                                                          "limit 10.0.0.1:80 --rate 1M",
                                                          "ps 1",
                                                          "PS",
                                                          "reset",
                                                          "deny any " + zero,
                                                          "deny " + std::string(900, 'a') + " any",
                                                          "deny \xff\xfe any"}) {
    EXPECT_THROW(command_of(line), Failure) << line;
  }
}

TEST(CommandTest, SaysWhatIsToBeDone) {
  const Command deny = command_of("deny 10.0.0.0/24 [fd00::1]:80 --before 7");
  EXPECT_EQ(deny.kind, Command::Kind::kRule);
  EXPECT_FALSE(deny.rule.allows);
  EXPECT_EQ(text_of(deny.rule.from), "10.0.0.0/24");
  EXPECT_EQ(text_of(deny.rule.to), "fd00::1");
  EXPECT_EQ(deny.rule.port, 80);
  EXPECT_EQ(deny.number, 7U);
  const Command allow = command_of("allow any fd00::/64");
  EXPECT_TRUE(allow.rule.allows);
  EXPECT_EQ(allow.rule.port, 0);
  const Command limit = command_of("limit any --rate 2K --memory none");
  EXPECT_EQ(limit.rate, 2048U);
  EXPECT_EQ(limit.memory, 0U);
  EXPECT_FALSE(limit.connection_rate);
}

TEST(AccessListTest, TheFirstRuleThatIsMetDecides) {
  AccessList access;
  const SocketAddress from = address_of(2, 5000), to = address_of(1, 80);
  EXPECT_TRUE(access.allows(from, to));
  const auto denied = access.add(command_of("deny any 10.0.0.1:80").rule, 0);
  EXPECT_FALSE(access.allows(from, to));
  EXPECT_TRUE(access.allows(from, address_of(1, 81)));
  access.add(command_of("allow 10.0.0.2 any").rule, 0);
  EXPECT_FALSE(access.allows(from, to));
  const auto allowed = access.add(command_of("allow 10.0.0.2 any").rule, denied);
  EXPECT_TRUE(access.allows(from, to));
  EXPECT_FALSE(access.allows(address_of(3, 5000), to));
  EXPECT_EQ(access.add({}, 99), 0U) << "before a rule that is not there";
  EXPECT_TRUE(access.remove(allowed));
  EXPECT_FALSE(access.remove(allowed));
  EXPECT_FALSE(access.allows(from, to));
  while (access.rules().size() < AccessList::kMost) ASSERT_NE(access.add({}, 0), 0U);
  EXPECT_EQ(access.add({}, 0), 0U) << "it is full";
}

TEST(RateLimitTest, NeverGivesMoreThanTheRateAndABurst) {
  for (const std::uint64_t rate : {kLowestRate, std::uint64_t{1} << 20, std::uint64_t{10} << 30}) {
    RateLimit limit;
    const std::uint32_t piece = RateLimit::piece(rate, 65536);
    const std::uint64_t start = 5 * kSecond;
    std::uint64_t now = start, sent = 0;
    for (int step = 0; step < 1000; ++step) {
      if (limit.wait(now) == 0) {
        limit.spend(piece, rate, now);
        sent += piece;
      }
      now += step % 7 == 0 ? limit.wait(now) : kMillisecond / 10;
      const auto seconds = static_cast<double>(now - start) / 1e9;
      ASSERT_LE(static_cast<double>(sent), static_cast<double>(rate) * (seconds + 0.01) + piece);
    }
    EXPECT_GT(sent, 100 * piece) << "nothing is sent at a rate of " << rate;
  }
}

class PolicyTest : public testing::Test {
 protected:
  PolicyTest() {
    Driver::Settings settings;
    settings.clock = [this] { return time_; };
    driver_ = std::make_unique<Driver>(settings, pool_, *engine_);
    server_ = come(1);
    client_ = come(2);
  }
  ~PolicyTest() override {
    for (auto* program : {&server_, &client_}) (*program)->end();
  }

  std::unique_ptr<PlayedProgram> come(std::uint8_t number) {
    auto network = std::make_shared<PlayedNetwork>(number, address_of(number, 0), kPolicyBridge);
    return std::make_unique<PlayedProgram>(*driver_, std::move(network));
  }
  void change(const std::string& line) { driver_->change(command_of(line)); }

  struct Ends {
    SocketId client, server;
    std::uint32_t block = 0;
  };
  // A connection; the client has a block of 64 KiB.
  Ends connect() {
    if (listener_.generation == 0) listener_ = server_->listening(address_of(1, 80));
    Ends ends;
    ends.client = client_->socket();
    EXPECT_EQ(client_->ask(Call::kConnect, ends.client, 0, 0, address_of(1, 80)).error, 0);
    ends.server = server_->ask(Call::kAccept, listener_).socket;
    ends.block = client_->ask(Call::kAllocate, ends.client, 0, 65536).number;
    return ends;
  }
  std::int32_t try_to_connect(PlayedProgram& program, const SocketAddress& to) {
    return program.ask(Call::kConnect, program.socket(), 0, 0, to).error;
  }
  void send(const Ends& ends, int times) {
    for (int each = 0; each < times; ++each) client_->send(ends.client, ends.block, 0, 65536);
  }
  void work() {
    for (auto* program : {&client_, &server_}) {
      while (driver_->work((*program)->session(), 64) || driver_->pump()) {
      }
    }
    driver_->announce();
    for (auto* program : {&client_, &server_}) (*program)->reap();
  }
  std::uint64_t received(const Ends& ends) { return server_->of(ends.server).received; }

  std::uint64_t time_ = 100 * kSecond;
  Pool pool_{{}};
  const std::unique_ptr<Engine> engine_ = chosen_engine();
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<PlayedProgram> server_, client_;
  SocketId listener_;
};

TEST_F(PolicyTest, WhoIsDeniedIsRefused) {
  server_->listening(address_of(1, 80));
  const auto other = come(3);
  change("deny 10.0.0.2 10.0.0.1:80");
  EXPECT_EQ(try_to_connect(*client_, address_of(1, 80)), ECONNREFUSED);
  EXPECT_EQ(try_to_connect(*other, address_of(1, 80)), 0);
  change("allow 10.0.0.2 any --before 1");
  EXPECT_EQ(try_to_connect(*client_, address_of(1, 80)), 0);
  other->end();
}

TEST_F(PolicyTest, ANewRuleEndsConnectionsThatItDenies) {
  const Ends ends = connect();
  const auto other = come(3);
  const SocketId bystander = other->socket(), waits = client_->socket();
  ASSERT_EQ(other->ask(Call::kConnect, bystander, 0, 0, address_of(1, 80)).error, 0);
  ASSERT_EQ(client_->ask(Call::kConnect, waits, 0, 0, address_of(1, 80)).error, 0);
  change("deny 10.0.0.2 any");
  work();
  other->reap();
  EXPECT_TRUE(client_->of(ends.client).flags & kReset);
  EXPECT_TRUE(server_->of(ends.server).flags & kReset);
  EXPECT_TRUE(client_->of(waits).flags & kReset) << "of a backlog";
  EXPECT_FALSE(other->of(bystander).flags & kReset);
  other->end();
}

TEST_F(PolicyTest, AContainerSendsNoMoreThanItsRate) {
  const Ends first = connect(), second = connect();
  change("limit 10.0.0.2 --rate 100K");
  send(first, 8);
  send(second, 8);
  const std::uint64_t start = time_;
  while (received(first) + received(second) < 16 * 65536) {
    work();
    const auto seconds = static_cast<double>(time_ - start) / 1e9;
    ASSERT_LE(static_cast<double>(received(first) + received(second)),
              102400 * (seconds + 0.01) + 4096);
    const auto rest = driver_->holds_for();
    if (!rest) break;
    ASSERT_LE(*rest, std::chrono::milliseconds(100));
    time_ += static_cast<std::uint64_t>(rest->count());
  }
  EXPECT_EQ(received(first), 8 * 65536U);
  EXPECT_EQ(received(second), 8 * 65536U);
  EXPECT_GT(time_, start + 10 * kSecond);
  EXPECT_LT(time_, start + 20 * kSecond) << "it is held for longer than it has to be";
  EXPECT_FALSE(driver_->holds_for());
}

TEST_F(PolicyTest, EachConnectionHasARateOfItsOwn) {
  const Ends first = connect(), second = connect();
  change("limit any --connection-rate 64K");
  send(first, 4);
  send(second, 1);
  for (int step = 0; step < 1100; ++step) {
    work();
    time_ += kMillisecond;
  }
  EXPECT_EQ(received(second), 65536U) << "another connection has had its part";
  EXPECT_GT(received(first), 60'000U);
  EXPECT_LE(received(first), 65536 * 1.11 + 4096);
}

TEST_F(PolicyTest, ALimitChangesWhileBytesWait) {
  const Ends ends = connect();
  change("limit 10.0.0.2 --rate 1K --connection-rate 1K");
  send(ends, 1);
  work();
  EXPECT_EQ(received(ends), 4096U);
  ASSERT_TRUE(driver_->holds_for());
  change("limit 10.0.0.2 --rate none");
  work();
  EXPECT_EQ(received(ends), 8192U) << "the other limit is still there";
  change("limit 10.0.0.2 --connection-rate none");
  EXPECT_TRUE(driver_->limits().empty());
  work();
  EXPECT_EQ(received(ends), 65536U);
}

TEST_F(PolicyTest, OfSeveralLimitsTheLowestCounts) {
  change("limit any --rate 1M --memory 64M");
  change("limit 10.0.0.2 --rate 2M --memory 32M");
  change("limit 10.0.0.9 --rate 1K");
  const Owner& container = *client_->session()->container;
  EXPECT_EQ(container.rate, 1U << 20);
  EXPECT_EQ(container.memory->limit(), 32U << 20);
  EXPECT_EQ(server_->session()->container->memory->limit(), 64U << 20);
  const auto later = come(9);
  EXPECT_EQ(later->session()->container->rate, 1024U) << "of who comes later";
  later->end();
}

TEST_F(PolicyTest, ALimitOfAPrefixIsOfWhoHasAnAddressOfIt) {
  change("limit 10.0.0.2/31 --rate 1M");
  change("limit 10.0.0.0/24 --rate 4M");
  change("limit 10.1.0.0/16 --rate 1K");
  change("limit fd00::/8 --rate 1K");
  EXPECT_EQ(client_->session()->container->rate, 1U << 20)
      << "of several prefixes the lowest counts";
  EXPECT_EQ(server_->session()->container->rate, 4U << 20);
  change("limit 10.0.0.2/31 --rate none");
  EXPECT_EQ(client_->session()->container->rate, 4U << 20);
  auto network = std::make_shared<PlayedNetwork>(9, address_of(9, 0), kPolicyBridge);
  network->has_too_many = true;
  PlayedProgram many(*driver_, network);
  EXPECT_EQ(many.session()->container->rate, 1024U) << "more addresses than a list has";
  many.end();
}

TEST_F(PolicyTest, AContainerHasNoMoreMemoryThanItsLimit) {
  const Ends ends = connect();
  change("limit 10.0.0.2 --memory 9M");
  EXPECT_EQ(client_->ask(Call::kRings, client_->socket()).error, ENOBUFS);
  EXPECT_EQ(client_->ask(Call::kRings, ends.client).error, 0) << "what it has, it keeps";
  change("limit 10.0.0.2 --memory none");
  EXPECT_EQ(client_->ask(Call::kRings, client_->socket()).error, 0);
}

TEST_F(PolicyTest, WhatCannotBeDoneChangesNothing) {
  EXPECT_THROW(change("forget 1"), Failure);
  EXPECT_THROW(change("deny any any --before 1"), Failure);
  EXPECT_TRUE(driver_->access().rules().empty());
  for (int number = 0; number < 256; ++number) {
    change("limit 10.0.1." + std::to_string(number) + " --rate 1M");
  }
  EXPECT_THROW(change("limit any --rate 1M"), Failure);
  EXPECT_EQ(driver_->limits().size(), 256U);
}

TEST_F(PolicyTest, WhatIsHeldIsDeliveredAfterClose) {
  const Ends ends = connect();
  change("limit any --rate 64K");
  send(ends, 1);
  work();
  ASSERT_EQ(client_->ask(Call::kClose, ends.client).error, 0);
  for (int step = 0; step < 1200; ++step) {
    work();
    time_ += kMillisecond;
  }
  EXPECT_EQ(received(ends), 65536U);
  EXPECT_TRUE(server_->of(ends.server).flags & kEnd);
  EXPECT_FALSE(server_->of(ends.server).flags & kReset);
}

}  // namespace
}  // namespace ferry::pipe
