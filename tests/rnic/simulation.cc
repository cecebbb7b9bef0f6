#include "simulation.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <utility>

#include "rig.h"

namespace ferry::rnic::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using transport::Time;

constexpr int kCqEntries = 255;

// A process with an RNIC.
struct SimNode {
  std::string name;
  Sink sink;
  std::unique_ptr<Context> context;
  device::Pd* pd = nullptr;
  device::Cq* cq = nullptr;
  std::unique_ptr<SharedReceives> shared;  // of all its endpoints; may be null
  std::vector<std::unique_ptr<Party>> endpoints;
  std::map<std::uint32_t, Party*> by_qpn;
  bool frozen = false;
  bool moving = false;
  Time next_action{0};
};

// A move in progress, stage by stage.
struct Move {
  enum class Stage : std::uint8_t {
    kPrepare,
    kStop,
    kFreeze,
    kRestore,
    kDecide
  } stage = Stage::kPrepare;
  SimNode* node = nullptr;
  Time at{0};
  std::vector<rnic::Slot> slots;
  std::vector<std::unique_ptr<SimStandIn>> stand_ins;  // one per slot
  std::vector<std::byte> image;
  std::unique_ptr<Context> destination;
  device::Pd* pd = nullptr;
  device::Cq* cq = nullptr;
  device::Srq* srq = nullptr;
  MovedObjects objects;
};

// The stand-ins of a finished move, as long as somebody may need them.
struct Remaining {
  SimNode* node;
  std::unique_ptr<SimStandIn> stand_in;
  std::set<std::uint32_t> told;
};

class Simulation {
 public:
  explicit Simulation(const SimulationOptions& options)
      : options_(options),
        random_(options.seed),
        network_(random_.next()),
        environment_(network_, random_.next()),
        ports_(std::make_shared<SimPortSource>(network_)) {}

  SimulationResult run();

 private:
  void set_up();
  void share_receives(SimNode& node);
  void connect(SimNode& x, SimNode& y);
  void connect_unreliable(SimNode& x, SimNode& y);
  void make_datagrams();
  void bring_up(device::Qp* qp, device::Qp* peer, SimNode& other, ibv_mtu mtu, std::uint32_t rq_psn,
                std::uint32_t sq_psn);
  void add(SimNode& node, std::unique_ptr<Party> party, const device::QpInit& init);
  device::Mr* reg(SimNode& node, Party& party);
  void note_absence(SimNode& node, bool away);
  std::unique_ptr<Context> open(SimNode& node);
  Time next_time();
  void act(SimNode& node);
  void poll(SimNode& node);
  void step(Move& move);
  void prepare(Move& move);
  void stop(Move& move);
  void freeze(Move& move);
  void restore(Move& move);
  void decide(Move& move);
  void roll_back(Move& move);
  void commit(Move& move);
  void check(int result, const char* what);
  bool finished() const;
  void advance(Time now);
  void run_until(const std::function<bool()>& condition, Time limit);
  void try_ended_window();
  Time after(microseconds low, microseconds high) {
    return network_.now() + microseconds(random_.between(static_cast<std::uint64_t>(low.count()),
                                                         static_cast<std::uint64_t>(high.count())));
  }

  const SimulationOptions options_;
  port::SplitMix64 random_;
  port::SimNetwork network_;
  SimEnvironment environment_;
  std::shared_ptr<SimPortSource> ports_;
  std::vector<std::unique_ptr<SimNode>> nodes_;
  std::vector<std::unique_ptr<Move>> moves_;
  std::vector<Remaining> remaining_;
  std::uint32_t next_host_ = 1;
  Settings settings_;
  SimulationResult result_;
  UnreliableWorld unreliable_;
};

void Simulation::check(int result, const char* what) {
  if (result != 0)
    result_.errors.push_back(std::string(what) + ": errno " + std::to_string(result));
}

// Every RNIC is opened on a host of its own: an address that was never used before.
std::unique_ptr<Context> Simulation::open(SimNode& node) {
  Context::Options options;
  options.sink = &node.sink;
  options.environment = &environment_;
  options.ports = ports_;
  options.settings = settings_;
  options.with_thread = false;
  options.netdev.name = "sim0";
  options.netdev.mtu = 9000;
  options.netdev.guid = next_host_;
  options.netdev.addresses = {port::Address::from_ipv4(0x0A000000 + next_host_++)};
  // Another process of the host may have the first slots.
  std::vector<std::unique_ptr<port::Port>> others;
  for (auto taken = random_.between(0, 2); taken > 0; --taken) {
    int error = 0;
    others.push_back(
        ports_->bind(options.netdev.addresses[0], static_cast<std::uint32_t>(taken - 1), &error));
  }
  int error = 0;
  auto context = Context::open(options, &error);
  check(error, "open");
  return context;
}

void Simulation::share_receives(SimNode& node) {
  node.shared = std::make_unique<SharedReceives>();
  device::SrqInit init;
  init.pd = node.pd;
  init.attributes = {SharedReceives::kSlots, 1, 0};
  check(node.context->create_srq(&init, &node.shared->srq), "create_srq");
  device::MrInit mr;
  mr.pd = node.pd;
  mr.address = node.shared->memory();
  mr.length = node.shared->memory_size();
  mr.iova = reinterpret_cast<std::uintptr_t>(mr.address);
  mr.access = IBV_ACCESS_LOCAL_WRITE;
  check(node.context->reg_mr(mr, &node.shared->mr), "reg_mr");
}

device::Mr* Simulation::reg(SimNode& node, Party& party) {
  device::MrInit mr;
  mr.pd = node.pd;
  mr.address = party.memory();
  mr.length = party.memory_size();
  mr.iova = reinterpret_cast<std::uintptr_t>(party.memory());
  mr.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE |
              IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND;
  device::Mr* result = nullptr;
  check(node.context->reg_mr(mr, &result), "reg_mr");
  return result;
}

void Simulation::add(SimNode& node, std::unique_ptr<Party> party, const device::QpInit& wanted) {
  device::QpInit init = wanted;
  init.pd = node.pd;
  init.send_cq = init.recv_cq = node.cq;
  check(node.context->create_qp(&init, &party->qp), "create_qp");
  party->mr = reg(node, *party);
  node.by_qpn[party->qp->qpn()] = party.get();
  node.endpoints.push_back(std::move(party));
}

void Simulation::bring_up(device::Qp* qp, device::Qp* peer, SimNode& other, ibv_mtu mtu,
                          std::uint32_t rq_psn, std::uint32_t sq_psn) {
  ibv_gid_entry gid{};
  other.context->query_gid(1, 0, &gid);
  ibv_qp_attr a = attributes(IBV_QPS_INIT, peer->qpn(), gid.gid);
  const bool reliable = options_.service == IBV_QPT_RC;
  a.path_mtu = mtu;
  if (reliable) a.qp_access_flags |= IBV_ACCESS_REMOTE_ATOMIC;
  if (!reliable) a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  a.rq_psn = rq_psn;
  a.sq_psn = sq_psn;
  a.timeout = 9;        // 2 ms
  a.min_rnr_timer = 3;  // 30 us
  check(qp->modify(a, kInitMask), "INIT");
  a.qp_state = IBV_QPS_RTR;
  check(qp->modify(a, reliable ? kRtrMask
                               : kRtrMask & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)),
        "RTR");
  a.qp_state = IBV_QPS_RTS;
  check(qp->modify(a, reliable ? kRtsMask : IBV_QP_STATE | IBV_QP_SQ_PSN), "RTS");
}

void Simulation::connect(SimNode& x, SimNode& y) {
  const auto number = std::to_string(x.endpoints.size());
  SimNode* nodes[2] = {&x, &y};
  Endpoint* ends[2];
  for (int i = 0; i < 2; ++i) {
    SimNode& node = *nodes[i];
    auto end = std::make_unique<Endpoint>(node.name + number, random_.next(), &result_.errors);
    ends[i] = end.get();
    end->shared = node.shared.get();
    device::QpInit init;
    init.cap = Endpoint::capabilities();
    if (node.shared != nullptr) init.srq = node.shared->srq;
    check(node.context->alloc_mw(node.pd, IBV_MW_TYPE_2, &end->window), "alloc_mw");
    add(node, std::move(end), init);
  }
  ends[0]->peer = ends[1];
  ends[1]->peer = ends[0];
  const auto mtu = static_cast<ibv_mtu>(random_.between(IBV_MTU_256, IBV_MTU_4096));
  const auto psn_0 = static_cast<std::uint32_t>(random_.next() & 0xFFFFFF);
  const auto psn_1 = static_cast<std::uint32_t>(random_.next() & 0xFFFFFF);
  bring_up(ends[0]->qp, ends[1]->qp, y, mtu, psn_0, psn_1);
  bring_up(ends[1]->qp, ends[0]->qp, x, mtu, psn_1, psn_0);
}

void Simulation::connect_unreliable(SimNode& x, SimNode& y) {
  SimNode* nodes[2] = {&x, &y};
  UnreliableParty* ends[2];
  for (int i = 0; i < 2; ++i) {
    SimNode& node = *nodes[i];
    auto end = std::make_unique<UnreliableParty>(node.name + std::to_string(x.endpoints.size()),
                                                 false, random_.next(), &unreliable_);
    ends[i] = end.get();
    device::QpInit init;
    init.type = IBV_QPT_UC;
    init.cap = UnreliableParty::capabilities();
    add(node, std::move(end), init);
    ends[i]->set_name(ends[i]->qp->qpn(), {});
  }
  ends[0]->add_peer(ends[1], nullptr);
  ends[1]->add_peer(ends[0], nullptr);
  const auto mtu = static_cast<ibv_mtu>(random_.between(IBV_MTU_256, IBV_MTU_4096));
  const auto psn = static_cast<std::uint32_t>(random_.next() & 0xFFFFFF);
  bring_up(ends[0]->qp, ends[1]->qp, y, mtu, psn, psn);
  bring_up(ends[1]->qp, ends[0]->qp, x, mtu, psn, psn);
}

// One UD QP for each node, and an address handle of each for each other.
void Simulation::make_datagrams() {
  std::vector<UnreliableParty*> parties;
  std::vector<ibv_gid> gids;
  for (auto& node : nodes_) {
    auto party = std::make_unique<UnreliableParty>(node->name, true, random_.next(), &unreliable_);
    parties.push_back(party.get());
    device::QpInit init;
    init.type = IBV_QPT_UD;
    init.cap = UnreliableParty::capabilities();
    add(*node, std::move(party), init);
    ibv_gid_entry gid{};
    node->context->query_gid(1, 0, &gid);
    gids.push_back(gid.gid);
    parties.back()->set_name(parties.back()->qp->qpn(), gid.gid);
    parties.back()->set_mtu(4096);
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    a.qkey = UnreliableParty::kQkey;
    device::Qp* qp = parties.back()->qp;
    check(qp->modify(a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY), "INIT");
    a.qp_state = IBV_QPS_RTR;
    check(qp->modify(a, IBV_QP_STATE), "RTR");
    a.qp_state = IBV_QPS_RTS;
    check(qp->modify(a, IBV_QP_STATE | IBV_QP_SQ_PSN), "RTS");
  }
  for (std::size_t i = 0; i < parties.size(); ++i) {
    for (std::size_t k = 0; k < parties.size(); ++k) {
      if (i == k) continue;
      ibv_ah_attr path{};
      path.is_global = 1;
      path.grh.dgid = gids[k];
      path.grh.hop_limit = 64;
      path.port_num = 1;
      device::Ah* ah = nullptr;
      check(nodes_[i]->context->create_ah(nodes_[i]->pd, path, &ah), "create_ah");
      parties[i]->add_peer(parties[k], ah);
    }
  }
}

void Simulation::set_up() {
  port::SimConditions conditions;
  if (random_.chance(0.75)) {
    conditions.loss = random_.unit() * 0.02;
    conditions.duplication = random_.unit() * 0.05;
    conditions.reordering = random_.unit() * 0.1;
    conditions.max_delay = microseconds(random_.between(5, 60));
  }
  if (options_.service != IBV_QPT_RC) {
    conditions.duplication = conditions.reordering = 0;
    if (random_.chance(0.5)) conditions.loss = 0;
  }
  unreliable_ = {&result_.errors, [this] { return network_.now(); }, conditions.loss > 0};
  network_.set_conditions(conditions);
  if (options_.trace) {
    network_.set_trace([](port::SimTime time, const port::Endpoint& from, const port::Endpoint& to,
                          std::span<const std::byte> bytes, port::SimVerdict verdict) {
      const auto packet = wire::parse(bytes);
      std::printf("%9.3f us  %u:%u > %u:%u  opcode %02x psn %06x dest %06x aeth %02x len %zu  %s\n",
                  static_cast<double>(time.count()) / 1000,
                  static_cast<unsigned>(from.address.bytes[15]), from.udp_port,
                  static_cast<unsigned>(to.address.bytes[15]), to.udp_port,
                  packet ? static_cast<unsigned>(packet->header.opcode) : 0,
                  packet ? packet->header.psn : 0, packet ? packet->header.dest_qpn : 0,
                  packet ? packet->header.aeth.syndrome : 0, packet ? packet->payload.size() : 0,
                  port::name_of(verdict));
    });
  }
  const auto count = random_.between(2, 3);
  for (std::uint64_t i = 0; i < count; ++i) {
    auto node = std::make_unique<SimNode>();
    node->name = std::string(1, static_cast<char>('a' + i));
    node->context = open(*node);
    check(node->context->alloc_pd(&node->pd), "alloc_pd");
    check(node->context->create_cq({kCqEntries}, &node->cq), "create_cq");
    if (options_.service == IBV_QPT_RC && random_.chance(0.5)) share_receives(*node);
    nodes_.push_back(std::move(node));
  }
  const auto connections = random_.between(count - 1, count + 1);
  if (options_.service == IBV_QPT_UD) make_datagrams();
  for (std::uint64_t i = 0; i < connections && options_.service != IBV_QPT_UD; ++i) {
    SimNode &x = *nodes_[i % count], &y = *nodes_[(i + 1) % count];
    options_.service == IBV_QPT_RC ? connect(x, y) : connect_unreliable(x, y);
  }
  for (auto moves = random_.between(0, options_.max_moves); moves > 0; --moves) {
    auto move = std::make_unique<Move>();
    move->node = nodes_[random_.between(0, count - 1)].get();
    move->at = after(microseconds(0), microseconds(3000));
    moves_.push_back(std::move(move));
  }
}

// One turn of a node's application.
void Simulation::act(SimNode& node) {
  node.next_action = after(microseconds(1), microseconds(40));
  if (node.endpoints.empty()) return;
  Party& end = *node.endpoints[random_.between(0, node.endpoints.size() - 1)];
  const std::size_t posted = end.requests_posted();
  const bool slow_receiver = random_.chance(0.2);
  if (!slow_receiver) {
    for (auto count = random_.between(1, 4); count > 0; --count) end.post_receive();
  }
  if (posted < options_.requests_per_endpoint) {
    for (auto count = random_.between(0, 5); count > 0; --count) {
      end.post_request(end.requests_posted() + 1 >= options_.requests_per_endpoint);
      if (end.requests_posted() >= options_.requests_per_endpoint) break;
    }
  }
  if (random_.chance(0.7)) poll(node);
}

void Simulation::poll(SimNode& node) {
  std::array<ibv_wc, 16> completions;
  for (;;) {
    const int count = node.cq->poll(static_cast<int>(completions.size()), completions.data());
    if (count < 0) result_.errors.push_back(node.name + ": the CQ overflowed");
    if (count <= 0) return;
    for (int i = 0; i < count; ++i) {
      const auto end = node.by_qpn.find(completions[i].qp_num);
      if (end == node.by_qpn.end()) {
        result_.errors.push_back(node.name + ": completion of an unknown QP");
      } else {
        end->second->completed(completions[i]);
      }
    }
  }
}

// --- Moves ---------------------------------------------------------------------------------------

void Simulation::prepare(Move& move) {
  SimNode& node = *move.node;
  move.at = after(microseconds(500), microseconds(2000));
  if (node.moving) return;  // another move of it is not over yet
  node.moving = true;
  node.context->prepare();
  move.stage = Move::Stage::kStop;
  move.at = after(microseconds(0), microseconds(500));
}

void Simulation::stop(Move& move) {
  SimNode& node = *move.node;
  // What Context::prepare() waits for where time passes by itself. A peer that has not said HELLO
  // cannot follow to another address.
  std::vector<device::QpStatus> status;
  node.context->status(&status);
  for (const auto& qp : status) {
    if (qp.peer_class != 0 || qp.type == IBV_QPT_UD) continue;
    move.at = after(microseconds(100), microseconds(500));
    return;
  }
  std::uint32_t unacked = 0;
  check(node.context->quiesce(std::chrono::seconds(1), &unacked), "suspend");
  if (unacked > 0) ++result_.unacked_moves;
  note_absence(node, true);
  check(node.context->detach(&move.slots), "detach");
  for (const rnic::Slot& slot : move.slots) {
    move.stand_ins.push_back(std::make_unique<SimStandIn>(*ports_, slot, network_.now()));
    if (!move.stand_ins.back()->well_formed()) result_.errors.push_back("a stand-in's entry");
  }
  move.stage = Move::Stage::kFreeze;
  move.at = after(microseconds(0), microseconds(300));
}

void Simulation::freeze(Move& move) {
  SimNode& node = *move.node;
  node.frozen = true;
  // Before anything has looked at QPs that rest: these go on in turn.
  if (random_.chance(0.15)) return roll_back(move);
  int records = 0;
  check(node.context->describe(&move.image, &records), "describe");
  move.stage = Move::Stage::kRestore;
  move.at = after(microseconds(0), microseconds(3000));
}

// Every object through its bytes, into an RNIC of another host.
void Simulation::restore(Move& move) {
  using device::ObjectType;
  using device::RestoreCommand;
  move.destination = open(*move.node);
  std::span<const std::byte> rest = move.image;
  while (!rest.empty()) {
    std::span<const std::byte> before = rest;
    device::Record record;
    if (!device::next_record(&rest, &record)) {
      result_.errors.push_back("the image is malformed");
      return;
    }
    const auto bytes = before.first(before.size() - rest.size());
    device::Object* object = nullptr;
    check(move.destination->restore(record.type, RestoreCommand::kCreate, bytes, &object),
          "create");
    switch (record.type) {
      case ObjectType::kPd: move.pd = static_cast<device::Pd*>(object); break;
      case ObjectType::kMr: {
        check(move.destination->restore(record.type, RestoreCommand::kMrKeys, bytes, &object),
              "keys");
        auto* mr = static_cast<device::Mr*>(object);
        move.objects.mrs[mr->rkey()] = mr;
        break;
      }
      case ObjectType::kCq:
        check(move.destination->restore(record.type, RestoreCommand::kRefill, bytes, &object),
              "refill CQ");
        move.cq = static_cast<device::Cq*>(object);
        break;
      case ObjectType::kSrq:
        check(move.destination->restore(record.type, RestoreCommand::kRefill, bytes, &object),
              "refill SRQ");
        move.srq = static_cast<device::Srq*>(object);
        break;
      case ObjectType::kQp: {
        check(move.destination->restore(record.type, RestoreCommand::kRefill, bytes, &object),
              "refill QP");
        auto* qp = static_cast<device::Qp*>(object);
        move.objects.qps[qp->qpn()] = qp;
        break;
      }
      case ObjectType::kMw: {
        auto* mw = static_cast<device::Mw*>(object);
        move.objects.mws[mw->handle()] = mw;
        break;
      }
      case ObjectType::kAh: {
        auto* ah = static_cast<device::Ah*>(object);
        move.objects.ahs[ah->handle()] = ah;
        break;
      }
      default: break;
    }
  }
  move.stage = Move::Stage::kDecide;
  move.at = after(microseconds(0), microseconds(2000));
}

void Simulation::decide(Move& move) {
  if (random_.chance(0.2)) {
    move.destination.reset();
    roll_back(move);
  } else {
    commit(move);
  }
}

void Simulation::roll_back(Move& move) {
  SimNode& node = *move.node;
  for (std::size_t i = 0; i < move.slots.size(); ++i) {
    move.slots[i].descriptor = move.stand_ins[i]->release();
    move.slots[i].entries.clear();
  }
  check(node.context->attach(move.slots), "attach");
  node.context->resume(true);
  note_absence(node, false);
  node.frozen = node.moving = false;
  move.node = nullptr;
  ++result_.rollbacks;
}

void Simulation::commit(Move& move) {
  SimNode& node = *move.node;
  const Lane& lane = move.destination->engine().lanes()[0];
  for (auto& stand_in : move.stand_ins) {
    stand_in->stand_in().committed(lane.port->local(), lane.slot, 1, network_.now());
    remaining_.push_back({&node, std::move(stand_in), {}});
  }
  const std::unique_ptr<Context> source = std::exchange(node.context, std::move(move.destination));
  node.pd = move.pd;
  node.cq = move.cq;
  if (node.shared != nullptr) {
    node.shared->srq = move.srq;
    node.shared->mr = move.objects.mrs.at(node.shared->mr->rkey());
  }
  for (const auto& [qpn, end] : node.by_qpn) end->moved(qpn, move.objects);
  node.context->resume(false);
  note_absence(node, false);
  node.frozen = node.moving = false;
  move.node = nullptr;
  ++result_.moves;
}

void Simulation::note_absence(SimNode& node, bool away) {
  if (options_.service == IBV_QPT_RC) return;
  // Peers learn of the way back with the first repetitions of RESUME and LOCATE.
  for (auto& end : node.endpoints) {
    auto& party = static_cast<UnreliableParty&>(*end);
    away ? party.stopped() : party.resumed(milliseconds(2));
  }
}

void Simulation::step(Move& move) {
  switch (move.stage) {
    case Move::Stage::kPrepare: return prepare(move);
    case Move::Stage::kStop: return stop(move);
    case Move::Stage::kFreeze: return freeze(move);
    case Move::Stage::kRestore: return restore(move);
    case Move::Stage::kDecide: return decide(move);
  }
}

// --- The loop ------------------------------------------------------------------------------------

Time Simulation::next_time() {
  Time next = network_.next_event_time();
  for (const auto& node : nodes_) {
    if (node->frozen) continue;
    next = std::min(next, node->next_action);
    if (!node->context->engine().suspended()) {
      next = std::min(next, node->context->engine().deadlines().first());
    }
  }
  for (const auto& move : moves_) {
    next = std::min(next, move->at);
    for (const auto& stand_in : move->stand_ins) {
      next = std::min(next, stand_in->next_deadline());
    }
  }
  for (const auto& remaining : remaining_)
    next = std::min(next, remaining.stand_in->next_deadline());
  return next;
}

bool Simulation::finished() const {
  if (!moves_.empty()) return false;
  for (const auto& node : nodes_) {
    for (const auto& end : node->endpoints) {
      if (end->requests_posted() < options_.requests_per_endpoint || !end->done()) return false;
    }
  }
  return true;
}

void Simulation::advance(Time now) {
  network_.advance_to(now);
  for (auto& node : nodes_) {
    if (node->frozen) continue;
    {
      Engine::Lock lock(node->context->engine());
      node->context->engine().run(now);
    }
    if (node->next_action <= now) act(*node);
  }
  for (auto& move : moves_) {
    for (auto& stand_in : move->stand_ins) stand_in->run(now);
  }
  for (auto& remaining : remaining_) {
    remaining.stand_in->run(now);
    std::vector<device::QpStatus> status;
    remaining.node->context->status(&status);
    for (const auto& qp : status) {
      if (qp.migration != 1 && qp.resume_pending == 0 && remaining.told.insert(qp.qpn).second) {
        remaining.stand_in->stand_in().peer_knows(qp.qpn, now);
      }
    }
  }
  std::erase_if(remaining_, [now](Remaining& remaining) {
    return remaining.stand_in->stand_in().expired(now);
  });
  for (std::size_t i = 0; i < moves_.size(); ++i) {
    if (moves_[i]->at <= now) step(*moves_[i]);
  }
  std::erase_if(moves_, [](const auto& move) { return move->node == nullptr; });
}

void Simulation::run_until(const std::function<bool()>& condition, Time limit) {
  while (!condition() && result_.errors.empty()) {
    const Time now = std::max(next_time(), network_.now());
    if (now > limit) {
      result_.errors.push_back("stuck");
      return;
    }
    advance(now);
  }
}

// Who uses a window that was invalidated is refused, wherever the two are by now.
void Simulation::try_ended_window() {
  network_.set_conditions({});  // the NAK is sent once
  for (auto& node : nodes_) {
    for (auto& party : node->endpoints) {
      auto& end = static_cast<Endpoint&>(*party);
      if (!end.try_ended_window()) continue;
      ++result_.refused_writes;
      return run_until([&end] { return end.was_refused(); }, network_.now() + seconds(1));
    }
  }
}

SimulationResult Simulation::run() {
  set_up();
  run_until([this] { return finished(); }, seconds(20));
  if (options_.service == IBV_QPT_RC && result_.errors.empty()) try_ended_window();
  for (auto& node : nodes_) {
    std::vector<device::QpStatus> status;
    node->context->status(&status);
    for (const auto& qp : status) result_.retransmitted += qp.retransmitted_packets;
    for (auto& end : node->endpoints) {
      result_.requests += end->requests_posted();
      if (const auto* reliable = dynamic_cast<Endpoint*>(end.get())) {
        result_.window_writes += reliable->window_writes();
        result_.window_endings += reliable->window_endings();
      }
      if (result_.errors.empty()) end->check();
    }
  }
  result_.delivered = unreliable_.delivered;
  result_.lost = unreliable_.lost;
  if (!result_.errors.empty()) {
    for (auto& node : nodes_) {
      for (auto& end : node->endpoints) result_.errors.push_back(end->describe());
    }
  }
  return result_;
}

}  // namespace

SimulationResult simulate(const SimulationOptions& options) {
  return Simulation(options).run();
}

}  // namespace ferry::rnic::testing
