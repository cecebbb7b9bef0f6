#include "cli/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "ferry.pb.h"

namespace ferry::cli {
namespace {

TEST(Json, HasEveryFieldOfAReport) {
  v1::MoveReport report;
  report.set_program("p");
  report.set_image_bytes(1ull << 40);
  report.set_stop_ms(0.5);
  const auto json = to_json(report);
  EXPECT_EQ(json["image_bytes"], 1ull << 40);
  EXPECT_EQ(json["stop_ms"], 0.5);
  for (const char* name : {"stop_ms", "dump_ms", "transfer_ms", "restore_ms", "commit_ms",
                           "resume_ms", "rdma_share_ms", "blackout_ms"}) {
    EXPECT_TRUE(json.at(name).is_number_float()) << name;
  }
  for (const char* name : {"unacked_psns", "image_bytes", "qps", "retransmitted_packets"}) {
    EXPECT_TRUE(json.at(name).is_number_unsigned()) << name;
  }
}

TEST(Json, HasListsAndObjects) {
  v1::PsReply reply;
  EXPECT_EQ(to_json(reply)["programs"].dump(), "[]");
  auto* device = reply.add_programs()->add_devices();
  device->set_name("ferry0");
  device->add_qps()->set_resume_pending(true);
  const auto json = to_json(reply);
  EXPECT_EQ(json["programs"][0]["devices"][0]["name"], "ferry0");
  EXPECT_EQ(json["programs"][0]["devices"][0]["qps"][0]["resume_pending"], true);
  EXPECT_EQ(json["programs"][0]["pid"], 0);
}

}  // namespace
}  // namespace ferry::cli
