#include "host/metrics/metrics.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "base/build_id.h"
#include "host/control/control_server.h"
#include "host/history/history.h"
#include "host/history/move_counters.h"
#include "host/metrics/exposition.h"
#include "host/standin/stand_in_host.h"

namespace ferry::host {
namespace {

using Type = Exposition::Type;

constexpr std::chrono::seconds kFresh{1};
constexpr std::chrono::milliseconds kAnswerTime{1000};  // for programs to say what they have
constexpr std::array kDirections{"out", "in"};

double number(std::uint64_t value) {
  return static_cast<double>(value);
}

void add_moves(const MoveCounters::Counts& counts, const History& history, Exposition& out) {
  const auto by_direction = [&](const std::map<std::string, std::uint64_t>& values) {
    for (const char* direction : kDirections) {
      const auto found = values.find(direction);
      out.sample({{"direction", direction}}, found == values.end() ? 0 : number(found->second));
    }
  };
  out.family("ferry_moves_begun_total", Type::kCounter,
             "Moves of programs that have begun, out of this host or into it.");
  by_direction(counts.begun);
  out.family("ferry_moves_ended_total", Type::kCounter, "Moves that have ended, by how they did.");
  for (const auto& [labels, value] : counts.ended) {
    out.sample({{"direction", labels.first}, {"outcome", labels.second}}, number(value));
  }
  out.family("ferry_move_failures_total", Type::kCounter,
             "Moves that have failed, were given up or lost, by the step in which they were.");
  for (const auto& [labels, value] : counts.failed) {
    out.sample({{"direction", labels.first}, {"step", labels.second}}, number(value));
  }
  std::map<std::string, std::uint64_t> under_way;
  for (const auto& move : history.under_way()) ++under_way[move.direction()];
  out.family("ferry_moves_under_way", Type::kGauge, "Moves that have begun and not ended.");
  by_direction(under_way);
  std::vector<std::pair<double, std::uint64_t>> classes;
  for (std::size_t i = 0; i < counts.blackouts.size(); ++i) {
    classes.emplace_back(MoveCounters::kBlackouts.at(i), counts.blackouts.at(i));
  }
  out.family("ferry_move_blackout_seconds", Type::kHistogram,
             "How long programs stood still that have left this host.");
  out.histogram(classes, counts.blackout_count, counts.blackout_seconds);
  out.single("ferry_image_sent_bytes_total", Type::kCounter,
             "Bytes of images that were sent in moves that have ended.", counts.sent_bytes);
  out.single("ferry_image_received_bytes_total", Type::kCounter,
             "Bytes of images that have arrived in moves that have ended.", counts.received_bytes);
}

void add_stand_ins(const StandInHost::Totals& totals, Exposition& out) {
  const auto& counters = totals.counters;
  out.single("ferry_stand_ins", Type::kGauge,
             "Slots of RNICs that are stopped or have left, for which this host answers.",
             totals.stand_ins);
  out.single("ferry_stand_in_received_packets_total", Type::kCounter,
             "Packets that have reached stand-ins.", counters.packets);
  out.family("ferry_stand_in_answers_total", Type::kCounter, "Answers of stand-ins, by kind.");
  out.sample({{"answer", "nak_stopped"}}, number(counters.naks_sent));
  out.sample({{"answer", "rnr_nak"}}, number(counters.rnr_naks_sent));
  out.sample({{"answer", "moved"}}, number(counters.moved_sent));
  out.sample({{"answer", "redirected"}}, number(counters.redirected));
  out.single("ferry_stand_in_forwarded_packets_total", Type::kCounter,
             "Datagrams that stand-ins have passed on to the new place.", counters.forwarded);
  out.single("ferry_stand_in_dropped_packets_total", Type::kCounter,
             "Packets that stand-ins have dropped.", counters.dropped);
}

void add_programs(ControlServer& control, Exposition& out) {
  const std::size_t programs = control.processes().size();
  std::size_t contexts = 0, qps = 0;
  const auto statuses = control.statuses(kAnswerTime);
  for (const auto& [pid, status] : statuses) {
    contexts += status.contexts.size();
    for (const auto& context : status.contexts) qps += context.qps.size();
  }
  out.single("ferry_programs", Type::kGauge, "Processes that use RDMA devices of Ferry's.",
             programs);
  out.single("ferry_programs_silent", Type::kGauge,
             "Processes of ferry_programs that ferry_contexts and ferry_queue_pairs lack, because "
             "they have not answered.",
             programs - std::min(programs, statuses.size()));
  out.single("ferry_contexts", Type::kGauge, "Devices that programs have opened.", contexts);
  out.single("ferry_queue_pairs", Type::kGauge, "Queue pairs of programs.", qps);
}

}  // namespace

Metrics::Metrics(std::string release, const History& history, const MoveCounters& moves,
                 StandInHost& stand_ins, ControlServer& control)
    : release_(std::move(release)),
      history_(history),
      moves_(moves),
      stand_ins_(stand_ins),
      control_(control) {}

std::string Metrics::text() {
  std::lock_guard lock(mutex_);
  if (text_.empty() || std::chrono::steady_clock::now() - gathered_ > kFresh) {
    text_ = gather();
    gathered_ = std::chrono::steady_clock::now();
  }
  return text_;
}

std::string Metrics::gather() {
  Exposition out;
  out.family("ferry_build_info", Type::kGauge, "1, with the version and build id of this ferryd.");
  out.sample({{"version", release_}, {"build_id", build_id()}}, 1);
  add_moves(moves_.counts(), history_, out);
  add_stand_ins(stand_ins_.totals(), out);
  add_programs(control_, out);
  return out.text();
}

}  // namespace ferry::host
