#pragma once

#include <endian.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_user_cm.h>
#include <sys/random.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "rdmacm/service.h"

// Two processes of one host, played by two services, which talk by the commands of rdma_user_cm.h
// as the stock librdmacm does. The device is the loopback interface.
namespace ferry::rdmacm {

inline const port::Address kLoopback = port::Address::from_ipv4(0x7F000001);
inline constexpr std::uint64_t kGuid = 0x1122334455667788;

struct FakeDevices final : Devices {
  std::vector<Listed> list() override { return {{{"f0", "lo", kGuid}, {kLoopback}}}; }
  std::uint8_t gid_index(const Device&, const port::Address&) override { return 3; }
  std::uint8_t active_mtu(const Device&) override { return IBV_MTU_2048; }
  bool find_qp(const Device&, std::uint32_t qpn, QpPlace* out) override {
    if (moved_qpn == 0 || qpn != moved_qpn) return false;
    *out = {moved_qpn + 0x1000, moved_peer};
    return true;
  }
  void peer_was_told(const Device&, std::uint32_t qpn, const Retries& retries) override {
    std::lock_guard lock(told_mutex);
    told[qpn] = retries;
  }
  int route(const port::Address& from, const port::Address& to, std::uint32_t,
            port::Address* source) override {
    if (to != kLoopback && !to.is_ipv4()) return ENETUNREACH;
    *source = from == any_address(AF_INET) ? kLoopback : from;
    return 0;
  }
  std::uint64_t random() override {
    std::uint64_t value;
    EXPECT_EQ(getrandom(&value, sizeof value, 0), static_cast<ssize_t>(sizeof value));
    return value;
  }
  bool next_hop_is_known(const port::Address&, bool ask) override {
    if (ask) ++asked;
    return answers_left == 0 || --answers_left == 0;
  }
  Retries what_was_told(std::uint32_t qpn) {
    std::lock_guard lock(told_mutex);
    return told[qpn];
  }
  // By QPN.
  std::mutex told_mutex;
  std::map<std::uint32_t, Retries> told;
  std::uint32_t moved_qpn = 0;
  port::Address moved_peer;
  // Looks until the next hop is known; and how often the network was asked.
  std::atomic<unsigned> answers_left{0}, asked{0};
};

inline rdma_ucm_conn_param parameters(std::uint32_t qpn, std::size_t private_data = 0) {
  rdma_ucm_conn_param p{};
  p.qp_num = qpn;
  p.responder_resources = 4;
  p.initiator_depth = 2;
  p.retry_count = 5;
  p.rnr_retry_count = 6;
  p.valid = 1;
  p.private_data_len = static_cast<std::uint8_t>(private_data);
  std::memset(p.private_data, 0x5A, private_data);
  return p;
}

template <typename Storage>
void set_ipv4(Storage* out, const port::Address& ip, std::uint16_t port) {
  Address address;
  address.family = AF_INET;
  address.ip = ip;
  address.port = port;
  address.store(out);
}

// A program: a service and a channel.
class Program {
 public:
  Program() : service(std::make_unique<Service>(devices)), channel(service->open(O_CLOEXEC)) {
    EXPECT_GE(channel, 0);
  }
  ~Program() {
    service->close(channel);
    service.reset();
    ::close(channel);
  }

  // The errno value.
  template <typename C>
  int command(std::uint32_t number, const C& body, std::size_t out = 0, int on = -1) {
    std::vector<std::byte> bytes(sizeof(rdma_ucm_cmd_hdr) + sizeof body);
    const rdma_ucm_cmd_hdr header{number, sizeof body, static_cast<std::uint16_t>(out)};
    std::memcpy(bytes.data(), &header, sizeof header);
    std::memcpy(bytes.data() + sizeof header, &body, sizeof body);
    return service->command(on >= 0 ? on : channel, bytes);
  }
  template <typename T>
  static std::uint64_t address_of(T& value) {
    return reinterpret_cast<std::uint64_t>(&value);
  }

  std::uint32_t create(std::uint16_t space = RDMA_PS_TCP, std::uint64_t uid = 77) {
    rdma_ucm_create_id_resp answer{};
    rdma_ucm_create_id c{uid, address_of(answer), space, IBV_QPT_RC, {}};
    EXPECT_EQ(command(RDMA_USER_CM_CMD_CREATE_ID, c, sizeof answer), 0);
    return answer.id;
  }
  int destroy(std::uint32_t id, std::uint32_t* reported = nullptr) {
    rdma_ucm_destroy_id_resp answer{};
    const int error = command(RDMA_USER_CM_CMD_DESTROY_ID,
                              rdma_ucm_destroy_id{address_of(answer), id, 0}, sizeof answer);
    if (reported != nullptr) *reported = answer.events_reported;
    return error;
  }
  int bind(std::uint32_t id, std::uint16_t port, const port::Address& ip = any_address(AF_INET)) {
    rdma_ucm_bind c{};
    c.id = id;
    c.addr_size = sizeof(sockaddr_in);
    set_ipv4(&c.addr, ip, port);
    return command(RDMA_USER_CM_CMD_BIND, c);
  }
  int listen(std::uint32_t id, std::uint32_t backlog = 0) {
    return command(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, backlog});
  }
  int resolve(std::uint32_t id, std::uint16_t port, const port::Address& ip = kLoopback,
              std::uint32_t timeout_ms = 2000) {
    rdma_ucm_resolve_addr c{};
    c.id = id;
    c.timeout_ms = timeout_ms;
    c.dst_size = sizeof(sockaddr_in);
    set_ipv4(&c.dst_addr, ip, port);
    return command(RDMA_USER_CM_CMD_RESOLVE_ADDR, c);
  }
  int connect(std::uint32_t id, const rdma_ucm_conn_param& p) {
    rdma_ucm_connect c{};
    c.conn_param = p;
    c.id = id;
    return command(RDMA_USER_CM_CMD_CONNECT, c);
  }
  int accept(std::uint32_t id, const rdma_ucm_conn_param& p, std::uint64_t uid = 88) {
    rdma_ucm_accept c{};
    c.uid = uid;
    c.conn_param = p;
    c.id = id;
    return command(RDMA_USER_CM_CMD_ACCEPT, c);
  }
  int reject(std::uint32_t id, std::size_t private_data = 0) {
    rdma_ucm_reject c{};
    c.id = id;
    c.private_data_len = static_cast<std::uint8_t>(private_data);
    return command(RDMA_USER_CM_CMD_REJECT, c);
  }
  int disconnect(std::uint32_t id) {
    return command(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{id});
  }
  int option(std::uint32_t id, std::uint32_t name, int value, std::uint32_t size = sizeof(int)) {
    return command(RDMA_USER_CM_CMD_SET_OPTION,
                   rdma_ucm_set_option{address_of(value), id, RDMA_OPTION_ID, name, size});
  }

  // The next event; fails the test when none comes.
  rdma_ucm_event_resp event(int on = -1) {
    const int descriptor = on >= 0 ? on : channel;
    rdma_ucm_event_resp answer{};
    for (;;) {
      pollfd p{descriptor, POLLIN, 0};
      if (::poll(&p, 1, 20000) != 1) {
        ADD_FAILURE() << "no event";
        return answer;
      }
      char byte;
      EXPECT_EQ(::read(descriptor, &byte, 1), 1);
      struct {
        rdma_ucm_cmd_hdr header{RDMA_USER_CM_CMD_GET_EVENT, sizeof(rdma_ucm_get_event),
                                sizeof(rdma_ucm_event_resp)};
        rdma_ucm_get_event body{};
      } c;
      c.body.response = address_of(answer);
      const int error = service->take_event(descriptor, std::as_bytes(std::span(&c, 1)));
      if (error == 0) return answer;
      EXPECT_EQ(error, EAGAIN);
    }
  }
  rdma_ucm_event_resp expect(std::uint32_t number, int status = 0) {
    const auto e = event();
    EXPECT_EQ(e.event, number);
    EXPECT_EQ(static_cast<int>(e.status), status);
    return e;
  }
  bool quiet() {
    pollfd p{channel, POLLIN, 0};
    return ::poll(&p, 1, 0) == 0;
  }
  // An ID that may connect.
  std::uint32_t routed(std::uint16_t port, std::uint16_t space = RDMA_PS_TCP) {
    const std::uint32_t id = create(space);
    EXPECT_EQ(resolve(id, port), 0);
    expect(event::kAddressResolved);
    EXPECT_EQ(command(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, 0}), 0);
    expect(event::kRouteResolved);
    return id;
  }
  std::uint32_t listener(std::uint16_t port, std::uint16_t space = RDMA_PS_TCP,
                         std::uint32_t backlog = 0) {
    const std::uint32_t id = create(space, 66);
    EXPECT_EQ(bind(id, port), 0);
    EXPECT_EQ(listen(id, backlog), 0);
    return id;
  }
  ib_uverbs_qp_attr attributes(std::uint32_t id, std::uint32_t state, int expected = 0) {
    ib_uverbs_qp_attr a{};
    EXPECT_EQ(command(RDMA_USER_CM_CMD_INIT_QP_ATTR,
                      rdma_ucm_init_qp_attr{address_of(a), id, state}, sizeof a),
              expected);
    return a;
  }

  FakeDevices devices;
  std::unique_ptr<Service> service;
  int channel;
};

struct TwoPrograms : testing::Test {
  Program a, b;  // b listens
  std::uint32_t id = 0, listener = 0, child = 0;

  void request(std::uint16_t port = 4000) {
    listener = b.listener(port);
    id = a.routed(port);
    ASSERT_EQ(a.connect(id, parameters(0x111, 8)), 0);
    child = b.expect(event::kConnectRequest).id;
  }
  void establish() {
    request();
    ASSERT_EQ(b.accept(child, parameters(0x222, 8)), 0);
    a.expect(event::kConnectResponse);
    ASSERT_EQ(a.accept(id, rdma_ucm_conn_param{}), 0);
    b.expect(event::kEstablished);
  }
};

}  // namespace ferry::rdmacm
