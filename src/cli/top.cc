#include "cli/top.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>

#include "cli/ferryd/local_ferryd.h"
#include "cli/json.h"
#include "cli/screen.h"
#include "cli/text/size.h"
#include "cli/text/table.h"

namespace ferry::cli {
namespace {

using Key = std::tuple<std::int32_t, std::string, std::uint32_t>;  // pid, device, QPN

v1::PsReply ask() {
  LocalFerryd ferryd;
  v1::PsReply reply;
  throw_unless_ok(ferryd->Ps(ferryd.context(), {}, &reply));
  return reply;
}

// What is counted, in the order in which it is shown.
struct Counter {
  const char* name;
  double Rates::*rate;
  std::uint64_t (v1::QueuePair::*count)() const;
};
constexpr std::array kCounters{
    Counter{"sent_bytes", &Rates::sent_bytes, &v1::QueuePair::sent_bytes},
    Counter{"received_bytes", &Rates::received_bytes, &v1::QueuePair::received_bytes},
    Counter{"sent_packets", &Rates::sent_packets, &v1::QueuePair::sent_packets},
    Counter{"received_packets", &Rates::received_packets, &v1::QueuePair::received_packets},
    Counter{"retransmitted_packets", &Rates::retransmitted_packets,
            &v1::QueuePair::retransmitted_packets},
    Counter{"timeouts", &Rates::timeouts, &v1::QueuePair::timeouts},
    Counter{"rnr_naks", &Rates::rnr_naks, &v1::QueuePair::rnr_naks},
    Counter{"dropped", &Rates::dropped, &v1::QueuePair::dropped}};

Rates rates_of(const v1::QueuePair& before, const v1::QueuePair& now, double seconds) {
  Rates rates;
  for (const auto& each : kCounters) {
    const std::uint64_t then = (before.*each.count)(), value = (now.*each.count)();
    rates.*each.rate = value < then ? 0 : static_cast<double>(value - then) / seconds;
  }
  return rates;
}

void add(const Rates& rates, Rates* sum) {
  for (const auto& each : kCounters) sum->*each.rate += rates.*each.rate;
}

double bytes(const Rates& rates) {
  return rates.sent_bytes + rates.received_bytes;
}

template <typename Each>
void sort_by_rate(std::vector<Each>* all) {
  std::ranges::stable_sort(
      *all, [](const Each& a, const Each& b) { return bytes(a.rates) > bytes(b.rates); });
}

void add_row(Table& table, std::vector<std::string> row, const Rates& rates) {
  for (const auto& each : kCounters) {
    const double rate = rates.*each.rate;
    const bool is_bytes = std::string_view(each.name).ends_with("bytes");
    row.push_back(is_bytes ? size_text(static_cast<std::uint64_t>(rate))
                           : fmt::format("{:.0f}", rate));
  }
  table.add(std::move(row));
}

nlohmann::ordered_json to_json(const Rates& rates) {
  nlohmann::ordered_json object;
  for (const auto& each : kCounters) object[each.name] = rates.*each.rate;
  return object;
}

std::string top_json(const std::string& host, double seconds,
                     const std::vector<ProgramRates>& programs) {
  nlohmann::ordered_json output{
      {"host", host}, {"seconds", seconds}, {"programs", nlohmann::ordered_json::array()}};
  for (const auto& each : programs) {
    nlohmann::ordered_json program{{"pid", each.program.pid()},
                                   {"name", each.program.name()},
                                   {"container", each.program.container()},
                                   {"state", each.program.state()},
                                   {"per_second", to_json(each.rates)},
                                   {"qps", nlohmann::ordered_json::array()}};
    for (const auto& qp : each.qps) {
      program["qps"].push_back({{"device", qp.device},
                                {"qpn", qp.qp.qpn()},
                                {"type", qp.qp.type()},
                                {"peer", qp.qp.peer()},
                                {"per_second", to_json(qp.rates)}});
    }
    output["programs"].push_back(std::move(program));
  }
  return output.dump() + "\n";
}

}  // namespace

std::vector<ProgramRates> rates_between(const v1::PsReply& before, const v1::PsReply& now,
                                        std::chrono::duration<double> time) {
  std::map<Key, const v1::QueuePair*> known;
  for (const auto& program : before.programs()) {
    for (const auto& device : program.devices()) {
      for (const auto& qp : device.qps()) known[{program.pid(), device.name(), qp.qpn()}] = &qp;
    }
  }
  std::vector<ProgramRates> all;
  for (const auto& program : now.programs()) {
    ProgramRates each;
    each.program = program;
    each.program.clear_devices();
    for (const auto& device : program.devices()) {
      for (const auto& qp : device.qps()) {
        const auto found = known.find({program.pid(), device.name(), qp.qpn()});
        Rates rates;
        if (found != known.end()) rates = rates_of(*found->second, qp, time.count());
        add(rates, &each.rates);
        each.qps.push_back({device.name(), qp, rates});
      }
    }
    sort_by_rate(&each.qps);
    all.push_back(std::move(each));
  }
  sort_by_rate(&all);
  return all;
}

std::string top_text(const std::string& host, const std::vector<ProgramRates>& programs) {
  const std::vector<std::string> rates{"SENT/S",  "RECEIVED/S", "PACKETS-OUT", "PACKETS-IN",
                                       "RETRANS", "TIMEOUTS",   "RNR",         "DROPPED"};
  std::vector<std::string> program_header{"PROGRAM", "PID", "CONTAINER", "QPS"};
  std::vector<std::string> qp_header{"PROGRAM", "PID", "DEVICE", "QPN", "TYPE", "PEER"};
  program_header.insert(program_header.end(), rates.begin(), rates.end());
  qp_header.insert(qp_header.end(), rates.begin(), rates.end());
  Table by_program(program_header), by_qp(qp_header);
  std::size_t with_qps = 0, qps = 0;
  for (const auto& each : programs) {
    const std::string pid = std::to_string(each.program.pid());
    if (each.qps.empty()) continue;
    ++with_qps;
    qps += each.qps.size();
    add_row(by_program,
            {each.program.name(), pid, each.program.container(), std::to_string(each.qps.size())},
            each.rates);
    for (const auto& qp : each.qps) {
      add_row(by_qp,
              {each.program.name(), pid, qp.device, fmt::format("{:#08x}", qp.qp.qpn()),
               qp.qp.type(), qp.qp.peer()},
              qp.rates);
    }
  }
  std::string text =
      fmt::format("{}: programs: {}, QPs: {}; rates are per second\n", host, with_qps, qps);
  if (const std::size_t others = programs.size() - with_qps; others > 0) {
    text += fmt::format("{} without QPs that could be looked at: see ferry ps\n", others);
  }
  if (with_qps > 0) text += by_program.text() + "\n" + by_qp.text();
  return text;
}

int top(std::chrono::milliseconds interval, std::uint32_t count, bool json) {
  Screen screen(!json);
  auto before = ask();
  auto then = std::chrono::steady_clock::now();
  for (std::uint32_t shown = 0; count == 0 || shown < count; ++shown) {
    if (!screen.wait(interval)) return 0;
    auto now = ask();
    const auto time = std::chrono::steady_clock::now();
    const std::chrono::duration<double> passed = time - then;
    const auto programs = rates_between(before, now, passed);
    screen.show(json ? top_json(now.host(), passed.count(), programs)
                     : top_text(now.host(), programs));
    before = std::move(now);
    then = time;
  }
  return 0;
}

}  // namespace ferry::cli
