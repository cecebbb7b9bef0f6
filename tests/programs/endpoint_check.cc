// endpoint_check: the endpoints of librdmacm (rdma_create_ep, rdma_get_request, rdma_reg_*,
// rdma_post_*), which no program of Debian uses, with every byte checked.
//
//   endpoint_check -s ADDRESS PORT COUNT    server: takes one connection; 0.0.0.0 and :: are any
//   address endpoint_check -c ADDRESS PORT COUNT    client
//
// COUNT times: the client sends where its data lies and where it wants an answer; the server reads
// the data, checks them, writes the answer and says so; the client checks the answer.
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace {

constexpr std::string_view kHello = "endpoint";
constexpr std::size_t kSize = 4096;

struct Message {  // both sides run on machines of one byte order
  std::uint64_t data = 0, answer = 0;
  std::uint32_t data_key = 0, answer_key = 0;
  std::uint32_t round = 0;
};

using Buffer = std::array<std::uint8_t, kSize>;

[[noreturn]] void give_up(const char* what, const char* why) {
  std::fprintf(stderr, "endpoint_check: %s: %s\n", what, why);
  std::exit(1);
}

// Of what returns 0 or a count, or -1 and errno.
int check(int result, const char* what) {
  if (result < 0) give_up(what, std::strerror(errno));
  return result;
}

template <typename T>
T* check(T* result, const char* what) {
  if (result == nullptr) give_up(what, std::strerror(errno));
  return result;
}

std::uint8_t expected(std::uint32_t round, std::size_t at, bool is_answer) {
  return static_cast<std::uint8_t>(round * 7 + at * 31 + at / 251 + (is_answer ? 101 : 0));
}

void fill(Buffer& buffer, std::uint32_t round, bool is_answer) {
  for (std::size_t i = 0; i < kSize; ++i) buffer[i] = expected(round, i, is_answer);
}

void verify(const Buffer& buffer, std::uint32_t round, bool is_answer) {
  for (std::size_t i = 0; i < kSize; ++i) {
    if (buffer[i] == expected(round, i, is_answer)) continue;
    std::fprintf(stderr, "endpoint_check: round %u: byte %zu of the %s is wrong\n", round, i,
                 is_answer ? "answer" : "data");
    std::exit(1);
  }
}

void expect_completion(int count, const ibv_wc& completion, const char* what) {
  check(count, what);
  if (completion.status != IBV_WC_SUCCESS) give_up(what, ibv_wc_status_str(completion.status));
}

void wait_for_send(rdma_cm_id* id, const char* what) {
  ibv_wc completion{};
  expect_completion(rdma_get_send_comp(id, &completion), completion, what);
}

void wait_for_receive(rdma_cm_id* id) {
  ibv_wc completion{};
  expect_completion(rdma_get_recv_comp(id, &completion), completion, "rdma_get_recv_comp");
  if (completion.byte_len != sizeof(Message)) give_up("a message", "has another size");
}

rdma_cm_id* make_endpoint(const char* address, const char* port, int flags) {
  rdma_addrinfo hints{}, *info = nullptr;
  hints.ai_flags = flags;
  hints.ai_port_space = RDMA_PS_TCP;
  hints.ai_qp_type = IBV_QPT_RC;
  if (const int error = rdma_getaddrinfo(address, port, &hints, &info))
    give_up("rdma_getaddrinfo", gai_strerror(error));
  ibv_qp_init_attr attributes{};
  attributes.cap.max_send_wr = attributes.cap.max_recv_wr = 4;
  attributes.cap.max_send_sge = attributes.cap.max_recv_sge = 1;
  attributes.cap.max_inline_data = sizeof(Message);
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = 1;
  rdma_cm_id* id = nullptr;
  check(rdma_create_ep(&id, info, nullptr, &attributes), "rdma_create_ep");
  rdma_freeaddrinfo(info);
  return id;
}

rdma_conn_param connection_parameters() {
  rdma_conn_param parameters{};
  parameters.private_data = kHello.data();
  parameters.private_data_len = kHello.size();
  parameters.responder_resources = parameters.initiator_depth = 1;
  parameters.retry_count = parameters.rnr_retry_count = 7;
  return parameters;
}

void say(rdma_cm_id* id, Message& message) {
  check(rdma_post_send(id, nullptr, &message, sizeof message, nullptr, IBV_SEND_INLINE),
        "rdma_post_send");
  wait_for_send(id, "SEND");
}

void serve(const char* address, const char* port, std::uint32_t count) {
  rdma_cm_id* listener = make_endpoint(address, port, RAI_PASSIVE);
  check(rdma_listen(listener, 0), "rdma_listen");
  rdma_cm_id* id = nullptr;
  check(rdma_get_request(listener, &id), "rdma_get_request");
  const rdma_conn_param& asked = id->event->param.conn;
  if (asked.private_data_len < kHello.size() ||
      std::memcmp(asked.private_data, kHello.data(), kHello.size()) != 0) {
    give_up("the private data of the request", "are not what the client sent");
  }
  Message request, reply;
  Buffer data{}, answer{};
  ibv_mr* request_mr = check(rdma_reg_msgs(id, &request, sizeof request), "rdma_reg_msgs");
  ibv_mr* data_mr = check(rdma_reg_msgs(id, data.data(), kSize), "rdma_reg_msgs");
  ibv_mr* answer_mr = check(rdma_reg_msgs(id, answer.data(), kSize), "rdma_reg_msgs");
  check(rdma_post_recv(id, nullptr, &request, sizeof request, request_mr), "rdma_post_recv");
  rdma_conn_param parameters = connection_parameters();
  check(rdma_accept(id, &parameters), "rdma_accept");
  for (std::uint32_t round = 0; round < count; ++round) {
    wait_for_receive(id);
    if (request.round != round) give_up("a request", "is of another round");
    check(
        rdma_post_read(id, nullptr, data.data(), kSize, data_mr, 0, request.data, request.data_key),
        "rdma_post_read");
    wait_for_send(id, "RDMA READ");
    verify(data, round, false);
    fill(answer, round, true);
    check(rdma_post_write(id, nullptr, answer.data(), kSize, answer_mr, 0, request.answer,
                          request.answer_key),
          "rdma_post_write");
    wait_for_send(id, "RDMA WRITE");
    if (round + 1 < count)
      check(rdma_post_recv(id, nullptr, &request, sizeof request, request_mr), "rdma_post_recv");
    reply.round = round;
    say(id, reply);
  }
  check(rdma_disconnect(id), "rdma_disconnect");
  for (ibv_mr* mr : {request_mr, data_mr, answer_mr}) check(rdma_dereg_mr(mr), "rdma_dereg_mr");
  rdma_destroy_ep(id);
  rdma_destroy_ep(listener);
}

void ask(const char* address, const char* port, std::uint32_t count) {
  rdma_cm_id* id = make_endpoint(address, port, 0);
  Message request, reply;
  Buffer data{}, answer{};
  ibv_mr* reply_mr = check(rdma_reg_msgs(id, &reply, sizeof reply), "rdma_reg_msgs");
  ibv_mr* data_mr = check(rdma_reg_read(id, data.data(), kSize), "rdma_reg_read");
  ibv_mr* answer_mr = check(rdma_reg_write(id, answer.data(), kSize), "rdma_reg_write");
  rdma_conn_param parameters = connection_parameters();
  check(rdma_connect(id, &parameters), "rdma_connect");
  for (std::uint32_t round = 0; round < count; ++round) {
    check(rdma_post_recv(id, nullptr, &reply, sizeof reply, reply_mr), "rdma_post_recv");
    fill(data, round, false);
    request = {reinterpret_cast<std::uint64_t>(data.data()),
               reinterpret_cast<std::uint64_t>(answer.data()), data_mr->rkey, answer_mr->rkey,
               round};
    say(id, request);
    wait_for_receive(id);
    if (reply.round != round) give_up("a reply", "is of another round");
    verify(answer, round, true);
  }
  check(rdma_disconnect(id), "rdma_disconnect");
  for (ibv_mr* mr : {reply_mr, data_mr, answer_mr}) check(rdma_dereg_mr(mr), "rdma_dereg_mr");
  rdma_destroy_ep(id);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view side = argc == 5 ? argv[1] : "";
  std::uint32_t count = 0;
  if (side == "-s" || side == "-c") {
    const std::string_view text = argv[4];
    if (std::from_chars(text.begin(), text.end(), count).ptr != text.end()) count = 0;
  }
  if (count == 0) {
    std::fprintf(stderr, "usage: endpoint_check -s|-c ADDRESS PORT COUNT\n");
    return 2;
  }
  (side == "-s" ? serve : ask)(argv[2], argv[3], count);
  std::printf("endpoint_check: %u rounds\n", count);
  return 0;
}
