#include "host/units/vm/arriving_machine.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/resource.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/failure.h"
#include "base/log.h"
#include "base/net.h"
#include "host/peers/this_host.h"
#include "host/proc/process_tree.h"
#include "host/proc/subprocess.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kStartLimit{30};  // for QEMU to open its monitor
constexpr milliseconds kStartLook{5}, kBetweenTries{500};
constexpr int kPorts =
    16;  // behind those of ferryd and of images: so many machines may arrive at the same time
constexpr char kSource[] = "ferry-source";

}  // namespace

ArrivingMachine::ArrivingMachine(const ThisHost& host, const MachineRecords& records,
                                 MachineRecord record, const std::string& tls,
                                 const std::string& source)
    : host_(host),
      records_(records),
      record_(std::move(record)),
      folder_(records.folder_of(record_.name)) {
  record_.is_arriving = true;
  record_.pid = 0;
  records_.remove(record_.name);  // sockets of a machine that was killed
  try {
    records_.write(record_);
    start();
    if (!tls.empty()) make_tls_folder(folder_ + "/tls", tls);
    listen(tls.empty() ? tls : folder_ + "/tls", source);
    machine_->prepare_nics();
  } catch (const std::exception& failure) {
    const std::string said = end_of_log();
    if (record_.pid > 0) {
      ::kill(record_.pid, SIGKILL);
      wait_for(record_.pid);
    }
    records_.remove(record_.name);
    throw Failure(fmt::format("cannot start the machine '{}' on {}: {}{}", record_.name, host_.name,
                              failure.what(), said.empty() ? "" : " (" + said + ")"));
  }
}

ArrivingMachine::~ArrivingMachine() {
  if (is_let_go_) return;
  if (!record_.is_alive()) {
    log::error("the QEMU of '{}' has ended: {}", record_.name, end_of_log());
  }
  ::kill(record_.pid, SIGKILL);
  wait_for(record_.pid);
  records_.remove(record_.name);
}

void ArrivingMachine::start() {
  Command command;
  // A machine is no part of ferryd, which goes before all others.
  command.argv = {"nice", "-n", std::to_string(-::getpriority(PRIO_PROCESS, 0)),
                  "env",  "-C", record_.directory};
  for (const auto& word : record_.qemu().for_arrival(folder_)) command.argv.push_back(word);
  command.own_session = true;
  const pid_t pid = host::start(command, folder_ + "/log");
  if (pid < 0) throw Failure(error_text(-pid));
  record_.pid = pid;
  record_.started = start_time(pid);
  records_.write(record_);
  const auto until = Qmp::Clock::now() + kStartLimit;
  for (;; std::this_thread::sleep_for(kStartLook)) {
    try {
      machine_ = std::make_unique<Machine>(folder_, record_.qemu().nics());
      return;
    } catch (const Failure&) {  // there is no socket yet, or nobody listens at it yet
      if (!record_.is_alive()) throw Failure("QEMU has ended");
      if (Qmp::Clock::now() > until) throw Failure("QEMU does not open its monitor");
    }
  }
}

std::string ArrivingMachine::end_of_log() const {
  std::ifstream file(folder_ + "/log");
  std::string line, last;
  while (std::getline(file, line)) {
    if (!line.empty()) last = line;
  }
  return printable(last);
}

void ArrivingMachine::listen(const std::string& tls, const std::string& source) {
  Qmp& qmp = machine_->qmp();
  // The disks stay the source's until the machine runs here.
  qmp.execute("migrate-set-capabilities",
              {{"capabilities", {{{"capability", "late-block-activate"}, {"state", true}}}}});
  if (!tls.empty()) {
    qmp.execute("object-add", {{"qom-type", "tls-creds-x509"},
                               {"id", kTlsObject},
                               {"dir", tls},
                               {"endpoint", "server"},
                               {"verify-peer", true}});
    qmp.execute("object-add",
                {{"qom-type", "authz-simple"}, {"id", kSource}, {"identity", "CN=" + source}});
    qmp.execute("migrate-set-parameters", {{"tls-creds", kTlsObject}, {"tls-authz", kSource}});
  }
  const auto [address, port] = split_host_port(host_.address, 0);
  const auto first = static_cast<std::uint16_t>(port + 2);
  qmp.execute(
      "migrate-incoming",
      {{"uri", fmt::format("tcp:{},to={}", join_host_port(address, first), first + kPorts - 1)}});
  const auto sockets = machine_->migration().at("socket-address");
  point_ = {address,
            static_cast<std::uint16_t>(std::stoi(sockets.at(0).at("port").get<std::string>())),
            host_.name};
}

void ArrivingMachine::run() {
  const auto until = Qmp::Clock::now() + host_.limits.resume / 2;
  for (;; std::this_thread::sleep_for(kBetweenTries)) {
    try {
      machine_->run();
      return;
    } catch (const Failure&) {
      if (!record_.is_alive() || Qmp::Clock::now() > until) throw;
    }
  }
}

void ArrivingMachine::await_all() {
  try {
    for (;; std::this_thread::sleep_for(kStartLook)) {
      const auto migration = machine_->migration();
      if (migration.at("status") == "failed") {
        throw Failure(printable(migration.value("error-desc", "QEMU does not say why")));
      }
      if (migration.at("status") == "completed" && machine_->state() == "paused") break;
    }
    machine_->plug();
  } catch (const std::exception& failure) {
    const std::string said = record_.is_alive() ? "" : end_of_log();
    throw Failure(said.empty() ? std::string(failure.what()) : "QEMU has ended: " + said);
  }
}

}  // namespace ferry::host
