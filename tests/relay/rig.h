#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "relay/relay.h"

// A program, and a played rdma_cm of the kernel that notes what it is told. Its numbers of IDs begin at 100 for the
// first file, at 200 for the second and so on, so that they are never the program's; as the kernel's, a number that is
// free again is the next one's.
namespace ferry::relay::testing {

using std::chrono::steady_clock;

struct PlayedKernel final : Kernel {
  struct File final : KernelFile {
    explicit File(PlayedKernel& kernel) : played(kernel), first(100 * ++kernel.opened) {
      kernel.file = this;
    }
    ~File() override {
      ::close(events_there);
      std::erase_if(played.ids, [&](const auto& id) { return id.second == this; });
      played.file = nullptr;
      played.trace.push_back("closed");
    }
    int descriptor() const override { return events_there; }
    dev_t number() const override { return 0xA7C; }
    int command(std::span<const std::byte> bytes) override {
      const auto command = Command::read(bytes);
      EXPECT_TRUE(command);
      return command ? played.run(*this, *command) : EINVAL;
    }

    PlayedKernel& played;
    const int events_there = ::eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE | EFD_CLOEXEC);
    const std::uint32_t first;
    std::deque<rdma_ucm_event_resp> events;
  };

  std::unique_ptr<KernelFile> open(int* error) override {
    *error = fails;
    return fails == 0 ? std::make_unique<File>(*this) : nullptr;
  }

  std::uint32_t make_id(File& its) {
    std::uint32_t id = its.first;
    while (ids.contains(id)) ++id;
    ids[id] = &its;
    return id;
  }
  int run(File& its, const Command& command) {
    const std::string id = command.has_id() ? " " + std::to_string(command.id()) : "";
    switch (command.number()) {
      case RDMA_USER_CM_CMD_GET_EVENT:
        if (before_event) before_event();
        return get_event(its, command);
      case RDMA_USER_CM_CMD_QUERY_ROUTE: {
        if (query_fails != 0) return query_fails;
        rdma_ucm_query_route_resp route{};
        route.node_guid = 7;
        route.src_addr.sin6_family = AF_INET;
        route.src_addr.sin6_port = htons(4711);
        respond(command.response(), route, command.room());
        return 0;
      }
      case RDMA_USER_CM_CMD_QUERY: return EINVAL;
      case RDMA_USER_CM_CMD_INIT_QP_ATTR: {
        ib_uverbs_qp_attr attributes{};
        attributes.qp_state = command.body<rdma_ucm_init_qp_attr>().qp_state;
        attributes.ah_attr.grh.sgid_index = 1;
        attributes.dest_qp_num = 0x66;
        respond(command.response(), attributes, command.room());
        return 0;
      }
      case RDMA_USER_CM_CMD_CREATE_ID:
        trace.push_back("CREATE_ID");
        respond(command.response(), rdma_ucm_create_id_resp{last_id = make_id(its)},
                command.room());
        return 0;
      case RDMA_USER_CM_CMD_DESTROY_ID:
        trace.push_back("DESTROY_ID" + id);
        ids.erase(command.id());
        if (in_destroy) std::exchange(in_destroy, nullptr)();
        respond(command.response(), rdma_ucm_destroy_id_resp{99}, command.room());
        return 0;
      case RDMA_USER_CM_CMD_BIND: {
        const auto body = command.body<rdma_ucm_bind>();
        sockaddr_in address{};
        std::memcpy(&address, &body.addr, sizeof address);
        trace.push_back("BIND" + id + " port " + std::to_string(ntohs(address.sin_port)));
        return bind_fails;
      }
      case RDMA_USER_CM_CMD_LISTEN:
        trace.push_back("LISTEN" + id + " backlog " +
                        std::to_string(command.body<rdma_ucm_listen>().backlog));
        return 0;
      case RDMA_USER_CM_CMD_SET_OPTION: {
        const auto body = command.body<rdma_ucm_set_option>();
        trace.push_back("SET_OPTION" + id + " " + std::to_string(body.optname) + "=" +
                        std::to_string(*reinterpret_cast<const std::uint8_t*>(body.optval)));
        return 0;
      }
      case RDMA_USER_CM_CMD_CONNECT: trace.push_back("CONNECT" + id); return 0;
      case RDMA_USER_CM_CMD_ACCEPT: trace.push_back("ACCEPT" + id); return 0;
      case RDMA_USER_CM_CMD_DISCONNECT: trace.push_back("DISCONNECT" + id); return 0;
      case RDMA_USER_CM_CMD_MIGRATE_ID:
        trace.push_back("MIGRATE_ID" + id);
        ids[command.id()] = &its;
        return 0;
      default: trace.push_back("command " + std::to_string(command.number()) + id); return 0;
    }
  }
  static int get_event(File& its, const Command& command) {
    if (its.events.empty()) return EAGAIN;
    respond(command.response(), its.events.front(), command.room());
    its.events.pop_front();
    std::uint64_t one = 0;
    EXPECT_EQ(::read(its.events_there, &one, sizeof one), ssize_t{sizeof one});
    return 0;
  }
  void raise(std::uint32_t id, std::uint64_t uid, std::uint32_t number) {
    rdma_ucm_event_resp event{};
    event.id = id;
    event.uid = uid;
    event.event = number;
    raise(event);
  }
  // A request brings the ID with it.
  void raise(const rdma_ucm_event_resp& event) {
    if (event.event == event::kConnectRequest) ids[event.id] = file;
    file->events.push_back(event);
    const std::uint64_t one = 1;
    EXPECT_EQ(::write(file->events_there, &one, sizeof one), ssize_t{sizeof one});
  }
  std::vector<std::string> take_trace() { return std::exchange(trace, {}); }

  File* file = nullptr;  // the latest
  std::map<std::uint32_t, File*> ids;
  std::uint32_t last_id = 0;  // that CREATE_ID has made
  std::function<void()> before_event;
  std::function<void()>
      in_destroy;  // what another thread does while the next DESTROY_ID is under way
  std::uint32_t opened = 0;
  int fails = 0, bind_fails = 0, query_fails = 0;
  std::vector<std::string> trace;
};

// The program's device has the GUID 70; the kernel's, wherever the program is, 7. The GID 1 of the kernel's is the
// program's 10. QP 0x55 is connected with QP 0x66.
struct PlayedDevices final : Devices {
  void rename_device(__be64* guid, std::uint32_t* index) override {
    EXPECT_EQ(*guid, 7u);
    *guid = 70;
    *index = 3;
  }
  void rename_path(__be64 guid, ib_uverbs_ah_attr* path) override {
    EXPECT_EQ(guid, 70u);
    path->grh.sgid_index = static_cast<std::uint8_t>(path->grh.sgid_index * 10);
  }
  Connections connections() override {
    ++looks;
    Connections all;
    if (peer != 0)
      all.emplace(std::pair<__be64, std::uint32_t>(70, 0x55), Ends{{{}, 0x55}, {{}, peer}});
    return all;
  }
  void tell_peer(__be64 guid, const Ends& ends, device::CmNews news) override {
    EXPECT_EQ(guid, 70u);
    EXPECT_TRUE(peer == 0 || ends.peer.qpn == peer);
    told.push_back(news);
  }

  std::uint32_t peer = 0x66;  // of QP 0x55; 0: there is no such QP
  int looks = 0;              // of connections()
  std::vector<device::CmNews> told;
};

// Talks to the relay as librdmacm does.
struct Program : ::testing::Test {
  PlayedKernel kernel;
  PlayedDevices devices;
  Relay relay{kernel, devices};
  int channel = -1;

  void SetUp() override {
    channel = relay.open(O_CLOEXEC | O_NONBLOCK);
    ASSERT_GE(channel, 0);
  }
  template <typename Body>
  int write(std::uint32_t number, const Body& body, std::size_t room = 0) {
    return relay.command(channel, own_command(number, body, room));
  }
  std::uint32_t create(std::uint64_t uid, std::uint16_t port_space = RDMA_PS_TCP,
                       std::uint8_t qp_type = IBV_QPT_RC) {
    rdma_ucm_create_id_resp answer{};
    rdma_ucm_create_id body{};
    body.uid = uid;
    body.response = reinterpret_cast<std::uint64_t>(&answer);
    body.ps = port_space;
    body.qp_type = qp_type;
    EXPECT_EQ(write(RDMA_USER_CM_CMD_CREATE_ID, body, sizeof answer), 0);
    return answer.id;
  }
  int bind(std::uint32_t id, std::uint16_t port) {
    rdma_ucm_bind body{};
    const sockaddr_in address{AF_INET, htons(port), {}, {}};
    std::memcpy(&body.addr, &address, sizeof address);
    body.addr_size = sizeof address;
    body.id = id;
    return write(RDMA_USER_CM_CMD_BIND, body);
  }
  int listen(std::uint32_t id, std::uint32_t backlog) {
    return write(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, backlog});
  }
  int connect(std::uint32_t id) {
    rdma_ucm_connect body{};
    body.id = id;
    body.conn_param.qp_num = 0x55;
    return write(RDMA_USER_CM_CMD_CONNECT, body);
  }
  int accept(std::uint32_t id, std::uint64_t uid, bool is_answer = true) {
    rdma_ucm_accept body{};
    body.id = id;
    body.uid = uid;
    body.conn_param.qp_num = 0x55;
    body.conn_param.valid = is_answer;
    return write(RDMA_USER_CM_CMD_ACCEPT, body);
  }
  int disconnect(std::uint32_t id) {
    return write(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{id});
  }
  // Gives the events_reported.
  std::uint32_t destroy(std::uint32_t id) {
    rdma_ucm_destroy_id_resp answer{};
    rdma_ucm_destroy_id body{};
    body.response = reinterpret_cast<std::uint64_t>(&answer);
    body.id = id;
    EXPECT_EQ(write(RDMA_USER_CM_CMD_DESTROY_ID, body, sizeof answer), 0);
    return answer.events_reported;
  }
  // Gives "uid: number of the event", or "" if there is none. *id gets the ID, *whole the event.
  std::string event(std::uint32_t* id = nullptr, rdma_ucm_event_resp* whole = nullptr) {
    rdma_ucm_event_resp answer{};
    rdma_ucm_get_event body{};
    body.response = reinterpret_cast<std::uint64_t>(&answer);
    const int error = write(RDMA_USER_CM_CMD_GET_EVENT, body, sizeof answer);
    if (error == EAGAIN) return "";
    EXPECT_EQ(error, 0);
    if (id != nullptr) *id = answer.id;
    if (whole != nullptr) *whole = answer;
    return std::to_string(answer.uid) + ": " + std::to_string(answer.event);
  }
  bool is_readable() const {
    pollfd there{channel, POLLIN, 0};
    return ::poll(&there, 1, 0) == 1;
  }
  rdma_ucm_query_route_resp route(std::uint32_t id) {
    rdma_ucm_query_route_resp answer{};
    rdma_ucm_query body{};
    body.response = reinterpret_cast<std::uint64_t>(&answer);
    body.id = id;
    EXPECT_EQ(write(RDMA_USER_CM_CMD_QUERY_ROUTE, body, sizeof answer), 0);
    return answer;
  }
  // A connected ID, of which the kernel's number is *kernels.
  std::uint32_t connected(std::uint64_t uid, std::uint32_t* kernels) {
    const std::uint32_t id = create(uid);
    *kernels = kernel.last_id;
    EXPECT_EQ(connect(id), 0);
    kernel.raise(*kernels, uid, event::kConnectResponse);
    EXPECT_EQ(event(), std::to_string(uid) + ": 5");
    EXPECT_EQ(accept(id, 0, false), 0);
    kernel.take_trace();
    return id;
  }
  int stop() { return relay.stop(steady_clock::now() + std::chrono::seconds(20)); }
  void move() {
    ASSERT_EQ(stop(), 0);
    relay.park();
    ASSERT_EQ(relay.resume(), 0);
  }
  void news(device::CmNews what) {
    relay.take_news(what, 70, 0x55);
    relay.tend();
  }
};

using Trace = std::vector<std::string>;

}  // namespace ferry::relay::testing
