#include "host/checkpoint/facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "temporary.h"

namespace ferry::host {
namespace {

using ferry::test::failure_of;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Facts example() {
  Facts facts;
  facts.move_id = 0x8000000000000001;
  facts.check.set_program("db");
  facts.check.set_kind("process");
  facts.check.add_files("/srv/\xff");
  rnic::Slot slot;
  slot.local.address = port::Address::from_ipv4(0x0A4E0101);
  slot.local.udp_port = 40000;
  slot.slot = 7;
  slot.epoch = 3;
  facts.places = {{12, {{"eth0", {slot}}}}};
  facts.boot = 0xFFFFFFFFFFFFFFFF;
  facts.processes = {{12, 3456}};
  facts.written = {{"/var/log/db", 99, 1000}};
  return facts;
}

TEST(Facts, AreReadAsTheyWereWritten) {
  const Facts facts = example(), read = parse_facts(to_json(facts), "db");
  EXPECT_EQ(read.move_id, facts.move_id);
  EXPECT_EQ(read.check.SerializeAsString(), facts.check.SerializeAsString());
  ASSERT_EQ(read.places.size(), 1u);
  EXPECT_EQ(read.places[0].inner_pid, 12);
  ASSERT_EQ(read.places[0].contexts.size(), 1u);
  EXPECT_EQ(read.places[0].contexts[0].netdev, "eth0");
  ASSERT_EQ(read.places[0].contexts[0].slots.size(), 1u);
  EXPECT_EQ(read.places[0].contexts[0].slots[0].local, facts.places[0].contexts[0].slots[0].local);
  EXPECT_EQ(read.places[0].contexts[0].slots[0].epoch, 3u);
  EXPECT_EQ(read.boot, facts.boot);
  EXPECT_EQ(read.processes, facts.processes);
  EXPECT_EQ(read.written, facts.written);
}

TEST(Facts, ThatAreNoneAreRefused) {
  const auto said = [](auto change) {
    auto value = to_json(example());
    change(value);
    return failure_of([&] { parse_facts(value, "db"); });
  };
  EXPECT_EQ(said([](auto&) {}), "");
  for (const char* field : {"move_id", "check", "sockets", "boot", "processes", "written_files"}) {
    EXPECT_THAT(said([&](auto& value) { value.erase(field); }),
                StartsWith("what the checkpoint says of 'db' is malformed"))
        << field;
    EXPECT_THAT(said([&](auto& value) { value[field] = "x"; }),
                StartsWith("what the checkpoint says of 'db' is malformed"))
        << field;
  }
  EXPECT_THAT(said([](auto& value) { value["move_id"] = "0000000000000000"; }),
              HasSubstr("its move has no id"));
  EXPECT_THAT(said([](auto& value) { value["check"]["nothing"] = 1; }),
              HasSubstr("a message in it is malformed"));
  EXPECT_NE(failure_of([] { parse_facts(nlohmann::json::array(), "db"); }), "");
}

}  // namespace
}  // namespace ferry::host
