#include "host/checkup/checkup.h"

#include <fmt/core.h>
#include <linux/magic.h>
#include <sys/statfs.h>

#include <cerrno>
#include <map>
#include <thread>

#include "base/build_id.h"
#include "base/failure.h"
#include "ferry.pb.h"
#include "host/checkup/reach.h"
#include "host/directory/directory.h"
#include "host/peers/credentials.h"
#include "host/peers/this_host.h"
#include "host/proc/subprocess.h"
#include "host/units/criu_runner.h"
#include "rnic/system/netdev.h"

namespace ferry::host {
namespace {

using std::chrono::seconds;

constexpr seconds kGoodFor{5};     // how long the answers of other programs are kept
constexpr seconds kSayVersion{5};  // for a program to say its version
constexpr int kMostAsking = 4;     // calls of reach() at the same time
constexpr int kMostHosts = 64;     // hosts of one call

// The first line of PROGRAM --version; empty: it cannot be run.
std::string version_of(const std::string& program) {
  const Outcome outcome = run({{program, "--version"}, {}, {}}, kSayVersion);
  return outcome.ok() ? printable(one_line(outcome.out)) : std::string();
}

void describe_rdma(v1::ProbeReply* out) {
  for (const auto& netdev : rnic::list_netdevs({})) {
    if (netdev.loopback) continue;
    for (const auto& address : netdev.addresses) {
      auto* rdma = out->add_rdma();
      rdma->set_address(address.bytes.data(), address.bytes.size());
      rdma->set_mtu(rnic::payload_mtu(netdev.mtu));
    }
  }
}

void describe(const std::string& path, v1::StateReply::Folder* out) {
  out->set_path(path);
  struct statfs status {};
  if (::statfs(path.c_str(), &status) != 0) {
    out->set_problem(error_text(errno));
    return;
  }
  out->set_in_memory(status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC);
  out->set_free_bytes(std::uint64_t{status.f_bavail} * static_cast<std::uint64_t>(status.f_bsize));
}

void describe(const Credentials& credentials, v1::StateReply::Certificate* out) {
  const Identity& identity = credentials.identity();
  out->set_name(identity.name);
  out->mutable_addresses()->Assign(identity.addresses.begin(), identity.addresses.end());
  out->set_end(std::chrono::duration_cast<seconds>(credentials.end().time_since_epoch()).count());
}

}  // namespace

std::vector<std::string> Checkup::Kept::get() {
  std::lock_guard lock(mutex_);
  if (!answer_ || Clock::now() - since_ > kGoodFor) {
    answer_ = look_();
    since_ = Clock::now();
  }
  return *answer_;
}

Checkup::Checkup(const ThisHost& host, CriuRunner& criu, const Directory& directory, Setup setup)
    : host_(host),
      directory_(directory),
      setup_(std::move(setup)),
      criu_problem_([&criu] { return std::vector{criu.unusable()}; }),
      versions_([this] {
        std::vector<std::string> versions;
        for (const auto& program : setup_.programs) versions.push_back(version_of(program));
        return versions;
      }) {}

v1::StateReply Checkup::state() {
  v1::StateReply reply;
  reply.set_host(host_.name);
  reply.set_version(host_.version);
  reply.set_build(build_id());
  reply.set_address(host_.address);
  reply.set_image_port(setup_.image_port);
  reply.set_criu_problem(criu_problem_.get().front());
  if (host_.credentials != nullptr) describe(*host_.credentials, reply.mutable_certificate());
  describe(host_.state_directory, reply.mutable_journal());
  describe(setup_.image_directory, reply.mutable_images());
  const auto versions = versions_.get();
  for (std::size_t i = 0; i < versions.size(); ++i) {
    auto* program = reply.add_programs();
    program->set_name(setup_.programs[i]);
    program->set_version(versions[i]);
  }
  return reply;
}

v1::ProbeReply Checkup::answer(const v1::ProbeRequest& request) {
  v1::ProbeReply reply;
  reply.set_host(host_.name);
  reply.set_version(host_.version);
  reply.set_image_port(setup_.image_port);
  if (request.with_criu()) reply.set_criu_problem(criu_problem_.get().front());
  describe_rdma(&reply);
  // Last: the time of what is above would pass for a difference of the clocks.
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  reply.set_clock_ns(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  return reply;
}

v1::ReachReply Checkup::reach(const v1::ReachRequest& request) {
  struct Turn {
    explicit Turn(std::atomic<int>& count) : count_(count) { ++count_; }
    ~Turn() { --count_; }
    std::atomic<int>& count_;
  } const turn(asking_);
  if (request.hosts_size() > 0) need_other_hosts(host_);
  if (asking_ > kMostAsking) throw Failure("others ask for other hosts just now; try again");
  std::vector<std::pair<std::string, std::string>> hosts;  // address, and name in the certificate
  for (const auto& host : request.hosts()) hosts.emplace_back(host, std::string());
  if (hosts.empty()) {
    for (const auto& [ferryd, host] : directory_.hosts()) hosts.emplace_back(ferryd, host);
  }
  if (request.hosts_size() > kMostHosts) {
    throw Failure(fmt::format("these are more than {} hosts; name fewer of them", kMostHosts));
  }
  // Of the hosts that this ferryd knows, kMostHosts are enough to see what is wrong.
  if (hosts.size() > kMostHosts) hosts.resize(kMostHosts);
  std::vector<v1::Reached> results(hosts.size());
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    threads.emplace_back([this, &results, &host = hosts[i], i] {
      results[i] = host::reach(host.first, host.second, host_.credentials);
      if (!host.second.empty()) results[i].set_host(printable(host.second));
    });
  }
  threads.clear();  // waits until each has ended
  v1::ReachReply reply;
  for (auto& result : results) *reply.add_hosts() = std::move(result);
  return reply;
}

}  // namespace ferry::host
