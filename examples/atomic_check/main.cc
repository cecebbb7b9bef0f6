// atomic_check: both sides step counters by RDMA atomics, each from several threads and QPs, and
// tell whether every step was executed exactly once.
#include <getopt.h>
#include <time.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "failure.h"
#include "number.h"
#include "options.h"
#include "side_channel.h"
#include "steps.h"
#include "worker.h"

namespace {

using namespace atomic_check;
using stream_check::Failure;
using stream_check::number;
using stream_check::RecordType;
using stream_check::SideChannel;

constexpr const char* kUsage =
    R"(atomic_check: each side has two counters; every QP of the other side, and one of its own that is
connected to itself, step them by FETCH_ADD and COMPARE_SWAP. Each value must be found exactly once.

  atomic_check [--port PORT]             server: waits for one client, then reports and ends
  atomic_check HOST [--port PORT]        client: decides about the traffic

  --qps N            QPs between the two, each with a thread and a CQ of its own, 1 to 64 (4)  client
  --rate N           requests per second and QP, 1 to 100000 (2000)            client
  --seconds S        how long, 1 to 600 (10); SIGINT ends it earlier           client
  --events           sleep in ibv_get_cq_event instead of polling              client
  --device NAME      RDMA device (the first)
  --json             the report as one JSON object

Exit code: 0 every step exactly once; 1 not, or a request failed; 2 the run could not start.
)";

volatile std::sig_atomic_t interrupted = 0;

// What the client decides, as it goes over TCP.
struct Plan {
  uint32_t version = 1;
  uint32_t qps = 4;
  uint32_t rate = 2000;
  uint32_t seconds = 10;
  uint32_t events = 0;
};

struct Arguments {
  std::string host, device;
  uint16_t port = 18800;
  bool json = false;
  Plan plan;
};

// Where a side's counters are.
struct Target {
  stream_check::Endpoint endpoint;
  uint64_t address = 0;
  uint32_t rkey = 0;
  uint32_t unused = 0;
};

Arguments parse(int argc, char** argv, bool* help) {
  Arguments result;
  enum { kQps = 256, kRate, kSeconds, kEvents, kDevice, kPort, kJson, kHelp };
  constexpr option kFlags[] = {{"qps", required_argument, nullptr, kQps},
                               {"rate", required_argument, nullptr, kRate},
                               {"seconds", required_argument, nullptr, kSeconds},
                               {"events", no_argument, nullptr, kEvents},
                               {"device", required_argument, nullptr, kDevice},
                               {"port", required_argument, nullptr, kPort},
                               {"json", no_argument, nullptr, kJson},
                               {"help", no_argument, nullptr, kHelp},
                               {nullptr, 0, nullptr, 0}};
  for (int flag = 0; (flag = getopt_long(argc, argv, ":", kFlags, nullptr)) != -1;) {
    switch (flag) {
      case kQps: result.plan.qps = number<uint32_t>("qps", optarg, 1, 64); break;
      case kRate: result.plan.rate = number<uint32_t>("rate", optarg, 1, 100000); break;
      case kSeconds: result.plan.seconds = number<uint32_t>("seconds", optarg, 1, 600); break;
      case kEvents: result.plan.events = 1; break;
      case kDevice: result.device = optarg; break;
      case kPort: result.port = number<uint16_t>("port", optarg, 1, 65535); break;
      case kJson: result.json = true; break;
      case kHelp: *help = true; return result;
      case ':': throw Failure(std::string(argv[optind - 1]) + " needs a value; see --help");
      default: throw Failure(std::string(argv[optind - 1]) + ": unknown option; see --help");
    }
  }
  if (optind < argc) result.host = argv[optind++];
  if (optind < argc) throw Failure(std::string(argv[optind]) + ": one HOST only; see --help");
  return result;
}

// This side's counters and its workers; the last two are connected to each other.
class Run {
 public:
  Run(const std::string& device, const Plan& plan)
      : plan_(plan), device_([&] {
          stream_check::Options options;
          options.device = device;
          return options;
        }()) {
    mr_.reset(ibv_reg_mr(device_.pd(), &counters_, sizeof counters_,
                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC));
    if (!mr_) throw Failure(std::string("cannot register memory: ") + std::strerror(errno));
    for (uint32_t i = 0; i < plan.qps + 2; ++i) {
      workers_.push_back(std::make_unique<Worker>(&device_, plan.events != 0));
    }
  }

  void connect(SideChannel* peer) {
    own_ = {device_.endpoint(), reinterpret_cast<uintptr_t>(&counters_), mr_->rkey};
    peer->send(RecordType::kEndpoint, &own_, sizeof own_);
    theirs_ = peer->wait(RecordType::kEndpoint).as<Target>();
    for (uint32_t i = 0; i < plan_.qps; ++i) {
      const uint32_t qpn = workers_[i]->qpn();
      peer->send(RecordType::kEndpoint, &qpn, sizeof qpn);
      workers_[i]->connect(own_.endpoint, theirs_.endpoint,
                           peer->wait(RecordType::kEndpoint).as<uint32_t>());
    }
    own_worker().connect(own_.endpoint, own_.endpoint, workers_.back()->qpn());
    workers_.back()->connect(own_.endpoint, own_.endpoint, own_worker().qpn());
    peer->send(RecordType::kReady);
    peer->wait(RecordType::kReady);
  }

  // Until every request of both sides is complete.
  void steps(SideChannel* peer) {
    for (uint32_t i = 0; i < plan_.qps; ++i) {
      workers_[i]->start(theirs_.address, theirs_.rkey, plan_.rate, plan_.seconds);
    }
    own_worker().start(own_.address, own_.rkey, plan_.rate, plan_.seconds);
    bool peer_done = false, told = false;
    while (running()) {
      const timespec pause{0, 5'000'000};
      nanosleep(&pause, nullptr);
      const auto record = peer_done ? std::nullopt : peer->receive();
      peer_done |= record && record->type == RecordType::kDone;
      if (interrupted && !told) told = peer->send(RecordType::kStop);
      if (interrupted || (record && record->type == RecordType::kStop)) {
        for (const auto& worker : workers_) worker->stop();
      }
      if (peer->closed()) throw Failure("the peer ended early; see its output");
    }
    peer->send(RecordType::kDone);
    if (!peer_done) peer->wait(RecordType::kDone);
  }

  void send_found(SideChannel* peer) const {
    for (uint32_t i = 0; i < plan_.qps; ++i) {
      send_values(workers_[i]->added(), peer);
      send_values(workers_[i]->swapped(), peer);
    }
  }

  // adds, then swaps: what the peer and this side itself found in this side's counters.
  std::vector<Judgement> judge(SideChannel* peer) const {
    std::vector<Found> added, swapped;
    for (uint32_t i = 0; i < plan_.qps; ++i) {
      added.push_back(receive_values(peer));
      swapped.push_back(receive_values(peer));
    }
    added.push_back(own_worker().added());
    swapped.push_back(own_worker().swapped());
    return {atomic_check::judge(counters_.adds, added),
            atomic_check::judge(counters_.swaps, swapped)};
  }

  std::string error() const {
    for (const auto& worker : workers_) {
      if (!worker->error().empty()) return worker->error();
    }
    return {};
  }
  const Counters& counters() const { return counters_; }

 private:
  static constexpr size_t kValuesPerRecord = 100'000;

  bool running() const {
    return std::any_of(workers_.begin(), workers_.end(),
                       [](const auto& w) { return w->running(); });
  }

  Worker& own_worker() const { return *workers_[plan_.qps]; }

  // A record that is not full is the last.
  static void send_values(const Found& values, SideChannel* peer) {
    for (size_t begin = 0;; begin += kValuesPerRecord) {
      const size_t count = std::min(kValuesPerRecord, values.size() - begin);
      peer->send(RecordType::kVerdict, values.data() + begin, count * sizeof values[0]);
      if (count < kValuesPerRecord) return;
    }
  }

  static Found receive_values(SideChannel* peer) {
    for (Found result;;) {
      const auto record = peer->wait(RecordType::kVerdict);
      const size_t count = record.body.size() / sizeof(uint64_t);
      for (size_t i = 0; i < count; ++i) {
        result.push_back(record.as<uint64_t>(i * sizeof(uint64_t)));
      }
      if (count < kValuesPerRecord) return result;
    }
  }

  const Plan plan_;
  alignas(64) Counters counters_;
  stream_check::Device device_;
  std::unique_ptr<ibv_mr, stream_check::Destroyer<ibv_dereg_mr>> mr_;
  std::vector<std::unique_ptr<Worker>> workers_;
  Target own_, theirs_;
};

void print(bool json, const char* role, const Counters& counters,
           const std::vector<Judgement>& judged, const std::string& error) {
  const uint64_t values[] = {counters.adds, counters.swaps};
  const char* const names[] = {"adds", "swaps"};
  std::printf(json ? "{\"role\": \"%s\", \"error\": \"%s\"" : "%s: %s", role, error.c_str());
  for (size_t i = 0; i < 2; ++i) {
    std::printf(json ? ", \"%s\": {\"steps\": %llu, \"counter\": %llu, \"doubled\": %llu, "
                       "\"missing\": %llu, \"beyond\": %llu, \"disordered\": %llu}"
                     : "%s: %llu steps, counter %llu; values doubled %llu, missing %llu, beyond "
                       "%llu, disordered %llu; ",
                names[i], static_cast<unsigned long long>(judged[i].steps),
                static_cast<unsigned long long>(values[i]),
                static_cast<unsigned long long>(judged[i].doubled),
                static_cast<unsigned long long>(judged[i].missing),
                static_cast<unsigned long long>(judged[i].beyond),
                static_cast<unsigned long long>(judged[i].disordered));
  }
  std::puts(json ? "}" : "");
}

int check(Arguments arguments) {
  const bool server = arguments.host.empty();
  SideChannel peer = server ? SideChannel::listen(arguments.port)
                            : SideChannel::connect(arguments.host, arguments.port);
  if (server) {
    arguments.plan = peer.wait(RecordType::kHello).as<Plan>();
    if (arguments.plan.version != 1) throw Failure("the client has another version");
  } else {
    peer.send(RecordType::kHello, &arguments.plan, sizeof arguments.plan);
  }
  if (!server) std::signal(SIGINT, [](int) { interrupted = 1; });
  Run run(arguments.device, arguments.plan);
  run.connect(&peer);
  run.steps(&peer);
  std::vector<Judgement> judged;
  if (!server) run.send_found(&peer);  // one after the other: neither reads while it sends
  judged = run.judge(&peer);
  if (server) run.send_found(&peer);
  const std::string error = run.error();
  print(arguments.json, server ? "server" : "client", run.counters(), judged, error);
  // A request that failed may have been executed.
  return error.empty() && judged[0].exact() && judged[1].exact() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    bool help = false;
    const Arguments arguments = parse(argc, argv, &help);
    if (help) {
      std::fputs(kUsage, stdout);
      return 0;
    }
    return check(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "atomic_check: %s\n", error.what());
    return 2;
  }
}
