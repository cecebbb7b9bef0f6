#include "cli/top.h"

#include <gtest/gtest.h>

namespace ferry::cli {
namespace {

void add_qp(v1::PsReply& reply, int pid, const std::string& name, std::uint32_t qpn,
            std::uint64_t bytes) {
  v1::Program* program = nullptr;
  for (auto& each : *reply.mutable_programs()) {
    if (each.pid() == pid) program = &each;
  }
  if (program == nullptr) {
    program = reply.add_programs();
    program->set_pid(pid);
    program->set_name(name);
    program->add_devices()->set_name("rnic0");
  }
  auto* qp = program->mutable_devices(0)->add_qps();
  qp->set_qpn(qpn);
  qp->set_type("RC");
  qp->set_sent_bytes(bytes);
  qp->set_sent_packets(bytes / 1000);
  qp->set_retransmitted_packets(bytes / 10000);
}

TEST(Top, RatesAreDifferencesBySecond) {
  v1::PsReply before, now;
  add_qp(before, 1, "slow", 7, 1000);
  add_qp(now, 1, "slow", 7, 21000);
  add_qp(before, 2, "fast", 7, 0);
  add_qp(now, 2, "fast", 7, 100000);
  add_qp(now, 2, "fast", 8, 5000000);    // was not there
  add_qp(before, 2, "fast", 9, 900000);  // another one has its number now
  add_qp(now, 2, "fast", 9, 100);
  const auto rates = rates_between(before, now, std::chrono::seconds(2));
  ASSERT_EQ(rates.size(), 2u);
  EXPECT_EQ(rates[0].program.name(), "fast");
  EXPECT_DOUBLE_EQ(rates[0].rates.sent_bytes, 50000);
  EXPECT_DOUBLE_EQ(rates[0].rates.sent_packets, 50);
  EXPECT_DOUBLE_EQ(rates[0].rates.retransmitted_packets, 5);
  ASSERT_EQ(rates[0].qps.size(), 3u);
  EXPECT_EQ(rates[0].qps[0].qp.qpn(), 7u);
  EXPECT_DOUBLE_EQ(rates[0].qps[1].rates.sent_bytes, 0);
  EXPECT_DOUBLE_EQ(rates[0].qps[2].rates.sent_bytes, 0);
  EXPECT_DOUBLE_EQ(rates[1].rates.sent_bytes, 10000);
}

TEST(Top, ProgramsWithoutQpsHaveALine) {
  v1::PsReply reply;
  reply.add_programs()->set_name("idle");
  EXPECT_EQ(top_text("h1", rates_between({}, reply, std::chrono::seconds(1))),
            "h1: programs: 0, QPs: 0; rates are per second\n"
            "1 without QPs that could be looked at: see ferry ps\n");
  add_qp(reply, 2, "busy", 0x4007, 1);
  const std::string text = top_text("h1", rates_between(reply, reply, std::chrono::seconds(1)));
  EXPECT_NE(text.find("h1: programs: 1, QPs: 1"), std::string::npos);
  EXPECT_NE(text.find("0x004007"), std::string::npos);
  EXPECT_EQ(text.find("idle"), std::string::npos);
}

}  // namespace
}  // namespace ferry::cli
