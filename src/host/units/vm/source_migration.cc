#include "host/units/vm/source_migration.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/failure.h"
#include "base/json_text.h"
#include "base/net.h"
#include "host/peers/credentials.h"
#include "host/units/vm/migration_pace.h"

namespace ferry::host {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kSample{5}, kStateLook{2}, kTell{250};
constexpr std::uint64_t kUnlimited = 100ull << 30;  // bytes a second
constexpr double kHeldDowntime = 1;                 // milliseconds; see MigrationPace
constexpr double kDowntime = 300;                   // milliseconds, as QEMU's own
constexpr double kWanted = 100;  // milliseconds, for what is left when the machine is stopped
constexpr double kRoom = 2;      // times the time that is expected for what is left
constexpr char kTooEarly[] =
    "QEMU has stopped the machine before its programs were asked; try again";
constexpr int kMeasured = 1;  // seconds, the least for which QEMU measures

}  // namespace

std::string MeetingPoint::text() const {
  return json_text({{"address", address}, {"port", port}, {"host", host}});
}

MeetingPoint MeetingPoint::of(const std::string& text) {
  try {
    const auto values = json_of(text);
    return {values.at("address").get<std::string>(), values.at("port").get<std::uint16_t>(),
            values.at("host").get<std::string>()};
  } catch (const json::exception&) {
    throw Failure("the destination does not say where its QEMU waits");
  }
}

SourceMigration::SourceMigration(Machine& machine, MeetingPoint to, std::string tls)
    : machine_(machine), to_(std::move(to)), tls_(std::move(tls)) {}

void SourceMigration::limit(std::uint64_t bytes_per_second, double downtime_ms) {
  machine_.qmp().execute("migrate-set-parameters",
                         {{"max-bandwidth", bytes_per_second},
                          {"downtime-limit", static_cast<std::uint64_t>(downtime_ms)}});
}

// `rate`: as that of CopyLimits.
void SourceMigration::begin(double rate) {
  Qmp& qmp = machine_.qmp();
  machine_.pause_before_switchover(true);
  if (!tls_.empty()) {
    try {
      qmp.execute("object-del", {{"id", kTlsObject}});  // of a move that was given up
    } catch (const Failure&) {
    }
    qmp.execute("object-add", {{"qom-type", "tls-creds-x509"},
                               {"id", kTlsObject},
                               {"dir", tls_},
                               {"endpoint", "client"},
                               {"verify-peer", true}});
  }
  qmp.execute("migrate-set-parameters", {{"tls-creds", tls_.empty() ? "" : kTlsObject},
                                         {"tls-hostname", tls_.empty() ? "" : to_.host}});
  limit(rate > 0 ? static_cast<std::uint64_t>(rate) : kUnlimited, kHeldDowntime);
  qmp.execute("migrate", {{"uri", "tcp:" + join_host_port(to_.address, to_.port)}});
}

// How many bytes a second the machine writes to pages that it has not just written to.
double SourceMigration::measure_writes(const Check& need_wanted) {
  Qmp& qmp = machine_.qmp();
  qmp.execute("calc-dirty-rate", {{"calc-time", kMeasured}});
  for (;;) {
    need_wanted();
    const auto measured = qmp.execute("query-dirty-rate");
    if (measured.at("status") == "measured")
      return measured.at("dirty-rate").get<double>() * (1 << 20);
    std::this_thread::sleep_for(milliseconds(20));
  }
}

json SourceMigration::look(const Check& need_wanted) {
  need_wanted();
  auto migration = machine_.migration();
  const auto status = migration.at("status").get<std::string>();
  if (status == "failed" || status == "cancelled" || status == "none") {
    throw Failure(fmt::format("QEMU's migration has {}: {}",
                              status == "failed" ? "failed" : "ended",
                              printable(migration.value("error-desc", "it does not say why"))));
  }
  if (migration.contains("ram")) sent_ = migration["ram"].at("transferred").get<std::uint64_t>();
  return migration;
}

void SourceMigration::await(const std::string& status, const Check& need_wanted) {
  while (look(need_wanted).at("status") != status) std::this_thread::sleep_for(kStateLook);
}

void SourceMigration::copy(const CopyLimits& limits,
                           const std::function<void(const Progress&)>& tell,
                           const Check& need_wanted) {
  const double wanted =
      limits.max_blackout_ms > 0 ? std::min(kWanted, limits.max_blackout_ms) : kWanted;
  const double write_rate = measure_writes(need_wanted);
  MigrationPace pace(wanted, write_rate);
  begin(limits.rate);
  auto told = Clock::now() - kTell;
  for (;; std::this_thread::sleep_for(kSample)) {
    const auto migration = look(need_wanted);
    if (migration.at("status") != "active") {
      if (migration.at("status") == "setup") continue;
      throw Failure(kTooEarly);
    }
    const auto& ram = migration.at("ram");
    Progress progress;
    progress.round = ram.at("dirty-sync-count").get<unsigned>();
    progress.sent = sent_;
    progress.left = ram.at("remaining").get<std::uint64_t>();
    progress.rate = ram.at("mbps").get<double>() * 1e6 / 8;
    progress.dirty_rate = std::max(
        write_rate, ram.at("dirty-pages-rate").get<double>() * ram.at("page-size").get<double>());
    const bool is_ready =
        pace.next({Clock::now().time_since_epoch(), progress.left, progress.round, progress.rate});
    if (is_ready) limit(MigrationPace::kHold, kHeldDowntime);
    progress.blackout_ms = pace.left_ms();
    rounds_ = progress.round;
    if (is_ready || Clock::now() - told > kTell) {
      told = Clock::now();
      tell(progress);
    }
    if (is_ready) break;
  }
  left_ms_ = pace.left_ms();
  sent_ahead_ = sent_;
  if (limits.max_blackout_ms > 0 && left_ms_ > limits.max_blackout_ms) {
    throw Failure(fmt::format(
        "it would stand still for {:.0f} ms: it writes to its memory as fast as that is sent",
        left_ms_));
  }
}

void SourceMigration::need_held() const {
  if (machine_.migration().at("status") != "active") throw Failure(kTooEarly);
}

void SourceMigration::stop_machine(const Check& need_wanted) {
  limit(kUnlimited, std::max(kDowntime, kRoom * left_ms_));
  await("pre-switchover", need_wanted);
}

void SourceMigration::switch_over(const Check& need_wanted) {
  machine_.qmp().execute("migrate-continue", {{"state", "pre-switchover"}});
  await("completed", need_wanted);
}

void make_tls_folder(const std::string& folder, const std::string& tls) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::remove_all(folder, error);
  fs::create_directories(folder, error);
  const auto link = [&](const char* from, const char* to) {
    if (!error) fs::create_symlink(fs::absolute(fs::path(tls) / from), folder + "/" + to, error);
  };
  link(kCaFile, "ca-cert.pem");
  for (const char* role : {"server", "client"}) {
    link(kCertificateFile, (std::string(role) + "-cert.pem").c_str());
    link(kKeyFile, (std::string(role) + "-key.pem").c_str());
  }
  if (error) throw Failure(fmt::format("cannot make {}: {}", folder, error.message()));
}

}  // namespace ferry::host
