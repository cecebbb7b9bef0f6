#include "host/checkup/reach.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/failure.h"
#include "base/net.h"
#include "ferry.pb.h"
#include "host/peers/peer.h"
#include "host/peers/stream.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using Steady = std::chrono::steady_clock;

constexpr int kRoundTrips = 5;
constexpr milliseconds kAnswer{5000};  // for an answer that needs no work
constexpr milliseconds kCriu{45000};   // for the other host to look at its CRIU

double in_ms(nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

// One question and its answer.
struct RoundTrip {
  nanoseconds time{0};
  nanoseconds ahead{0};  // of the other clock, if it was read half way through `time`
};

RoundTrip measure(Peer& peer) {
  v1::ProbeReply reply;
  const auto begin = std::chrono::system_clock::now();
  const auto sent = Steady::now();
  peer.call(v1::ProbeRequest(), &reply, kAnswer);
  const nanoseconds time = Steady::now() - sent;
  const auto here = std::chrono::duration_cast<nanoseconds>(begin.time_since_epoch()) + time / 2;
  return {time, nanoseconds(reply.clock_ns()) - here};
}

void measure_times(Peer& peer, v1::Reached* out) {
  std::vector<RoundTrip> trips;
  for (int i = 0; i < kRoundTrips; ++i) trips.push_back(measure(peer));
  std::ranges::sort(trips, {}, &RoundTrip::time);
  out->set_round_trip_ms(in_ms(trips[trips.size() / 2].time));
  // The shortest one leaves the least doubt about when the other clock was read.
  out->set_clock_ahead_ms(in_ms(trips.front().ahead));
  out->set_clock_uncertainty_ms(in_ms(trips.front().time) / 2);
}

// Connects to the port for images as a move does, and closes the connection without a word. Gives what fails; empty:
// nothing.
std::string image_problem(const Peer& peer, std::uint32_t port, const Credentials* credentials) {
  if (port == 0 || port > 65535) return "it has no port for images";
  try {
    Stream::to_server(connect_tcp(peer.address(), static_cast<std::uint16_t>(port)), credentials,
                      peer.identity());
    return {};
  } catch (const Failure& failure) {
    return failure.what();
  }
}

// Makes fit for a terminal what another host says.
std::string said(const std::string& text) {
  return printable(one_line(text));
}

}  // namespace

v1::Reached reach(const std::string& host, const std::string& identity,
                  const Credentials* credentials) {
  v1::Reached result;
  result.set_host(said(host));
  try {
    Peer peer(host, credentials, identity);
    result.set_port(peer.port());
    v1::ProbeReply reply;
    peer.call(v1::ProbeRequest(), &reply, kAnswer);  // makes the connection
    measure_times(peer, &result);
    v1::ProbeRequest request;
    request.set_with_criu(true);
    peer.call(request, &reply, kCriu);
    result.set_name(said(reply.host()));
    result.set_version(said(reply.version()));
    result.set_criu_problem(said(reply.criu_problem()));
    *result.mutable_rdma() = reply.rdma();
    result.set_image_port(reply.image_port());
    result.set_image_problem(said(image_problem(peer, reply.image_port(), credentials)));
  } catch (const std::exception& failure) {
    result.set_problem(said(failure.what()));
  }
  return result;
}

}  // namespace ferry::host
