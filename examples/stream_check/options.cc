#include "options.h"

#include <getopt.h>

#include <cstdlib>
#include <sstream>

#include "failure.h"
#include "number.h"

namespace stream_check {
namespace {

double decimal(const char* option, const char* text) {
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (end == text || *end != '\0' || !(value >= 0 && value <= 1e7)) {
    throw Failure(std::string("--") + option + " " + text + ": give seconds, 0 or more");
  }
  return value;
}

uint32_t mtu(const char* text) {
  const auto value = number<uint32_t>("mtu", text, 256, 4096);
  if ((value & (value - 1)) != 0) {
    throw Failure(std::string("--mtu ") + text + ": give 256, 512, 1024, 2048 or 4096");
  }
  return value;
}

std::array<bool, kOps> ops(const char* text) {
  std::array<bool, kOps> chosen = {};
  std::istringstream list(text);
  std::string name;
  while (std::getline(list, name, ',')) {
    bool known = false;
    for (const Op op : {Op::kSend, Op::kWrite, Op::kRead}) {
      if (name != op_name(op)) continue;
      chosen[static_cast<size_t>(op)] = known = true;
    }
    if (!known) throw Failure("--ops " + name + ": give a list of send, write and read");
  }
  if (chosen == std::array<bool, kOps>{}) {
    throw Failure("--ops: give a list of send, write and read");
  }
  return chosen;
}

enum Flag {
  kListen = 256,
  kPort,
  kQps,
  kIdle,
  kSize,
  kSeconds,
  kMessages,
  kRate,
  kDevice,
  kGid,
  kMtu,
  kTimeout,
  kEvents,
  kOpList,
  kJson,
  kProgress,
  kSeries,
  kMemory,
  kRewrite,
  kStorm,
  kApart,
  kHelp
};

constexpr option kFlags[] = {{"listen", required_argument, nullptr, kListen},
                             {"port", required_argument, nullptr, kPort},
                             {"qps", required_argument, nullptr, kQps},
                             {"idle", required_argument, nullptr, kIdle},
                             {"size", required_argument, nullptr, kSize},
                             {"seconds", required_argument, nullptr, kSeconds},
                             {"messages", required_argument, nullptr, kMessages},
                             {"rate", required_argument, nullptr, kRate},
                             {"device", required_argument, nullptr, kDevice},
                             {"gid-index", required_argument, nullptr, kGid},
                             {"mtu", required_argument, nullptr, kMtu},
                             {"timeout", required_argument, nullptr, kTimeout},
                             {"events", no_argument, nullptr, kEvents},
                             {"ops", required_argument, nullptr, kOpList},
                             {"json", no_argument, nullptr, kJson},
                             {"progress", no_argument, nullptr, kProgress},
                             {"series", required_argument, nullptr, kSeries},
                             {"memory", required_argument, nullptr, kMemory},
                             {"rewrite", required_argument, nullptr, kRewrite},
                             {"storm", no_argument, nullptr, kStorm},
                             {"apart", no_argument, nullptr, kApart},
                             {"help", no_argument, nullptr, kHelp},
                             {nullptr, 0, nullptr, 0}};

}  // namespace

const char* usage() {
  return
      R"(stream_check: sends numbered, checksummed messages by SEND, WRITE and READ, both ways over several
RC queue pairs, and reports each one lost, doubled, out of order or corrupted, and the largest gaps
between two completions.

  stream_check [--listen PORT]           server: waits for one client, then reports and ends
  stream_check HOST [--port PORT]        client: decides about the traffic

  --qps N           queue pairs (4)                            client
  --idle N          queue pairs beside them (0), which carry nothing until the end of the run, and
                    then one message each way                  client
  --size BYTES      largest message, 64 to 1048576 (16384)     client
  --seconds S       how long (10); 0: until SIGINT or SIGTERM  client
  --messages N      per queue pair, op and direction, instead of --seconds   client
  --rate N          messages per second, per queue pair and direction, at most;
                    between them both sides sleep              client
  --ops LIST        of send,write,read (all)                   client
  --device NAME     RDMA device (the first)
  --gid-index I     (the first RoCEv2 GID, IPv4 preferred)
  --mtu BYTES       path MTU, 256 to 4096 (the smaller of both ports')
  --timeout N       of unacknowledged requests, seven times: 4.096 us * 2^N, 1 to 31 (14: 67 ms)
  --events          sleep on the completion channel instead of polling
  --series FILE     append a line per 10 ms: wall-clock seconds, completions, bytes
  --memory MIB      memory that is held beside the messages and checked at the end
  --rewrite PERCENT of it that is rewritten each second (0)
  --storm           its mappings are moved, replaced, protected and dropped as well
  --apart           close the TCP connection before the run, which ends with --messages: each side
                    reports what came, and then waits for SIGINT or SIGTERM    both
  --json            the report as one JSON object
  --progress        a line per second on stderr

SIGINT and SIGTERM end the run with the report, a second one ends it at once. Gaps are measured with
CLOCK_MONOTONIC, which may step in a process that is moved to another host: read them at the side
that did not move.
Exit code: 0 all arrived once, in order and intact; 1 something did not, or a request failed;
2 the run could not start.
)";
}

Options parse_options(int argc, char** argv, bool* help) {
  Options options;
  bool client_option = false;
  bool listen_given = false;
  *help = false;
  for (int flag = 0; (flag = getopt_long(argc, argv, ":", kFlags, nullptr)) != -1;) {
    switch (flag) {
      case kListen:
        options.port = number<uint16_t>("listen", optarg, 1, 65535);
        listen_given = true;
        break;
      case kPort: options.port = number<uint16_t>("port", optarg, 1, 65535); break;
      case kQps: options.qps = number<uint32_t>("qps", optarg, 1, kMaxQps); break;
      case kIdle: options.idle = number<uint32_t>("idle", optarg, 0, kMaxQps); break;
      case kSize:
        options.max_length = number<uint32_t>("size", optarg, kMinLength, kMaxMaxLength);
        break;
      case kSeconds: options.seconds = decimal("seconds", optarg); break;
      case kMessages:
        options.messages = number<uint64_t>("messages", optarg, 1, uint64_t{1} << 40);
        break;
      case kRate: options.rate = number<uint32_t>("rate", optarg, 1, kMaxRate); break;
      case kDevice: options.device = optarg; break;
      case kGid: options.gid_index = number<int>("gid-index", optarg, 0, 255); break;
      case kMtu: options.mtu = mtu(optarg); break;
      case kTimeout: options.timeout = number<uint32_t>("timeout", optarg, 1, 31); break;
      case kEvents: options.events = true; break;
      case kOpList: options.ops = ops(optarg); break;
      case kJson: options.json = true; break;
      case kProgress: options.progress = true; break;
      case kSeries: options.series = optarg; break;
      case kMemory: options.memory = number<uint64_t>("memory", optarg, 1, 1 << 20); break;
      case kRewrite: options.rewrite = decimal("rewrite", optarg); break;
      case kStorm: options.storm = true; break;
      case kApart: options.apart = true; break;
      case kHelp: *help = true; return options;
      case ':': throw Failure(std::string(argv[optind - 1]) + " needs a value; see --help");
      default: throw Failure(std::string(argv[optind - 1]) + ": unknown option; see --help");
    }
    client_option |= flag == kQps || flag == kIdle || flag == kSize || flag == kSeconds ||
                     flag == kMessages || flag == kRate || flag == kOpList;
  }
  if (optind < argc) options.host = argv[optind++];
  if (optind < argc) throw Failure(std::string(argv[optind]) + ": one HOST only; see --help");
  if (listen_given && !options.host.empty()) {
    throw Failure("--listen is for the server, HOST for the client; give one of them");
  }
  if (options.host.empty() && client_option) {
    throw Failure(
        "the client decides about --qps, --idle, --size, --seconds, --messages, --rate and --ops; "
        "give them there");
  }
  if (options.apart && !options.host.empty() && options.messages == 0) {
    throw Failure("--apart needs --messages: without a connection nobody tells the end");
  }
  return options;
}

}  // namespace stream_check
