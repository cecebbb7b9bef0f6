#include "cli/ps.h"

#include <gtest/gtest.h>

namespace ferry::cli {
namespace {

v1::PsReply reply() {
  v1::PsReply reply;
  auto* client = reply.add_programs();
  client->set_pid(446);
  client->set_name("client");
  client->set_state("running");
  auto* device = client->add_devices();
  device->set_name("ferry0");
  device->set_netdev("eth0");
  auto* qp = device->add_qps();
  qp->set_type("RC");
  qp->set_state("RTS");
  qp->set_qpn(0x1822);
  qp->set_wire_qpn(0x4822);
  qp->set_local("10.0.0.1:4791");
  qp->set_peer_qpn(0x2417);
  qp->set_peer_wire_qpn(0x2417);
  qp->set_peer("10.0.0.2:4791");
  qp->set_peer_class("ferry");
  qp->set_next_psn(3);
  qp->set_first_unacked_psn(0xFFFFFF);
  qp->set_sent_bytes(211047360);
  qp->set_received_bytes(999);
  auto* moving = reply.add_programs();
  moving->set_pid(7);
  moving->set_name("db");
  moving->set_container("web");
  moving->set_job("lu.C");
  moving->set_state("in doubt");
  moving->set_move_id(0xab);
  moving->set_group(0xcd);
  return reply;
}

TEST(Ps, HasTheJobsOfPrograms) {
  auto all = reply();
  EXPECT_EQ(programs_text(all, true),
            "JOB   PROGRAM  PID  CONTAINER  DEVICE  ON    QPS      SENT  RECEIVED  STATE\n"
            "-     client   446  -          ferry0  eth0    1  211.0 MB     999 B  running\n"
            "lu.C  db         7  web        -       -       -         -         -  in doubt move "
            "00000000000000ab of group 00000000000000cd\n");
  keep_job("lu.C", &all);
  ASSERT_EQ(all.programs_size(), 1);
  EXPECT_EQ(all.programs(0).name(), "db");
  keep_job("lu", &all);
  EXPECT_EQ(all.programs_size(), 0);
}

TEST(Ps, HasALineForEachDevice) {
  EXPECT_EQ(programs_text(reply(), false),
            "PROGRAM  PID  CONTAINER  DEVICE  ON    QPS      SENT  RECEIVED  STATE\n"
            "client   446  -          ferry0  eth0    1  211.0 MB     999 B  running\n"
            "db         7  web        -       -       -         -         -  in doubt move "
            "00000000000000ab of group 00000000000000cd\n");
}

TEST(Ps, HasALineForEachQueuePair) {
  const std::string text = queue_pairs_text(reply());
  EXPECT_NE(
      text.find("client   446  ferry0  RC    RTS    0x001822>0x004822  10.0.0.1:4791  0x002417"),
      std::string::npos)
      << text;
  // Four packets that are not acknowledged, across the end of the PSNs.
  EXPECT_NE(text.find(" ferry        0       3        4 "), std::string::npos) << text;
  EXPECT_EQ(text.find("db"), std::string::npos);
}

}  // namespace
}  // namespace ferry::cli
