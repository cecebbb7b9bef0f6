#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/doctor/devices.h"
#include "cli/doctor/ferryd.h"
#include "cli/doctor/hosts.h"
#include "cli/doctor/kernel.h"
#include "cli/doctor/limits.h"
#include "cli/doctor/report.h"
#include "port/udp_socket.h"

// What `ferry doctor` finds on hosts that lack things.
namespace ferry::cli::doctor {
namespace {

using std::chrono::hours;

// The finding of a check; the test fails when there is not exactly one.
Finding one_of(const Findings& findings, const std::string& check) {
  Findings found;
  for (const auto& finding : findings) {
    if (finding.check == check) found.push_back(finding);
  }
  EXPECT_EQ(found.size(), 1u) << check;
  return found.empty() ? Finding{} : found.front();
}

void expect(const Finding& finding, State state, const std::string& found,
            const std::string& way_out) {
  EXPECT_EQ(finding.state, state) << finding.check << ": " << finding.found;
  EXPECT_NE(finding.found.find(found), std::string::npos) << finding.found;
  EXPECT_NE(finding.way_out.find(way_out), std::string::npos) << finding.way_out;
  EXPECT_EQ(finding.way_out.empty(), way_out.empty()) << finding.way_out;
  EXPECT_EQ((finding.found + finding.way_out).find('\n'), std::string::npos);
}

void expect_all_ok(const Findings& findings, const std::string& but = {}) {
  for (const auto& finding : findings) {
    if (finding.check != but) expect(finding, State::kOk, "", "");
  }
}

const port::Address kAddress = port::Address::from_ipv4(0x0A4E0101);  // 10.78.1.1
const port::Address kOther = port::Address::from_ipv4(0x0A4E0201);

struct Devices : testing::Test {
  DeviceFacts facts = [] {
    DeviceFacts good;
    good.library = "/lib/libferry.so";
    rnic::Netdev netdev;
    netdev.name = "eth0";
    netdev.addresses = {kAddress};
    good.netdevs = {netdev};
    good.is_root = true;
    return good;
  }();
  Finding port() const { return one_of(check_devices(facts), "UDP port 4791 of 10.78.1.1"); }
};

TEST_F(Devices, AreAllThere) {
  const auto findings = check_devices(facts);
  expect_all_ok(findings, "outside of ferry run");
  expect(one_of(findings, "outside of ferry run"), State::kNote, "none of Ferry's", "ferry run --");
  expect(one_of(findings, "interface eth0"), State::kOk,
         "becomes ferry0: 10.78.1.1, MTU 1500, so RDMA MTU 1024", "");
}

TEST_F(Devices, LackLibraries) {
  facts.verbs_problem = "libibverbs.so.1 is missing; install the package libibverbs1";
  facts.library_problem = "libferry.so is neither in /x nor in ../lib of it; build Ferry again";
  const auto findings = check_devices(facts);
  expect(one_of(findings, "libibverbs"), State::kProblem, "libibverbs.so.1 is missing",
         "install the package libibverbs1");
  expect(one_of(findings, "libferry.so"), State::kProblem, "is neither in", "build Ferry again");
  facts.library_problem = "/lib/libferry.so cannot be preloaded (no)";
  expect(one_of(check_devices(facts), "libferry.so"), State::kProblem, "cannot be preloaded (no)",
         "build or install Ferry again");
}

TEST_F(Devices, NeedAnInterface) {
  facts.netdevs.front().mtu = 600;
  expect(one_of(check_devices(facts), "interface eth0"), State::kNote, "RDMA MTU 256", "mtu 1500");
  facts.netdevs.front().mtu = 9000;
  facts.netdevs.front().loopback = true;
  expect(one_of(check_devices(facts), "interface eth0"), State::kNote, "no other host",
         "ip address add");
  facts.netdevs.clear();
  expect(one_of(check_devices(facts), "interfaces"), State::kProblem, "there are no devices",
         "ip link set");
}

TEST_F(Devices, FindTheirPortTaken) {
  UdpHolder holder;
  holder.address = kOther;
  facts.holders = {holder};
  expect(port(), State::kOk, "free", "");
  holder.address = kAddress;
  holder.pid = 7;
  holder.program = "thief";
  facts.holders = {holder};
  expect(port(), State::kProblem, "taken by thief (pid 7)", "kill 7");
  facts.holders.front().is_ferrys = true;
  expect(port(), State::kOk, "held by thief (pid 7)", "");
  facts.holders.front() = {kAddress, false, 1000, 0, "", false};
  expect(port(), State::kProblem, "no process that is seen here", "ss -lunp");
  facts.is_root = false;
  expect(port(), State::kNote, "a process of user 1000", "sudo ferry doctor");
}

TEST_F(Devices, FindTheirPortTakenByTheKernel) {
  facts.kernel_devices = {{"mlx5_0", ""}, {"rxe0", "eth0"}};
  expect_all_ok(check_devices(facts), "outside of ferry run");
  UdpHolder any;
  any.any_address = true;
  any.address = port::Address::from_ipv4(0);
  facts.holders = {any};
  expect(port(), State::kProblem, "the kernel's rxe0 on eth0", "rdma link delete rxe0");
  expect(one_of(check_devices(facts), "the kernel's RDMA devices"), State::kOk, "mlx5_0, rxe0", "");
  facts.holders.front().address = {};  // of all IPv6 addresses, which takes IPv4 as well
  expect(port(), State::kProblem, "the kernel's rxe0", "rdma link delete rxe0");
}

struct Limits : testing::Test {
  LimitFacts facts{1024, 4096, "", port::kReceiveBuffer, port::kSendBuffer, true, true, 60999};
};

TEST_F(Limits, AreWideEnough) {
  expect_all_ok(check_limits(facts));
}

TEST_F(Limits, AreNarrow) {
  facts = {256, 512, "", 1 << 20, 1 << 18, false, true, 65535};
  const auto findings = check_limits(facts);
  expect(one_of(findings, "open files (RLIMIT_NOFILE)"), State::kNote, "256 of 512 allowed",
         "ulimit -n 512");
  expect(one_of(findings, "receive buffer"), State::kNote, "1024 of 16384 KiB",
         "sysctl -w net.core.rmem_max=16777216");
  expect(one_of(findings, "send buffer"), State::kNote, "256 of 4096 KiB",
         "sysctl -w net.core.wmem_max=4194304");
  expect(one_of(findings, "UDP GSO and GRO"), State::kNote, "no GSO", "Linux 5.0");
  expect(one_of(findings, "ephemeral ports"), State::kNote, "up to 65535", "sysctl -w");
}

TEST_F(Limits, ForbidSockets) {
  facts.socket_problem = "a UDP socket cannot be made as RDMA needs it: Operation not permitted";
  expect(one_of(check_limits(facts), "UDP socket"), State::kProblem, "cannot be made", "a filter");
}

TEST(Kernel, HasOrLacksWhatMovesNeed) {
  KernelFacts facts{"6.18.0", "x86_64", 0, {{"/sys/fs/cgroup", "/", "cgroup2", ""}}};
  expect_all_ok(check_kernel(facts));
  facts = {"6.1.0", "aarch64", -EINVAL, {}};
  const auto findings = check_kernel(facts);
  expect(one_of(findings, "kernel"), State::kProblem, "Linux 6.1.0 aarch64", "that kind");
  expect(one_of(findings, "memory copied ahead"), State::kNote, "Invalid argument", "Linux 6.7");
  expect(one_of(findings, "cgroups"), State::kNote, "none is mounted", "mount -t cgroup2");
  facts.tracking_error = -EPERM;
  expect(one_of(check_kernel(facts), "memory copied ahead"), State::kNote, "not permitted",
         "a filter");
}

struct Ferryd : testing::Test {
  Ferryd() {
    facts.version = "1.2.3";
    facts.build = "abcd";
    facts.now = std::chrono::system_clock::now();
    facts.is_root = true;
    auto& state = facts.state.emplace();
    state.set_host("h1");
    state.set_version("1.2.3");
    state.set_build("abcd");
    state.set_address("10.77.0.1:4780");
    state.set_image_port(4781);
    state.mutable_certificate()->set_name("h1");
    state.mutable_certificate()->add_addresses("10.77.0.1");
    end_in(hours(24 * 365));
    state.mutable_journal()->set_path("/var/lib/ferry");
    state.mutable_images()->set_path("/run/ferry/images");
    state.mutable_images()->set_in_memory(true);
    state.mutable_images()->set_free_bytes(1ull << 30);
    auto* program = state.add_programs();
    program->set_name("/usr/bin/podman");
    program->set_version("podman version 4.3.1");
  }
  void end_in(hours time) {
    const auto end = facts.now + time;
    facts.state->mutable_certificate()->set_end(
        std::chrono::duration_cast<std::chrono::seconds>(end.time_since_epoch()).count());
  }
  Finding finding(const std::string& check) const { return one_of(check_ferryd(facts), check); }

  FerrydFacts facts;
};

TEST_F(Ferryd, IsWell) {
  expect_all_ok(check_ferryd(facts));
  expect(finding("certificate"), State::kOk, "of h1, for 10.77.0.1, until 2", "");
  expect(finding("ports"), State::kOk, "10.77.0.1:4780, and on TCP port 4781", "");
}

TEST_F(Ferryd, IsOfAnotherVersionOrBuild) {
  facts.state->set_build("ef01");
  expect(finding("ferryd"), State::kNote, "another build", "start ferryd anew");
  facts.build.clear();  // the command is installed without a ferryd
  expect(finding("ferryd"), State::kOk, "version 1.2.3", "");
  facts.state->set_version("1.2.2");
  expect(finding("ferryd"), State::kProblem, "this command is of 1.2.3", "start ferryd anew");
}

TEST_F(Ferryd, HasNoCriu) {
  facts.state->set_criu_problem("CRIU is missing (criu); run ferry-get-criu, or give --criu PATH");
  expect(finding("CRIU"), State::kProblem, "CRIU is missing (criu)", "run ferry-get-criu, or give");
}

TEST_F(Ferryd, HasNoGoodCertificate) {
  end_in(hours(24 * 10));
  expect(finding("certificate"), State::kNote, "it expires in", "ferry host add h1");
  end_in(hours(-1));
  expect(finding("certificate"), State::kProblem, "it has expired", "ferry host add h1");
  facts.state->clear_certificate();
  expect(finding("certificate"), State::kProblem, "--insecure", "ferry ca init");
  facts.state->clear_address();
  expect(finding("certificate"), State::kProblem, "ferryd has none", "ferry ca init");
  expect(finding("ports"), State::kNote, "this host only", "certificates");
}

TEST_F(Ferryd, HasItsFoldersInWrongPlaces) {
  facts.state->mutable_journal()->set_in_memory(true);
  expect(finding("journal"), State::kNote, "/var/lib/ferry is in memory", "--state-dir");
  facts.state->mutable_journal()->set_problem("No such file or directory");
  expect(finding("journal"), State::kProblem, "No such file", "make that folder");
  facts.state->mutable_images()->set_free_bytes(1 << 20);
  expect(finding("images"), State::kNote, "1 MiB free", "--image-dir");
  facts.state->mutable_images()->set_in_memory(false);
  expect(finding("images"), State::kNote, "on a disk", "a tmpfs");
  facts.state->mutable_images()->set_problem("No such file or directory");
  expect(finding("images"), State::kProblem, "No such file", "start ferryd anew");
}

TEST_F(Ferryd, CannotRunOthersPrograms) {
  facts.state->mutable_programs(0)->clear_version();
  facts.state->add_programs()->set_name("nft");
  expect(finding("podman"), State::kNote, "containers of podman's do not move", "install podman");
  expect(finding("nft"), State::kNote, "do not move", "install nftables");
}

TEST_F(Ferryd, IsNotThere) {
  facts.state.reset();
  facts.problem = "no ferryd runs on this host (/run/x); start it: ferryd, as root";
  facts.has_certificates = true;
  expect(finding("ferryd"), State::kProblem, "no ferryd runs on this host (/run/x)", "as root");
  expect(finding("CRIU"), State::kOk, "works here", "");
  expect(finding("certificate"), State::kOk, "good", "");
  facts.certificate_problem =
      "the certificate of h1 is not good (certificate has expired); make it";
  expect(finding("certificate"), State::kProblem, "has expired", "make it");
  facts.certificate_problem.clear();
  facts.has_certificates = false;
  expect(finding("certificate"), State::kProblem, "there is none", "ferry ca init");
  facts.is_root = false;
  expect(finding("CRIU"), State::kNote, "only root can see", "sudo ferry doctor");
  expect(finding("certificate"), State::kNote, "only root can look", "sudo ferry doctor");
  facts.criu_problem = "CRIU is missing (criu); run ferry-get-criu";
  expect(finding("CRIU"), State::kProblem, "CRIU is missing", "run ferry-get-criu");
}

struct Hosts : testing::Test {
  Hosts() {
    facts.version = "1.2.3";
    v1::Reached& h2 = *facts.reply.add_hosts();
    h2.set_host("h2");
    h2.set_name("h2");
    h2.set_version("1.2.3");
    h2.set_port(4780);
    h2.set_image_port(4781);
    h2.set_round_trip_ms(0.25);
    h2.set_clock_ahead_ms(0.1);
    h2.set_clock_uncertainty_ms(0.12);
    facts.paths = {{{kOther, "rdma", 4096, 4096}}};
  }
  v1::Reached& reached() { return *facts.reply.mutable_hosts(0); }
  Finding finding(const std::string& check) const {
    const Finding found = one_of(check_hosts(facts), check);
    EXPECT_EQ(found.host, "h2");
    return found;
  }
  HostFacts facts;
};

TEST_F(Hosts, AreWell) {
  expect_all_ok(check_hosts(facts));
  expect(finding("reachable"), State::kOk, "round trip 0.25 ms", "");
  expect(finding("clock"), State::kOk, "within 0.12 ms", "");
  expect(finding("port for images"), State::kOk, "TCP port 4781", "");
  expect(finding("RDMA to 10.78.2.1"), State::kOk, "RDMA MTU 4096 passes", "");
}

TEST_F(Hosts, AreNotReached) {
  reached().set_problem("there is no ferryd on h2 (10.77.0.2:4780); start it there");
  const auto findings = check_hosts(facts);
  ASSERT_EQ(findings.size(), 1u);
  expect(findings[0], State::kProblem, "there is no ferryd on h2", "start it there");
  reached().set_problem("the ferryd of h2 (10.77.0.2:4780) does not answer");
  expect(finding("reachable"), State::kProblem, "does not answer", "firewall");
}

TEST_F(Hosts, LackSomething) {
  reached().set_version("1.0.0");
  expect(finding("version"), State::kProblem, "1.0.0 there, 1.2.3 here", "the same version");
  reached().set_criu_problem("CRIU is missing (criu); run ferry-get-criu");
  expect(finding("CRIU"), State::kProblem, "CRIU is missing", "run ferry-get-criu");
  reached().set_image_problem("cannot connect to 10.77.0.2:4781: No route to host");
  expect(finding("port for images"), State::kProblem, "No route", "firewall pass TCP port 4781");
}

TEST_F(Hosts, HaveOtherClocks) {
  reached().set_clock_ahead_ms(-900);
  expect(finding("clock"), State::kOk, "900.00 ms behind this host's", "");
  reached().set_clock_ahead_ms(1000.1);  // maybe a second, maybe less
  expect(finding("clock"), State::kOk, "ahead of", "");
  reached().set_clock_ahead_ms(5000);
  expect(finding("clock"), State::kNote, "5000.00 ms ahead of", "set-ntp");
}

TEST_F(Hosts, AreBehindSwitchesThatDropLargePackets) {
  facts.paths[0][0].passes = 1024;
  expect(finding("RDMA to 10.78.2.1"), State::kProblem, "RDMA MTU 1024 passes, 4096 does not",
         "pass 4196 bytes, or here: ip link set rdma mtu 1124");
  facts.paths[0][0].passes = 0;
  expect(finding("RDMA to 10.78.2.1"), State::kProblem, "no packets of any RDMA MTU", "mtu 356");
  facts.paths[0].clear();  // nothing is known
  expect_all_ok(check_hosts(facts));
}

TEST(LargestMtu, IsWhatIsSeenToArrive) {
  std::size_t most = 9000;
  const auto arrives = [&](std::size_t bytes) { return bytes <= most; };
  EXPECT_EQ(largest_mtu(4096, arrives), 4096u);
  most = 1500;
  EXPECT_EQ(largest_mtu(4096, arrives), 1024u);
  EXPECT_EQ(largest_mtu(1024, arrives), 1024u);
  most = 300;
  EXPECT_EQ(largest_mtu(4096, arrives), 0u);
  most = 0;
  EXPECT_EQ(largest_mtu(4096, arrives), std::nullopt);
}

TEST(LargestMtu, IsUnknownWhenSmallPacketsGetLostAsWell) {
  int asked = 0;
  EXPECT_EQ(largest_mtu(4096, [&](std::size_t) { return asked++ == 0; }), std::nullopt);
}

TEST_F(Hosts, CannotBeAskedWithoutAFerryd) {
  facts.reply.Clear();
  facts.paths.clear();
  facts.problem = "no ferryd runs on this host (/run/x); start it: ferryd, as root";
  facts.wanted = {"h2"};
  expect(finding("reachable"), State::kProblem, "cannot be asked: no ferryd", "start it");
  facts.wanted.clear();
  expect(one_of(check_hosts(facts), "other hosts"), State::kProblem, "no ferryd", "start it");
  facts.problem.clear();
  expect(one_of(check_hosts(facts), "other hosts"), State::kNote, "knows none",
         "ferry doctor HOST");
}

TEST(Report, IsALineForEachFinding) {
  const Report report{{"devices", {{"a", State::kOk, "is there", "", ""}}},
                      {"hosts", {{"b", State::kNote, "is odd", "do this", "h2"}}}};
  EXPECT_EQ(text_of(report),
            "devices\n  ok       a: is there\nhosts\n  note     h2, b: is odd; do this\n");
  EXPECT_FALSE(has_problem(report));
}

TEST(Report, IsJson) {
  const Report report{{"hosts", {{"b", State::kProblem, "is \"gone\"", "do this", "h2"}}}};
  EXPECT_TRUE(has_problem(report));
  const auto json = nlohmann::json::parse(json_of(report));
  const nlohmann::json expected{{"group", "hosts"},     {"check", "b"},
                                {"state", "problem"},   {"found", "is \"gone\""},
                                {"way_out", "do this"}, {"host", "h2"}};
  EXPECT_EQ(json, nlohmann::json({{"checks", {expected}}}));
}

}  // namespace
}  // namespace ferry::cli::doctor
