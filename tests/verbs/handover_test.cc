// A server upgraded in place: three generations of a server process hand a live context with two RC
// connections on, by ibv_dump_context and ibv_restore_object, while the client keeps sending,
// receiving and reading. Both sides number their messages per QP and check every one; RDMA READs
// check that keys survive. Run under LD_PRELOAD=libferry.so; exits with 0 when nothing was lost,
// doubled or changed.
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "ferry/verbs_ext.h"

namespace {

constexpr int kQps = 2;
constexpr std::uint32_t kMessages = 6000;  // per QP and direction
constexpr std::uint32_t kHandOverAt[] = {kMessages / 3,
                                         2 * kMessages / 3};  // messages received on QP 0
constexpr int kGenerations = 3;
constexpr std::uint32_t kDepth = 64;       // receives and sends in flight, per QP
constexpr std::uint32_t kSlot = 2048;      // bytes of a message's buffer
constexpr std::uint32_t kPattern = 65536;  // bytes that the client reads
constexpr std::uint32_t kReadEvery = 50;
constexpr std::uint64_t kIova = 0x10000;  // SGEs count from here, wherever the memory is mapped

#define CHECK(condition)                                                                 \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s: line %d: %s does not hold (errno %d)\n", role, __LINE__, \
                   #condition, errno);                                                   \
      std::exit(1);                                                                      \
    }                                                                                    \
  } while (0)

const char* role = "driver";

struct Message {
  std::uint32_t number, qp, length, check;
};

// Everything that a server needs to know, in the memory that it hands on.
struct Shared {
  std::uint32_t sent[kQps], send_completions[kQps], received[kQps];
  std::uint32_t qp_number[kQps];
  std::uint32_t lkey;
  std::uint32_t reads;
  bool read_pending;
  std::uint8_t pattern[kPattern];
  std::uint8_t read_target[kPattern];
  std::uint8_t receive[kQps][kDepth][kSlot], send[kQps][kDepth][kSlot];
};

struct Connection {
  std::uint32_t number, psn, rkey;
  std::uint64_t pattern;
  ibv_gid gid;
};

std::uint8_t pattern_byte(std::uint32_t i) {
  return static_cast<std::uint8_t>(i * 7 + (i >> 8));
}
std::uint64_t address_in(const Shared* shared, const void* p) {
  return kIova + static_cast<std::uint64_t>(static_cast<const char*>(p) -
                                            reinterpret_cast<const char*>(shared));
}

struct Side {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_mr* mr = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp[kQps] = {};
  Shared* shared = nullptr;
  int memory = -1;
  bool reads = false;
  Connection peer[kQps] = {};

  void map(int file) {
    memory = file;
    void* p = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(p != MAP_FAILED);
    shared = static_cast<Shared*>(p);
  }
  void open() {
    ibv_device** list = ibv_get_device_list(nullptr);
    CHECK(list && list[0]);
    context = ibv_open_device(list[0]);
    CHECK(context);
    ibv_free_device_list(list);
  }
  void register_memory() {
    mr = ibv_reg_mr_iova2(pd, shared, sizeof *shared, kIova,
                          IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
    CHECK(mr);
  }
  void create() {
    const int file = ::memfd_create("handover", 0);
    CHECK(file >= 0 && ::ftruncate(file, sizeof(Shared)) == 0);
    map(file);
    for (std::uint32_t i = 0; i < kPattern; ++i) shared->pattern[i] = pattern_byte(i);
    open();
    CHECK(pd = ibv_alloc_pd(context));
    register_memory();
    shared->lkey = mr->lkey;
    CHECK(cq = ibv_create_cq(context, 4 * kQps * kDepth, nullptr, nullptr, 0));
    for (int i = 0; i < kQps; ++i) {
      ibv_qp_init_attr attributes{};
      attributes.send_cq = attributes.recv_cq = cq;
      attributes.cap = {kDepth + 2, kDepth, 1, 1, 0};
      attributes.qp_type = IBV_QPT_RC;
      attributes.sq_sig_all = 1;
      CHECK(qp[i] = ibv_create_qp(pd, &attributes));
      shared->qp_number[i] = qp[i]->qp_num;
      ibv_qp_attr init{};
      init.qp_state = IBV_QPS_INIT;
      init.port_num = 1;
      init.qp_access_flags = IBV_ACCESS_REMOTE_READ;
      CHECK(ibv_modify_qp(qp[i], &init,
                          IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) ==
            0);
      for (std::uint32_t k = 0; k < kDepth; ++k) post_receive(i, k);
    }
  }
  void connect(int channel) {
    Connection own[kQps] = {};
    for (int i = 0; i < kQps; ++i) {
      own[i] = {qp[i]->qp_num,
                1000u + static_cast<std::uint32_t>(::getpid()) % 1000 + i,
                mr->rkey,
                address_in(shared, shared->pattern),
                {}};
      CHECK(ibv_query_gid(context, 1, 0, &own[i].gid) == 0);
    }
    CHECK(::write(channel, own, sizeof own) == sizeof own);
    CHECK(::recv(channel, peer, sizeof peer, MSG_WAITALL) == sizeof peer);
    for (int i = 0; i < kQps; ++i) {
      ibv_qp_attr rtr{};
      rtr.qp_state = IBV_QPS_RTR;
      rtr.path_mtu = IBV_MTU_1024;
      rtr.dest_qp_num = peer[i].number;
      rtr.rq_psn = peer[i].psn;
      rtr.max_dest_rd_atomic = 4;
      rtr.min_rnr_timer = 6;
      rtr.ah_attr.is_global = 1;
      rtr.ah_attr.grh.dgid = peer[i].gid;
      rtr.ah_attr.grh.hop_limit = 64;
      rtr.ah_attr.port_num = 1;
      CHECK(ibv_modify_qp(qp[i], &rtr,
                          IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                              IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) ==
            0);
      ibv_qp_attr rts{};
      rts.qp_state = IBV_QPS_RTS;
      rts.sq_psn = own[i].psn;
      rts.timeout = 18;  // 1 s: machines are busy
      rts.retry_cnt = 7;
      rts.rnr_retry = 7;
      rts.max_rd_atomic = 4;
      CHECK(ibv_modify_qp(qp[i], &rts,
                          IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                              IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC) == 0);
    }
    // Nobody sends before both are ready to receive.
    char ready = 1;
    CHECK(::write(channel, &ready, 1) == 1 && ::read(channel, &ready, 1) == 1);
  }

  void post_receive(int i, std::uint32_t slot) {
    ibv_sge sge{address_in(shared, shared->receive[i][slot]), kSlot, shared->lkey};
    ibv_recv_wr wr{}, *bad;
    wr.wr_id = slot;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    CHECK(ibv_post_recv(qp[i], &wr, &bad) == 0);
  }
  void post_send(int i) {
    const std::uint32_t number = shared->sent[i]++;
    std::uint8_t* buffer = shared->send[i][number % kDepth];
    const std::uint32_t length = sizeof(Message) + number * 37 % (kSlot - sizeof(Message));
    const Message message{number, static_cast<std::uint32_t>(i), length, number * 2654435761u};
    std::memcpy(buffer, &message, sizeof message);
    std::memset(buffer + sizeof message, static_cast<int>(number & 0xff), length - sizeof message);
    ibv_sge sge{address_in(shared, buffer), length, shared->lkey};
    ibv_send_wr wr{}, *bad;
    wr.wr_id = number;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_SEND;
    CHECK(ibv_post_send(qp[i], &wr, &bad) == 0);
  }
  void post_read() {
    std::memset(shared->read_target, 0xee, kPattern);
    ibv_sge sge{address_in(shared, shared->read_target), kPattern, shared->lkey};
    ibv_send_wr wr{}, *bad;
    wr.wr_id = ~0ull;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = IBV_WR_RDMA_READ;
    wr.wr.rdma.remote_addr = peer[0].pattern;
    wr.wr.rdma.rkey = peer[0].rkey;
    CHECK(ibv_post_send(qp[0], &wr, &bad) == 0);
    shared->read_pending = true;
  }
  void handle(const ibv_wc& wc) {
    if (wc.status != IBV_WC_SUCCESS) {
      std::fprintf(stderr, "%s: completion %s, opcode %d, wr_id %lu\n", role,
                   ibv_wc_status_str(wc.status), wc.opcode, static_cast<unsigned long>(wc.wr_id));
      std::exit(1);
    }
    const int i = wc.qp_num == shared->qp_number[0] ? 0 : 1;
    CHECK(wc.qp_num == shared->qp_number[i]);
    if (wc.opcode == IBV_WC_RDMA_READ) {
      for (std::uint32_t k = 0; k < kPattern; ++k) CHECK(shared->read_target[k] == pattern_byte(k));
      shared->read_pending = false;
      ++shared->reads;
    } else if (wc.opcode == IBV_WC_SEND) {
      CHECK(wc.wr_id == shared->send_completions[i]);
      ++shared->send_completions[i];
    } else {
      CHECK(wc.opcode == IBV_WC_RECV);
      const std::uint32_t expected = shared->received[i]++;
      const std::uint32_t slot = expected % kDepth;
      CHECK(wc.wr_id == slot);
      Message message;
      std::memcpy(&message, shared->receive[i][slot], sizeof message);
      CHECK(message.number == expected);
      CHECK(message.qp == static_cast<std::uint32_t>(i) && message.length == wc.byte_len);
      CHECK(message.check == expected * 2654435761u);
      for (std::uint32_t k = sizeof message; k < message.length; ++k) {
        CHECK(shared->receive[i][slot][k] == (expected & 0xff));
      }
      post_receive(i, slot);
    }
  }
  bool finished() const {
    for (int i = 0; i < kQps; ++i) {
      if (shared->received[i] < kMessages || shared->send_completions[i] < kMessages) return false;
    }
    return !shared->read_pending;
  }
  void work() {
    for (int i = 0; i < kQps; ++i) {
      while (shared->sent[i] < kMessages &&
             shared->sent[i] - shared->send_completions[i] < kDepth) {
        post_send(i);
        if (reads && i == 0 && shared->sent[0] % kReadEvery == 0 && !shared->read_pending)
          post_read();
      }
    }
    ibv_wc wc[16];
    const int n = ibv_poll_cq(cq, 16, wc);
    CHECK(n >= 0);
    for (int k = 0; k < n; ++k) handle(wc[k]);
  }
};

// --- handing over --------------------------------------------------------------------------------

void send_all(int channel, const void* data, std::size_t size) {
  const char* p = static_cast<const char*>(data);
  while (size) {
    const ssize_t n = ::write(channel, p, size);
    CHECK(n > 0);
    p += n;
    size -= static_cast<std::size_t>(n);
  }
}

void send_descriptor(int channel, int descriptor, std::uint64_t number) {
  iovec part{&number, sizeof number};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  cmsghdr* c = CMSG_FIRSTHDR(&header);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(c), &descriptor, sizeof(int));
  CHECK(::sendmsg(channel, &header, 0) == sizeof number);
}

int receive_descriptor(int channel, std::uint64_t* number) {
  iovec part{number, sizeof *number};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  CHECK(::recvmsg(channel, &header, MSG_WAITALL) == sizeof *number);
  int descriptor = -1;
  CHECK(CMSG_FIRSTHDR(&header) != nullptr);
  std::memcpy(&descriptor, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(int));
  return descriptor;
}

template <typename F>
F* symbol(const char* name) {
  auto* found = reinterpret_cast<F*>(::dlsym(RTLD_DEFAULT, name));
  CHECK(found);
  return found;
}

void hand_on(Side& side, int channel) {
  const auto dump_context = symbol<decltype(ibv_dump_context)>("ibv_dump_context");
  int count = 0;
  const int size = dump_context(side.context, &count, nullptr, 0);
  CHECK(size > 0);
  std::vector<char> dump(static_cast<std::size_t>(size));
  CHECK(dump_context(side.context, &count, dump.data(), dump.size()) == size);
  CHECK(count == 1 + 1 + 1 + 1 + kQps);
  send_descriptor(channel, side.memory, dump.size());
  send_all(channel, dump.data(), dump.size());
  std::printf("%s: handed on %d records, %d bytes, at message %u; in flight to the client: %u\n",
              role, count, size, side.shared->received[0],
              side.shared->sent[0] - side.shared->send_completions[0]);
  std::fflush(stdout);
  char resumed;
  CHECK(::read(channel, &resumed, 1) == 1);
}

void take_over(Side& side, int channel) {
  const auto restore = symbol<decltype(ibv_restore_object)>("ibv_restore_object");
  std::uint64_t size = 0;
  side.map(receive_descriptor(channel, &size));
  std::vector<char> dump(size);
  CHECK(::recv(channel, dump.data(), dump.size(), MSG_WAITALL) == static_cast<ssize_t>(size));
  side.open();
  struct Item {
    ibv_dump_record header;
    char* record;
    std::size_t length;
    void* object;
  };
  std::vector<Item> items;
  for (std::size_t at = 0; at < dump.size();) {
    Item item{};
    std::memcpy(&item.header, &dump[at], sizeof item.header);
    item.record = &dump[at];
    item.length = sizeof item.header + item.header.length;
    at += item.length;
    items.push_back(item);
  }
  int qps = 0;
  for (Item& item : items) {
    if (item.header.type == IBV_OBJECT_MR) {
      // The memory lies elsewhere now: registered here, with the old keys.
      side.register_memory();
      const std::uint32_t own = side.mr->lkey;
      item.object = side.mr;
      CHECK(restore(side.context, &item.object, IBV_OBJECT_MR, IBV_RESTORE_MR_KEYS, item.record,
                    item.length) == 0);
      CHECK(side.mr->lkey == side.shared->lkey && side.mr->lkey != own);
      continue;
    }
    CHECK(restore(side.context, &item.object, item.header.type, IBV_RESTORE_CREATE, item.record,
                  item.length) == 0);
    if (item.header.type == IBV_OBJECT_PD) side.pd = static_cast<ibv_pd*>(item.object);
    if (item.header.type == IBV_OBJECT_CQ) side.cq = static_cast<ibv_cq*>(item.object);
    if (item.header.type == IBV_OBJECT_QP) {
      side.qp[qps] = static_cast<ibv_qp*>(item.object);
      CHECK(side.qp[qps]->qp_num == side.shared->qp_number[qps]);
      CHECK(side.qp[qps]->send_cq == side.cq && side.qp[qps]->pd == side.pd);
      ++qps;
    }
  }
  CHECK(qps == kQps && side.pd && side.cq && side.mr);
  for (Item& item : items) {
    if (item.header.type != IBV_OBJECT_CQ && item.header.type != IBV_OBJECT_QP) continue;
    CHECK(restore(side.context, &item.object, item.header.type, IBV_RESTORE_REFILL, item.record,
                  item.length) == 0);
  }
  for (ibv_qp* qp : side.qp) CHECK(qp->state == IBV_QPS_RTS);
  Item& context = items.front();
  CHECK(context.header.type == IBV_OBJECT_CONTEXT);
  CHECK(restore(side.context, &context.object, IBV_OBJECT_CONTEXT, IBV_RESTORE_REFILL,
                context.record, context.length) == 0);
  CHECK(::write(channel, "r", 1) == 1);
}

// Descriptors: client 3; server 3 to the client or the predecessor, 4 to the successor.
int client() {
  role = "client";
  Side side;
  side.reads = true;
  side.create();
  side.connect(3);
  while (!side.finished()) side.work();
  std::printf("client: %u and %u messages received in order, %u READs\n", side.shared->received[0],
              side.shared->received[1], side.shared->reads);
  CHECK(side.shared->reads > kMessages / kReadEvery / 4);
  CHECK(::write(3, "e", 1) == 1);
  return 0;
}

int server(int generation) {
  static const std::string name = "server " + std::to_string(generation);
  role = name.c_str();
  Side side;
  if (generation == 0) {
    side.create();
    side.connect(3);
  } else {
    take_over(side, 3);
  }
  const bool last = generation == kGenerations - 1;
  while (last ? !side.finished() : side.shared->received[0] < kHandOverAt[generation]) side.work();
  if (!last) {
    hand_on(side, 4);
    return 0;
  }
  std::printf("%s: %u and %u messages received in order\n", role, side.shared->received[0],
              side.shared->received[1]);
  // The client may still need an acknowledgement.
  for (int i = 0; i < 200; ++i) {
    ibv_wc wc;
    CHECK(ibv_poll_cq(side.cq, 1, &wc) == 0);
    ::usleep(1000);
  }
  return 0;
}

pid_t start(const char* what, const char* argument, int three, int four) {
  const pid_t child = ::fork();
  CHECK(child >= 0);
  if (child) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::dup2(three, 203) < 0 || (four >= 0 && ::dup2(four, 204) < 0)) ::_exit(1);
  ::dup2(203, 3);
  if (four >= 0) ::dup2(204, 4);
  for (int d = four >= 0 ? 5 : 4; d < 256; ++d) ::close(d);
  ::execl("/proc/self/exe", "handover", what, argument, nullptr);
  ::_exit(127);
}

}  // namespace

int main(int count, char** arguments) {
  if (count > 1 && !std::strcmp(arguments[1], "client")) return client();
  if (count > 2 && !std::strcmp(arguments[1], "server")) return server(std::atoi(arguments[2]));
  int link[kGenerations][2];
  for (auto& pair : link) CHECK(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  std::vector<pid_t> children;
  children.push_back(start("client", "", link[0][0], -1));
  for (int i = 0; i < kGenerations; ++i) {
    const std::string number = std::to_string(i);
    children.push_back(
        start("server", number.c_str(), link[i][1], i + 1 < kGenerations ? link[i + 1][0] : -1));
  }
  int failures = 0;
  for (std::size_t left = children.size(); left; --left) {
    int status = 0;
    const pid_t child = ::wait(&status);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      std::fprintf(stderr, "process %d ended with status 0x%x\n", child, status);
      ++failures;
      for (pid_t other : children) {
        if (other != child) ::kill(other, SIGKILL);
      }
    }
  }
  return failures != 0;
}
