#include "program.h"

#include <cstring>

#include "port/slot.h"

namespace ferry::simulation {
namespace {

using transport::MigrationState;
using transport::Operation;
using transport::test::FakeHost;
using transport::test::kLkey;
using transport::test::kRkey;

constexpr std::uint32_t kMtu = 256;
constexpr std::uint64_t kLongest = 700;
constexpr std::uint64_t kCounter = 0, kReadArea = 64, kReadBytes = 512;
constexpr std::uint64_t kLanding = kReadArea + kReadBytes, kLandingBytes = kReadBytes;
constexpr std::uint64_t kLandings = kOutstanding * 2;
constexpr std::uint64_t kReceiveArea = kLanding + kLandings * kLandingBytes, kReceiveBytes = 704;
constexpr std::uint64_t kMemory = kReceiveArea + kReceives * kReceiveBytes;

std::uint64_t mix(std::uint64_t key, std::uint64_t number) {
  return port::SplitMix64(key * 0x9E3779B97F4A7C15 + number).next();
}

std::uint64_t length_of(std::uint64_t key, std::uint64_t number) {
  const std::uint64_t bits = mix(key, ~number);
  return 8 + (bits % 4 == 0 ? bits / 4 % (kLongest - 7) : bits / 4 % 64);
}

void fill(std::byte* at, std::uint64_t length, std::uint64_t key, std::uint64_t number) {
  port::SplitMix64 words(mix(key, number));
  for (std::uint64_t i = 0; i < length; i += 8) {
    const std::uint64_t word = words.next();
    std::memcpy(at + i, &word, std::min<std::uint64_t>(8, length - i));
  }
}

bool holds(const std::byte* at, std::uint64_t length, std::uint64_t key, std::uint64_t number) {
  std::array<std::byte, 1024> wanted;
  fill(wanted.data(), length, key, number);
  return std::memcmp(at, wanted.data(), length) == 0;
}

}  // namespace

Copy::Copy(Events& events, Network& network, Fail fail, int program_number, int host,
           const Place& where)
    : program(program_number),
      on(host),
      place(where),
      events_(events),
      network_(network),
      fail_(std::move(fail)) {}

void Copy::fail(const std::string& what) const {
  fail_("program " + std::to_string(program) + ": " + what);
}

void Copy::hook(Qp& qp) {
  qp.host->local = place.at;
  qp.host->send = [this](Datagram datagram) {
    if (dead) fail("a dead copy sends");
    network_.send(std::move(datagram));
  };
  qp.host->random_bits = [this] { return events_.random.next(); };
}

std::uint32_t Copy::add_qp(std::uint32_t index, const transport::MigrationSettings& settings,
                           std::uint64_t to_post) {
  settings_ = settings;
  Qp& qp = qps_.emplace_back();
  qp.host = std::make_unique<FakeHost>(kMemory);
  hook(qp);
  qp.virtual_qpn = port::make_qpn(place.slot, index);
  qp.connection = std::make_unique<transport::Connection>(
      *qp.host, transport::QueueLimits{kOutstanding, 1, kLongest, false}, settings, qp.virtual_qpn,
      qp.virtual_qpn);
  qp.app.to_post = to_post;
  qp.app.key = events_.random.next();
  fill(qp.host->memory().data() + kReadArea, kReadBytes, qp.app.key, 0);
  return qp.virtual_qpn;
}

void Copy::connect(std::size_t number, const Copy& peer, std::size_t peer_number, std::uint32_t psn,
                   std::uint32_t peer_psn, std::uint8_t timeout) {
  Qp& qp = qps_.at(number);
  const Qp& other = peer.qps_.at(peer_number);
  qp.app.peer_key = other.app.key;
  qp.connection->init();
  qp.connection->to_rtr({.peer = peer.place.at,
                         .peer_qpn = other.virtual_qpn,
                         .mtu = kMtu,
                         .expected_psn = peer_psn,
                         .max_dest_rd_atomic = 4,
                         .min_rnr_timer = 3},
                        events_.now());
  qp.connection->to_rts(
      {.next_psn = psn, .timeout = timeout, .retry_count = 7, .rnr_retry = 7, .max_rd_atomic = 4},
      events_.now());
}

void Copy::read_socket() {
  network_.read(place.at, [self = weak_from_this()](const Datagram& datagram) {
    const auto copy = self.lock();
    if (!copy || copy->dead) return;
    const auto packet = wire::parse(datagram.bytes);
    if (!packet) return copy->fail("a packet that does not parse");
    for (Qp& qp : copy->qps_) {
      if (qp.connection->status().wire_qpn != packet->header.dest_qpn) continue;
      qp.connection->handle_packet(*packet, datagram.from, copy->events_.now());
    }
    copy->pump();
  });
  pump();
}

void Copy::pump() {
  if (stopped) return;
  for (Qp& qp : qps_) {
    if (qp.connection->next_deadline() <= events_.now()) {
      qp.connection->handle_timeout(events_.now());
    }
    for (int round = 0; qp.connection->has_work(); ++round) {
      if (round > 1000) return fail("has work for ever");
      qp.connection->transmit(events_.now(), 16);
    }
  }
  arm();
}

void Copy::arm() {
  Time next = transport::kNever;
  for (const Qp& qp : qps_) next = std::min(next, qp.connection->next_deadline());
  if (next >= armed_) return;
  armed_ = next;
  events_.in(std::max(next - events_.now(), Time(0)), [self = weak_from_this(), next] {
    const auto copy = self.lock();
    if (!copy || copy->dead) return;
    if (copy->armed_ == next) copy->armed_ = transport::kNever;
    copy->pump();
  });
}

void Copy::post_receives(Qp& qp) {
  while (qp.app.next_receive - qp.app.arrived < kReceives) {
    transport::ReceiveRequest receive;
    receive.wr_id = qp.app.next_receive++;
    receive.sges = {
        {kReceiveArea + receive.wr_id % kReceives * kReceiveBytes, kReceiveBytes, kLkey}};
    qp.host->post_receive(receive);
    qp.connection->receive_posted(events_.now());
  }
}

void Copy::post(Qp& qp) {
  App& app = qp.app;
  if (app.to_post == 0 || app.outstanding.size() >= kOutstanding) return;
  App::Request wanted{
      app.posted, static_cast<Kind>(events_.pick(0, 3) % 3),
      app.to_post == 1 || events_.chance(0.5) || app.outstanding.size() + 2 >= kOutstanding,
      app.atomics};
  const std::uint64_t landing = kLanding + wanted.id % kLandings * kLandingBytes;
  std::array<std::byte, 1024> bytes;
  const transport::Sge sge{landing, wanted.kind == Kind::kRead ? std::uint32_t{kReadBytes} : 8u,
                           kLkey};
  transport::SendRequest request{.wr_id = wanted.id, .signaled = wanted.signaled, .rkey = kRkey};
  switch (wanted.kind) {
    case Kind::kSend:
      request.length = length_of(app.key, app.sends + 1);
      fill(bytes.data(), request.length, app.key, app.sends + 1);
      request.inline_data = bytes.data();
      break;
    case Kind::kRead:
      request.operation = Operation::kRead;
      request.remote_address = kReadArea;
      request.length = kReadBytes;
      break;
    case Kind::kFetchAdd:
      request.operation = Operation::kFetchAdd;
      request.remote_address = kCounter;
      request.length = 8;
      request.compare_add = 1;
      break;
  }
  if (wanted.kind != Kind::kSend) {
    request.sge_count = 1;
    request.sges = &sge;
    std::memset(qp.host->memory().data() + landing, 0xA5, kLandingBytes);
  }
  const int result = qp.connection->post_send(request);
  if (result == ENOMEM) return;
  if (result != 0) return fail("post_send: " + std::to_string(result));
  if (wanted.kind == Kind::kSend) ++app.sends;
  if (wanted.kind == Kind::kFetchAdd) ++app.atomics;
  ++app.posted;
  --app.to_post;
  app.outstanding.push_back(wanted);
}

void Copy::collect(Qp& qp) {
  App& app = qp.app;
  const std::byte* memory = qp.host->memory().data();
  for (; !qp.host->received.empty(); qp.host->received.pop_front()) {
    const auto completion = qp.host->received.front();
    if (completion.status != transport::Status::kSuccess) {
      return fail("receive with status " + std::to_string(int(completion.status)));
    }
    if (completion.wr_id != app.arrived) return fail("receives out of order");
    const std::byte* at = memory + kReceiveArea + completion.wr_id % kReceives * kReceiveBytes;
    ++app.arrived;
    const std::uint64_t length = length_of(app.peer_key, app.arrived);
    if (completion.bytes != length || !holds(at, length, app.peer_key, app.arrived)) {
      return fail("message " + std::to_string(app.arrived) +
                  " was lost, doubled, corrupted or overtaken");
    }
  }
  for (; !qp.host->sent.empty(); qp.host->sent.pop_front()) {
    const auto completion = qp.host->sent.front();
    if (completion.status != transport::Status::kSuccess) {
      return fail("send with status " + std::to_string(int(completion.status)));
    }
    for (;;) {
      if (app.outstanding.empty() || app.outstanding.front().id > completion.wr_id) {
        return fail("a completion doubled or out of order");
      }
      const App::Request request = app.outstanding.front();
      app.outstanding.pop_front();
      ++completed_;
      const bool last = request.id == completion.wr_id;
      if (request.signaled != last) return fail("a signalled request did not complete");
      const std::byte* landing = memory + kLanding + request.id % kLandings * kLandingBytes;
      if (request.kind == Kind::kRead && !holds(landing, kReadBytes, app.peer_key, 0)) {
        return fail("READ brought other bytes");
      }
      if (request.kind == Kind::kFetchAdd &&
          std::memcmp(landing, &request.original, sizeof request.original) != 0) {
        return fail("an atomic was lost or carried out twice");
      }
      if (last) break;
    }
  }
}

bool Copy::act() {
  bool busy = false;
  for (Qp& qp : qps_) {
    busy = busy || qp.app.to_post > 0 || !qp.host->received.empty() || !qp.host->sent.empty();
    collect(qp);
    post_receives(qp);
    for (auto count = events_.pick(0, 3); count > 0; --count) post(qp);
  }
  pump();
  return busy;
}

void Copy::prepare() {
  for (Qp& qp : qps_) qp.connection->prepare(events_.now());
  pump();
}

bool Copy::peers_are_known() const {
  for (const Qp& qp : qps_) {
    if (qp.connection->status().peer_class != transport::PeerClass::kFerry) return false;
  }
  return true;
}

std::vector<std::vector<std::byte>> Copy::stop() {
  std::vector<std::vector<std::byte>> entries;
  for (Qp& qp : qps_) {
    qp.connection->stop(events_.now());
    entries.push_back(qp.connection->stand_in_entry(place.at.address));
  }
  stopped = true;
  return entries;
}

void Copy::resume(bool rollback) {
  stopped = false;
  for (Qp& qp : qps_) {
    qp.connection->resume(port::make_qpn(place.slot, port::index_of(qp.virtual_qpn)), rollback,
                          events_.now());
  }
  read_socket();
}

Image Copy::image() const {
  Image image;
  image.settings = settings_;
  for (const Qp& qp : qps_) {
    QpImage& saved = image.qps.emplace_back(QpImage{*qp.host, qp.app, {}, qp.virtual_qpn});
    wire::ByteWriter out(&saved.record);
    qp.connection->save(out);
  }
  return image;
}

void Copy::load(const Image& image) {
  settings_ = image.settings;
  stopped = true;
  for (const QpImage& saved : image.qps) {
    Qp& qp = qps_.emplace_back();
    qp.host = std::make_unique<FakeHost>(saved.host);
    hook(qp);
    qp.virtual_qpn = saved.virtual_qpn;
    qp.app = saved.app;
    qp.connection = std::make_unique<transport::Connection>(
        *qp.host, transport::QueueLimits{kOutstanding, 1, kLongest, false}, image.settings,
        qp.virtual_qpn, port::make_qpn(place.slot, port::index_of(qp.virtual_qpn)));
    wire::ByteReader in(saved.record);
    if (!qp.connection->load(in) || in.remaining() != 0) fail("an image does not load");
  }
}

std::vector<std::uint32_t> Copy::known() const {
  std::vector<std::uint32_t> qpns;
  for (const Qp& qp : qps_) {
    if (!qp.connection->status().resume_pending) qpns.push_back(qp.virtual_qpn);
  }
  return qpns;
}

bool Copy::done() const {
  for (const Qp& qp : qps_) {
    const auto status = qp.connection->status();
    if (!qp.app.done() || status.migration != MigrationState::kNone || status.resume_pending) {
      return false;
    }
  }
  return true;
}

void Copy::check_end(const std::vector<std::shared_ptr<Copy>>& all) const {
  for (const Qp& qp : qps_) {
    const auto status = qp.connection->status();
    if (status.state != transport::QpState::kRts) fail("a QP is not at RTS");
    for (const auto& copy : all) {
      for (const Qp& other : copy->qps_) {
        if (other.app.key != qp.app.peer_key) continue;
        if (other.app.sends != qp.app.arrived) fail("messages were lost");
        if (std::memcmp(qp.host->memory().data() + kCounter, &other.app.atomics, 8) != 0) {
          fail("atomics were not carried out exactly once");
        }
      }
    }
  }
}

std::string Copy::describe() const {
  std::string text = "program " + std::to_string(program) + " on host " + std::to_string(on) +
                     (dead   ? ", dead"
                      : runs ? ", runs"
                             : ", frozen") +
                     (stopped ? ", Stopped" : "");
  for (const Qp& qp : qps_) {
    const auto s = qp.connection->status();
    text += "\n    QP " + std::to_string(s.virtual_qpn) + ": state " +
            std::to_string(int(s.state)) + " migration " + std::to_string(int(s.migration)) +
            " class " + std::to_string(int(s.peer_class)) + (s.resume_pending ? " resuming" : "") +
            " epoch " + std::to_string(s.epoch) + "; " + std::to_string(qp.app.to_post) +
            " to post, " + std::to_string(qp.app.outstanding.size()) + " outstanding, " +
            std::to_string(qp.app.arrived) + " arrived";
  }
  return text;
}

}  // namespace ferry::simulation
