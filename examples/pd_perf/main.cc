// pd_perf: what the pipe, TCP and Unix sockets carry, and how fast, between two programs.
//
//   pd_perf serve     --over pipe|sockets --at WHERE       one run of a client
//   pd_perf bandwidth --over ... --at WHERE --size BYTES --seconds N --connections N --warm-up SECONDS
//   pd_perf latency   --over ... --at WHERE --size BYTES --count N
//
// WHERE is ADDRESS:PORT, or the path of a Unix socket. Both print JSON: the server of all that it has
// received, the client of what it has sent after the warm-up.

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "../carriers/channel.h"
#include "../carriers/failure.h"
#include "../carriers/usage.h"

namespace pd_perf {
namespace {

using carriers::Carrier;
using carriers::Channel;
using carriers::Clock;
using carriers::give_up;
using carriers::Poller;
using carriers::processor_seconds;
using carriers::seconds_since;

struct Options {
  std::string command, over = "pipe", at;
  std::size_t size = 65536;
  double seconds = 2, warm_up = 0;
  std::size_t connections = 1, count = 10'000;
  int ring = 4 << 20;
};

// What the client tells first, on its first connection.
struct Plan {
  std::uint64_t is_latency, size, connections, count;
};

using Channels = std::vector<std::unique_ptr<Channel>>;

void print_rate(const std::vector<std::uint64_t>& bytes, double seconds, double processor) {
  const auto total =
      static_cast<double>(std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0}));
  const double mean = total / static_cast<double>(bytes.size());
  double squares = 0;
  for (const std::uint64_t each : bytes) squares += std::pow(static_cast<double>(each) - mean, 2);
  const double deviation = std::sqrt(squares / static_cast<double>(bytes.size()));
  std::printf(
      "{\"gbit_per_s\": %.3f, \"bytes\": %.0f, \"seconds\": %.3f, \"processor_seconds\": %.3f, "
      "\"deviation_of_connections\": %.4f}\n",
      total * 8 / seconds / 1e9, total, seconds, processor, mean > 0 ? deviation / mean : 0);
}

void serve_bandwidth(Carrier& carrier, Channels channels) {
  constexpr std::size_t kMost = 1 << 20;
  std::vector<std::uint64_t> bytes(channels.size());
  const double processor = processor_seconds();
  auto start = Clock::now();
  if (channels.size() == 1) {
    while (const std::size_t got = channels[0]->receive(kMost)) bytes[0] += got;
  } else {
    const auto poller = carrier.poller();
    for (std::uint32_t number = 0; number < channels.size(); ++number) {
      poller->add(*channels[number], number, false);
    }
    for (std::size_t left = channels.size(); left > 0;) {
      for (const std::uint32_t number : poller->wait(-1)) {
        std::size_t got = 0;
        if (!channels[number]->try_receive(kMost, &got)) continue;
        bytes[number] += got;
        if (got != 0) continue;
        poller->remove(*channels[number]);
        --left;
      }
    }
  }
  print_rate(bytes, seconds_since(start), processor_seconds() - processor);
}

void receive_message(Channel& channel, std::size_t size) {
  for (std::size_t got = 0; got < size;) {
    const std::size_t more = channel.receive(size - got);
    if (more == 0) give_up("the peer has ended");
    got += more;
  }
}

void serve_latency(Channel& channel, const Plan& plan) {
  for (std::uint64_t number = 0; number < plan.count; ++number) {
    receive_message(channel, plan.size);
    channel.send(plan.size);
  }
  std::printf("{\"messages\": %lu}\n", static_cast<unsigned long>(plan.count));
  channel.receive(1);  // until the client has the last one
}

void serve(Carrier& carrier, const Options& options) {
  carrier.listen(options.at, 4096);
  Channels channels;
  channels.push_back(carrier.accept(options.size));
  Plan plan{};
  channels[0]->read(&plan, sizeof plan);
  while (channels.size() < plan.connections) channels.push_back(carrier.accept(64));
  channels[0]->write(&plan, sizeof plan);  // all are there
  if (plan.is_latency != 0) {
    serve_latency(*channels[0], plan);
  } else {
    serve_bandwidth(carrier, std::move(channels));
  }
}

Channels connect(Carrier& carrier, const Options& options, bool is_latency) {
  Channels channels;
  channels.push_back(carrier.connect(options.at, std::max(options.size, sizeof(Plan))));
  Plan plan{is_latency, options.size, options.connections, options.count};
  channels[0]->write(&plan, sizeof plan);
  while (channels.size() < options.connections) {
    channels.push_back(carrier.connect(options.at, options.size));
  }
  channels[0]->read(&plan, sizeof plan);
  return channels;
}

// What the client sends, in turns.
class Stream {
 public:
  Stream(Carrier& carrier, const Channels& channels, std::size_t size)
      : channels_(channels), size_(size), bytes_(channels.size()) {
    if (channels.size() == 1) return;
    poller_ = carrier.poller();
    for (std::uint32_t number = 0; number < channels.size(); ++number) {
      poller_->add(*channels[number], number, true);
    }
  }

  void run(double seconds) {
    const auto start = Clock::now();
    while (seconds_since(start) < seconds) {
      poller_ ? send_to_ready() : send_to_one();
    }
  }
  // Since the last call.
  std::vector<std::uint64_t> take_bytes() {
    return std::exchange(bytes_, std::vector<std::uint64_t>(channels_.size()));
  }

 private:
  void send_to_one() {
    // The clock is looked at for every 64 KiB.
    const std::size_t batch = std::max<std::size_t>(1, 65536 / size_);
    for (std::size_t number = 0; number < batch; ++number) channels_[0]->send(size_);
    bytes_[0] += batch * size_;
  }
  void send_to_ready() {
    // One turn each, so that none waits for what another sends.
    for (const std::uint32_t number : poller_->wait(10)) {
      for (int turn = 0; turn < 32; ++turn) {
        const std::size_t sent = channels_[number]->try_send(size_);
        bytes_[number] += sent;
        if (sent == 0) break;
      }
    }
  }

  const Channels& channels_;
  const std::size_t size_;
  std::unique_ptr<Poller> poller_;
  std::vector<std::uint64_t> bytes_;
};

void measure_bandwidth(Carrier& carrier, const Options& options) {
  const Channels channels = connect(carrier, options, false);
  Stream stream(carrier, channels, options.size);
  stream.run(options.warm_up);
  stream.take_bytes();
  const double processor = processor_seconds();
  const auto start = Clock::now();
  stream.run(options.seconds);
  const double seconds = seconds_since(start), used = processor_seconds() - processor;
  for (const auto& channel : channels) channel->finish_sending();
  print_rate(stream.take_bytes(), seconds, used);
}

void measure_latency(Carrier& carrier, const Options& options) {
  const Channels channels = connect(carrier, options, true);
  std::vector<double> microseconds;
  const double processor = processor_seconds();
  for (std::size_t number = 0; number < options.count; ++number) {
    const auto start = Clock::now();
    channels[0]->send(options.size);
    receive_message(*channels[0], options.size);
    microseconds.push_back(seconds_since(start) * 1e6 / 2);
  }
  const double used = processor_seconds() - processor;
  const double average = std::accumulate(microseconds.begin(), microseconds.end(), 0.0) /
                         static_cast<double>(microseconds.size());
  std::sort(microseconds.begin(), microseconds.end());
  const auto part = [&](double share) {
    return microseconds[static_cast<std::size_t>(share *
                                                 static_cast<double>(microseconds.size() - 1))];
  };
  std::printf(
      "{\"average_us\": %.2f, \"median_us\": %.2f, \"p75_us\": %.2f, \"p90_us\": %.2f, "
      "\"p99_us\": %.2f, \"processor_seconds\": %.3f}\n",
      average, part(0.5), part(0.75), part(0.9), part(0.99), used);
}

[[noreturn]] void explain() {
  std::fputs(
      "Usage: pd_perf serve|bandwidth|latency --at ADDRESS:PORT|PATH [--over pipe|sockets]\n"
      "         [--size BYTES] [--seconds N] [--warm-up SECONDS] [--connections N] [--count N] "
      "[--ring BYTES]\n",
      stderr);
  std::exit(2);
}

Options parse_options(int argc, char** argv) {
  Options options;
  if (argc < 2 || argc % 2 != 0) explain();
  options.command = argv[1];
  for (int at = 2; at + 1 < argc; at += 2) {
    const std::string name = argv[at], value = argv[at + 1];
    if (name == "--over")
      options.over = value;
    else if (name == "--at")
      options.at = value;
    else if (name == "--size")
      options.size = std::strtoull(value.c_str(), nullptr, 10);
    else if (name == "--seconds")
      options.seconds = std::atof(value.c_str());
    else if (name == "--warm-up")
      options.warm_up = std::atof(value.c_str());
    else if (name == "--connections")
      options.connections = std::strtoull(value.c_str(), nullptr, 10);
    else if (name == "--count")
      options.count = std::strtoull(value.c_str(), nullptr, 10);
    else if (name == "--ring")
      options.ring = std::atoi(value.c_str());
    else
      explain();
  }
  const bool known = options.over == "pipe" || options.over == "sockets";
  if (!known || options.at.empty() || options.size == 0 || options.connections == 0 ||
      options.count == 0) {
    explain();
  }
  return options;
}

}  // namespace
}  // namespace pd_perf

int main(int argc, char** argv) {
  using namespace pd_perf;
  const Options options = parse_options(argc, argv);
  // A connection of the pipe takes two.
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) == 0) {
    descriptors.rlim_cur = descriptors.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &descriptors);
  }
  const auto carrier = options.over == "pipe"
                           ? carriers::make_pipe(options.ring, 0)
                           : carriers::make_sockets(options.command != "bandwidth", 0);
  if (options.command == "serve") {
    serve(*carrier, options);
  } else if (options.command == "bandwidth") {
    measure_bandwidth(*carrier, options);
  } else if (options.command == "latency") {
    measure_latency(*carrier, options);
  } else {
    explain();
  }
  return 0;
}
