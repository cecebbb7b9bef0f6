// datagram_check: sends numbered, checksummed messages both ways over an unreliable QP and tells
// which were lost, with the times at which they were sent.
#include <getopt.h>
#include <time.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <string>

#include "clock.h"
#include "failure.h"
#include "ledger.h"
#include "link.h"
#include "number.h"
#include "options.h"
#include "side_channel.h"

namespace {

using namespace datagram_check;
using stream_check::Failure;
using stream_check::number;
using stream_check::RecordType;
using stream_check::SideChannel;

constexpr const char* kUsage =
    R"(datagram_check: sends numbered, checksummed messages by SEND, both ways over one UC or UD queue
pair, at a fixed rate, and reports what was lost (with the times of sending), doubled or corrupted.

  datagram_check [--port PORT]           server: waits for one client, then reports and ends
  datagram_check HOST [--port PORT]      client: decides about the traffic

  --transport uc|ud  (ud)                                    client
  --size BYTES       largest message, 64 to 65536; UD: at most the MTU (512)   client
  --rate N           messages per second and direction, 1 to 20000 (1000)      client
  --seconds S        how long, 1 to 600 (10); SIGINT ends it earlier           client
  --apart            close the TCP connection before the run: each side reports what it has got of the   client
                     messages that the other one sends; SIGINT ends it on its side alone
  --device NAME      RDMA device (the first)
  --json             the report as one JSON object

Exit code: 0 nothing doubled or corrupted and no request failed (losses are only reported);
1 something was; 2 the run could not start.
)";

volatile std::sig_atomic_t interrupted = 0;

// What the client decides, as it goes over TCP.
struct Plan {
  uint32_t version = 2;
  uint32_t session = 0;
  uint32_t type = IBV_QPT_UD;
  uint32_t size = 512;
  uint32_t rate = 1000;
  uint32_t seconds = 10;
  uint32_t apart = 0;  // 1: no TCP connection during the run
  uint64_t messages() const { return uint64_t{rate} * seconds; }
};

struct Arguments {
  std::string host, device;
  uint16_t port = 18700;
  bool json = false;
  Plan plan;
};

Arguments parse(int argc, char** argv, bool* help) {
  Arguments result;
  enum { kTransport = 256, kSize, kRate, kSeconds, kApart, kDevice, kPort, kJson, kHelp };
  constexpr option kFlags[] = {{"transport", required_argument, nullptr, kTransport},
                               {"size", required_argument, nullptr, kSize},
                               {"rate", required_argument, nullptr, kRate},
                               {"seconds", required_argument, nullptr, kSeconds},
                               {"apart", no_argument, nullptr, kApart},
                               {"device", required_argument, nullptr, kDevice},
                               {"port", required_argument, nullptr, kPort},
                               {"json", no_argument, nullptr, kJson},
                               {"help", no_argument, nullptr, kHelp},
                               {nullptr, 0, nullptr, 0}};
  for (int flag = 0; (flag = getopt_long(argc, argv, ":", kFlags, nullptr)) != -1;) {
    switch (flag) {
      case kTransport:
        if (std::strcmp(optarg, "uc") != 0 && std::strcmp(optarg, "ud") != 0) {
          throw Failure(std::string("--transport ") + optarg + ": give uc or ud");
        }
        result.plan.type = std::strcmp(optarg, "uc") == 0 ? IBV_QPT_UC : IBV_QPT_UD;
        break;
      case kSize:
        result.plan.size = number<uint32_t>("size", optarg, stream_check::kMinLength, 65536);
        break;
      case kRate: result.plan.rate = number<uint32_t>("rate", optarg, 1, 20000); break;
      case kSeconds: result.plan.seconds = number<uint32_t>("seconds", optarg, 1, 600); break;
      case kApart: result.plan.apart = 1; break;
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

// Without a connection nobody tells that the peer is through. It may stand still for a while.
constexpr int64_t kQuietNs = 1'000'000'000, kQuietApartNs = 15'000'000'000;

// Sends at the plan's rate until its time is over, then takes what is still under way. A process
// that was frozen goes on from now: it does not make up for what it could not send.
void run(const Plan& plan, Link* link, SideChannel* peer) {
  const int64_t period_ns = 1'000'000'000 / plan.rate;
  uint64_t wanted = plan.messages();
  int64_t next = stream_check::monotonic_ns();
  const bool apart = plan.apart != 0;
  bool peer_done = apart, done = false, told = apart;  // apart there is nobody to tell
  int64_t quiet_since = 0, done_at = 0;
  while (link->error().empty()) {
    const int64_t now = stream_check::monotonic_ns();
    if (now - next > 20 * period_ns || next - now > 20 * period_ns) next = now;
    if (link->sendings().size() < wanted && now >= next && link->send()) next += period_ns;
    const bool idle = link->poll() == 0;
    if (!done && link->sendings().size() == wanted && link->all_sent()) {
      if (!apart) peer->send(RecordType::kDone);
      done = true;
      done_at = now;
    }
    // The peer may be through earlier: its verdict is for later.
    const auto record = peer_done ? std::nullopt : peer->receive();
    peer_done |= record && record->type == RecordType::kDone;
    if (interrupted && !told) told = peer->send(RecordType::kStop);
    if (interrupted || (record && record->type == RecordType::kStop)) {
      wanted = std::min<uint64_t>(wanted, link->sendings().size());
    }
    if (!apart && peer->closed()) throw Failure("the peer ended early; see its output");
    if (done && peer_done) {
      // Nothing came for so long: what is not here is lost.
      if (!idle || quiet_since == 0) quiet_since = now;
      if (now - quiet_since > (apart && !interrupted ? kQuietApartNs : kQuietNs)) return;
      if (apart && interrupted && now - done_at > kQuietNs) return;
      if (apart && link->arrivals().received() == plan.messages()) return;
    }
    if (idle) {
      const timespec pause{0, 50'000};
      nanosleep(&pause, nullptr);
    }
  }
}

void print(const Arguments& arguments, const Judgement& judged, const Link& link) {
  const uint64_t corrupted = link.corrupted();
  const std::string& error = link.error();
  if (!arguments.json) {
    std::printf(
        "sent %llu, lost %llu, doubled %llu; corrupted here: %llu%s%s\n",
        static_cast<unsigned long long>(judged.sent), static_cast<unsigned long long>(judged.lost),
        static_cast<unsigned long long>(judged.duplicated),
        static_cast<unsigned long long>(corrupted), error.empty() ? "" : "; ", error.c_str());
    for (const LostRange& range : judged.ranges) {
      std::printf("  lost %llu to %llu, sent from %.6f to %.6f\n",
                  static_cast<unsigned long long>(range.first),
                  static_cast<unsigned long long>(range.last),
                  static_cast<double>(range.first_sent_ns) / 1e9,
                  static_cast<double>(range.last_sent_ns) / 1e9);
    }
    return;
  }
  std::printf(
      "{\"role\": \"%s\", \"sent\": %llu, \"received\": %llu, \"lost\": %llu, \"duplicated\": "
      "%llu, \"unsent\": %llu, \"corrupted\": %llu, \"sent_here\": %zu, \"error\": \"%s\", "
      "\"lost_ranges\": [",
      arguments.host.empty() ? "server" : "client", static_cast<unsigned long long>(judged.sent),
      static_cast<unsigned long long>(judged.received),
      static_cast<unsigned long long>(judged.lost),
      static_cast<unsigned long long>(judged.duplicated),
      static_cast<unsigned long long>(judged.unsent), static_cast<unsigned long long>(corrupted),
      link.sendings().size(), error.c_str());
  const char* separator = "";
  for (const LostRange& range : judged.ranges) {
    std::printf("%s{\"first\": %llu, \"last\": %llu, \"first_sent\": %.6f, \"last_sent\": %.6f}",
                separator, static_cast<unsigned long long>(range.first),
                static_cast<unsigned long long>(range.last),
                static_cast<double>(range.first_sent_ns) / 1e9,
                static_cast<double>(range.last_sent_ns) / 1e9);
    separator = ", ";
  }
  std::printf("]}\n");
}

int check(Arguments arguments) {
  const bool server = arguments.host.empty();
  stream_check::Options options;
  options.device = arguments.device;
  stream_check::Device device(options);
  SideChannel peer = server ? SideChannel::listen(arguments.port)
                            : SideChannel::connect(arguments.host, arguments.port);
  Plan& plan = arguments.plan;
  if (server) {
    plan = peer.wait(RecordType::kHello).as<Plan>();
    if (plan.version != Plan().version)
      throw Failure("the client has another version; use the same program");
  } else {
    plan.session = std::random_device()();
    peer.send(RecordType::kHello, &plan, sizeof plan);
  }
  const stream_check::Endpoint& local = device.endpoint();
  if (plan.type == IBV_QPT_UD && plan.size > local.mtu) {
    throw Failure("--size " + std::to_string(plan.size) + ": a datagram takes " +
                  std::to_string(local.mtu) + " bytes at most");
  }
  if (!server || plan.apart != 0) std::signal(SIGINT, [](int) { interrupted = 1; });
  device.create_completion_queue(8192);
  const auto direction = [&](bool from_server) {
    return stream_check::StreamId{plan.session, 0, static_cast<uint8_t>(from_server)};
  };
  Link link(&device, static_cast<ibv_qp_type>(plan.type), plan.size, direction(server),
            direction(!server));
  struct {
    stream_check::Endpoint endpoint;
    stream_check::QpEndpoint qp;
  } mine{local, link.endpoint()};
  peer.send(RecordType::kEndpoint, &mine, sizeof mine);
  const auto theirs = peer.wait(RecordType::kEndpoint).as<decltype(mine)>();
  link.connect(local, theirs.endpoint, theirs.qp);
  peer.send(RecordType::kReady);
  peer.wait(RecordType::kReady);

  if (plan.apart != 0) peer.part();
  run(plan, &link, &peer);
  const auto& counts = link.arrivals().counts();
  if (plan.apart != 0) {
    // One that was interrupted knows of what has come alone.
    const size_t total = interrupted ? counts.size() : plan.messages();
    const Judgement judged = judge(std::vector<Sending>(total), counts, 16);
    print(arguments, judged, link);
    return link.error().empty() && judged.duplicated + judged.unsent + link.corrupted() == 0 ? 0
                                                                                             : 1;
  }
  peer.send(RecordType::kVerdict, counts.data(), counts.size());
  if (!link.error().empty()) {
    print(arguments, judge(link.sendings(), {}, 0), link);
    return 1;
  }
  const auto verdict = peer.wait(RecordType::kVerdict);
  const Judgement judged = judge(link.sendings(), verdict.body, 16);
  print(arguments, judged, link);
  return judged.duplicated + judged.unsent + link.corrupted() == 0 ? 0 : 1;
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
    std::fprintf(stderr, "datagram_check: %s\n", error.what());
    return 2;
  }
}
