#include "host/units/rdma_cm_trial.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>

#include <cstring>

#include "ferry.pb.h"
#include "temporary.h"

namespace ferry::host {
namespace {

// A file takes all commands, and notes them.
TEST(RdmaCmTrial, BindsWhatTheProgramHasBound) {
  const test::Folder folder;
  const std::string device = folder.write("rdma_cm", "");
  const agent::RdmaCmBound bound{RDMA_PS_TCP, {port::Address::from_ipv4(0), 7174}, true, false};
  v1::RdmaCm message;
  to_message(std::vector{bound}, &message);
  ASSERT_EQ(from_message(message), std::vector{bound});
  try_rdma_cm("h2", "rping", from_message(message), device);
  const std::string written = folder.read("rdma_cm");
  constexpr std::size_t kHeader = sizeof(rdma_ucm_cmd_hdr);
  ASSERT_EQ(written.size(), 3 * kHeader + sizeof(rdma_ucm_create_id) + sizeof(rdma_ucm_set_option) +
                                sizeof(rdma_ucm_bind));
  rdma_ucm_create_id create{};
  std::memcpy(&create, &written[kHeader], sizeof create);
  EXPECT_EQ(create.ps, RDMA_PS_TCP);
  rdma_ucm_set_option option{};
  std::memcpy(&option, &written[2 * kHeader + sizeof create], sizeof option);
  EXPECT_EQ(option.optname, std::uint32_t{RDMA_OPTION_ID_REUSEADDR});
  rdma_ucm_bind bind{};
  std::memcpy(&bind, &written[3 * kHeader + sizeof create + sizeof option], sizeof bind);
  sockaddr_in address{};
  std::memcpy(&address, &bind.addr, sizeof address);
  EXPECT_EQ(bind.addr_size, sizeof address);
  EXPECT_EQ(address.sin_family, AF_INET);
  EXPECT_EQ(ntohs(address.sin_port), 7174);
}

TEST(RdmaCmTrial, NamesWhatIsMissing) {
  const test::Folder folder;
  const std::vector<agent::RdmaCmBound> bound{{RDMA_PS_TCP, {port::Address::from_ipv4(0), 7174}}};
  EXPECT_EQ(
      test::failure_of([&] { try_rdma_cm("h2", "rping", bound, folder.path("none")); }),
      "h2 has no " + folder.path("none") +
          ", which 'rping' uses: No such file or directory; load it there: modprobe rdma_ucm");
  EXPECT_EQ(
      test::failure_of([&] { try_rdma_cm("h2", "rping", bound, "/dev/full"); }),
      "'rping' has port 7174 of rdma_cm, which it cannot have on h2: No space left on device");
}

}  // namespace
}  // namespace ferry::host
