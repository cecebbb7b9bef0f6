#include "host/standin/origins.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "played_process.h"
#include "port/slot.h"
#include "port/udp_port.h"
#include "wire/icrc.h"
#include "wire/migration.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;
using test::eventually;

// Tells what the test says.
class ScriptedDirectory : public Directory {
 public:
  std::optional<Place> lookup(const port::Endpoint&) override { return std::nullopt; }
  void renew(const Place&) override {}
  void put(const Place&) override {}
  void remove(const Place&) override {}
  void left(const Place&) override {}
  std::optional<Place> told(const port::Endpoint&) const override { return std::nullopt; }
  void watch(const port::Endpoint& origin, Watcher watcher) override {
    std::lock_guard lock(mutex_);
    watchers_[origin] = std::move(watcher);
  }
  void unwatch(const port::Endpoint& origin) override {
    std::lock_guard lock(mutex_);
    watchers_.erase(origin);
  }
  void tell(const port::Endpoint& origin, const std::optional<Place>& place) {
    std::lock_guard lock(mutex_);
    if (watchers_.contains(origin)) watchers_[origin](place);
  }
  bool is_watched(const port::Endpoint& origin) {
    std::lock_guard lock(mutex_);
    return watchers_.contains(origin);
  }

 private:
  std::mutex mutex_;
  std::map<port::Endpoint, Watcher> watchers_;
};

class OriginsTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kSlot = 211, kAskerSlot = 212, kQpn = kSlot << 14 | 99;
  // 127.78.x.y: tests run at the same time.
  const port::Address here =
      port::Address::from_ipv4(0x7F4E0000 | (static_cast<std::uint32_t>(::getpid()) & 0xFFFF));
  const port::Endpoint origin{here, port::udp_port_of_slot(kSlot)};

  void keep(Origins& origins) {
    int error = 0;
    auto port = port::UdpPort::bind(here, kSlot, &error);
    ASSERT_NE(port, nullptr) << error;
    rnic::Slot slot;
    slot.local = slot.origin = port->local();
    slot.slot = kSlot;
    slot.epoch = 1;
    slot.descriptor = port->release();
    const StandInId id = stand_ins.add(slot);
    stand_ins.committed(id, place(2, 1).location, 7, 1);
    network = std::make_shared<int>(0);
    released = network;
    origins.keep(id, place(2, 1), std::move(network));
    asker = port::UdpPort::bind(here, kAskerSlot, &error);
    ASSERT_NE(asker, nullptr) << error;
  }
  Place place(unsigned host, std::uint32_t epoch) {
    return {origin,
            {port::Address::from_ipv4(0x0A4E0001 + (host << 8)), port::udp_port_of_slot(7)},
            "h" + std::to_string(host),
            "127.0.0.1:1",
            epoch,
            false};
  }
  bool is_free() {
    int error = 0;
    return port::UdpPort::bind(here, kSlot, &error) != nullptr;
  }
  // What HELLO to the slot is answered with.
  std::optional<wire::MigrationMessage> ask() {
    std::array<std::byte, wire::kMigrationPayload> payload;
    wire::encode({.type = wire::MigrationType::kHello, .source_qpn = 0x55, .cookie = 0xC0},
                 payload);
    wire::Header header;
    header.opcode = wire::Opcode::kMigration;
    header.dest_qpn = kQpn;
    std::uint16_t identification = 0;
    const auto out =
        asker->reserve(origin, wire::packet_size(header.opcode, payload.size()), &identification);
    wire::encode_header(header, payload.size(), out);
    std::copy(payload.begin(), payload.end(), out.begin() + wire::header_size(header.opcode));
    wire::seal(out, asker->local(), origin, identification);
    asker->flush();
    std::array<port::Received, 8> received;
    std::size_t count = 0;
    for (int tries = 0; tries < 200 && count == 0; ++tries) {
      count = asker->receive(received);
      if (count == 0) std::this_thread::sleep_for(milliseconds(5));
    }
    if (count == 0) return std::nullopt;
    const auto packet = wire::parse(received[0].bytes);
    return packet ? wire::parse_migration(packet->payload) : std::nullopt;
  }
  bool is_told(const Place& expected) {
    return eventually([&] {
      const auto answer = ask();
      return answer && answer->type == wire::MigrationType::kMoved &&
             answer->location == expected.location && answer->epoch == expected.epoch &&
             answer->echo == 0xC0;
    });
  }

  StandInHost stand_ins;
  ScriptedDirectory directory;
  std::shared_ptr<int> network;
  std::weak_ptr<int> released;
  std::unique_ptr<port::UdpPort> asker;
};

TEST_F(OriginsTest, HoldsTheSlotAndTellsTheWayUntilTheEnd) {
  Origins origins(stand_ins, directory);
  keep(origins);
  EXPECT_FALSE(is_free());
  EXPECT_TRUE(is_told(place(2, 1)));
  EXPECT_EQ(origins.kept(here).size(), 1u);
  EXPECT_EQ(origins.addresses(), std::set{here});
  directory.tell(origin, place(3, 2));
  EXPECT_TRUE(is_told(place(3, 2)));
  EXPECT_EQ(origins.kept(here).front().host, "h3");
  directory.tell(origin, place(2, 1));  // late
  EXPECT_TRUE(is_told(place(3, 2)));
  EXPECT_FALSE(released.expired());
  Place end = place(3, 2);
  end.ended = true;
  directory.tell(origin, end);
  EXPECT_TRUE(eventually([&] { return released.expired(); }));
  EXPECT_TRUE(is_free());
  EXPECT_FALSE(directory.is_watched(origin));
  EXPECT_TRUE(origins.kept(here).empty());
}

TEST_F(OriginsTest, OutlivesADirectoryThatKnowsNothingForAWhile) {
  Origins origins(stand_ins, directory, std::chrono::hours(1));
  keep(origins);
  directory.tell(origin, std::nullopt);
  EXPECT_TRUE(is_told(place(2, 1)));
  directory.tell(origin, place(3, 2));
  EXPECT_TRUE(is_told(place(3, 2)));
  EXPECT_FALSE(is_free());
}

TEST_F(OriginsTest, IsLostWhenNobodyKnowsOfItForLong) {
  Origins origins(stand_ins, directory, milliseconds(1));
  keep(origins);
  EXPECT_FALSE(is_free());
  directory.tell(origin, std::nullopt);
  EXPECT_TRUE(eventually([&] { return released.expired(); }));
  EXPECT_TRUE(is_free());
}

}  // namespace
}  // namespace ferry::host
