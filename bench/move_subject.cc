// The program that scripts/bench moves: N connected RC queue pairs and some memory, with a trickle
// of messages that shows that every queue pair still works; or, with no queue pairs, a plain
// process that never touches RDMA but has as many threads, descriptors and bytes of memory, for the
// comparison.
//
//   move_subject --listen PORT                        the peer; takes one client and ends with it
//   move_subject HOST PORT [--qps N] [--memory MIB] [--threads T] [--descriptors D]
//
// The client raises its threads and descriptors to T and D (those of the process, as /proc shows
// them). It prints one JSON object when all is set up, and one at the end (SIGTERM, SIGINT):
//   {"qps":8,"threads":2,"descriptors":9,"memory_bytes":67108864}
//   {"sent":900,"failed":0}                           `failed`: sends that did not complete with
//   success
// Exit code: 0 if nothing failed.
#include <infiniband/verbs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

constexpr std::uint32_t kMessage = 64;  // bytes
constexpr int kReceivesPerQp = 16;
constexpr int kPauseMs = 5;  // between two messages of the trickle
constexpr std::uint8_t kPort = 1;
constexpr std::uint64_t kMaxQps = 4096;

volatile std::sig_atomic_t stop_requested = 0;

std::runtime_error failure(const std::string& what, int error = errno) {
  return std::runtime_error(what + ": " + std::strerror(error));
}

struct Options {
  bool listen = false;
  std::string host;
  std::string port;
  std::uint32_t qps = 1;
  std::size_t memory = std::size_t{16} << 20;  // bytes
  std::size_t threads = 0, descriptors = 0;
};

// A TCP connection for the set-up, kept open as real RDMA programs do.
class Connection {
 public:
  explicit Connection(int descriptor) : descriptor_(descriptor) {}
  ~Connection() { close(descriptor_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  template <typename T>
  void put(const T& value) {
    if (send(descriptor_, &value, sizeof value, MSG_NOSIGNAL) != ssize_t{sizeof value}) {
      throw failure("cannot send to the peer");
    }
  }
  template <typename T>
  T take() {
    T value;
    const ssize_t got = recv(descriptor_, &value, sizeof value, MSG_WAITALL);
    if (got != ssize_t{sizeof value}) throw std::runtime_error("the peer closed the connection");
    return value;
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

int accept_one(const std::string& port) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int one = 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(std::stoul(port)));
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      listen(listener, 1) != 0) {
    throw failure("cannot listen on port " + port);
  }
  const int connection = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (connection < 0) throw failure("no client on port " + port);
  close(listener);
  return connection;
}

int connect_to(const std::string& host, const std::string& port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    throw std::runtime_error(host + ": " + gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  for (int attempt = 0; attempt < 100; ++attempt) {
    const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(connection, found->ai_addr, found->ai_addrlen) == 0) return connection;
    close(connection);
    poll(nullptr, 0, 100);
  }
  throw failure("cannot connect to " + host + ":" + port);
}

class Memory {
 public:
  explicit Memory(std::size_t size)
      : size_(size),
        data_(static_cast<char*>(
            mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    if (data_ == MAP_FAILED) throw failure("cannot get " + std::to_string(size) + " bytes");
    // Every page holds something else than zeros, so that it is part of an image.
    for (std::size_t i = 0; i < size_; i += 64) data_[i] = static_cast<char>(i / 64 + 1);
  }
  ~Memory() { munmap(data_, size_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  char* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  std::size_t size_;
  char* data_;
};

struct Address {
  std::uint32_t qpn = 0;
  ibv_gid gid{};
};

// One device with `count` connected RC queue pairs on one CQ.
class Rdma {
 public:
  Rdma(std::uint32_t count, const Memory& memory, Connection& peer) {
    int devices = 0;
    ibv_device** list = ibv_get_device_list(&devices);
    if (list == nullptr || devices == 0) {
      throw std::runtime_error("no RDMA device; start it with: ferry run -- move_subject ...");
    }
    context_ = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    if (context_ == nullptr) throw failure("cannot open the RDMA device");
    pd_ = ibv_alloc_pd(context_);
    mr_ = ibv_reg_mr(pd_, memory.data(), memory.size(), IBV_ACCESS_LOCAL_WRITE);
    const auto cqes = static_cast<int>(count) * (kReceivesPerQp + 2);
    cq_ = ibv_create_cq(context_, cqes, nullptr, nullptr, 0);
    if (pd_ == nullptr || mr_ == nullptr || cq_ == nullptr) throw failure("cannot set up RDMA");
    gid_index_ = usable_gid();
    for (std::uint32_t i = 0; i < count; ++i) qps_.push_back(connect(peer));
    // Nobody sends before both sides can receive on every QP.
    peer.put('r');
    peer.take<char>();
  }
  ~Rdma() {
    for (ibv_qp* qp : qps_) ibv_destroy_qp(qp);
    if (cq_ != nullptr) ibv_destroy_cq(cq_);
    if (mr_ != nullptr) ibv_dereg_mr(mr_);
    if (pd_ != nullptr) ibv_dealloc_pd(pd_);
    if (context_ != nullptr) ibv_close_device(context_);
  }
  Rdma(const Rdma&) = delete;
  Rdma& operator=(const Rdma&) = delete;

  std::size_t qps() const { return qps_.size(); }

  void post_send(std::size_t qp) {
    ibv_sge sge{address(), kMessage, mr_->lkey};
    ibv_send_wr request{}, *bad = nullptr;
    request.wr_id = kSendId;
    request.sg_list = &sge;
    request.num_sge = 1;
    request.opcode = IBV_WR_SEND;
    request.send_flags = IBV_SEND_SIGNALED;
    if (const int error = ibv_post_send(qps_[qp], &request, &bad); error != 0) {
      throw failure("cannot post a send", error);
    }
  }

  // Takes completions until one of a send (then its status), or until nothing is there.
  std::optional<ibv_wc_status> poll_send() {
    ibv_wc completion{};
    while (ibv_poll_cq(cq_, 1, &completion) == 1) {
      if (completion.wr_id == kSendId) return completion.status;
      if (completion.status != IBV_WC_SUCCESS) return completion.status;
      post_receive(qps_[completion.wr_id], completion.wr_id);
    }
    return std::nullopt;
  }

 private:
  static constexpr std::uint64_t kSendId = ~std::uint64_t{0};

  std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(mr_->addr); }

  // The IPv4 form if there is one.
  int usable_gid() const {
    ibv_port_attr port{};
    ibv_query_port(context_, kPort, &port);
    int found = 0;
    for (int i = port.gid_tbl_len - 1; i >= 0; --i) {
      static constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
      ibv_gid gid{};
      if (ibv_query_gid(context_, kPort, i, &gid) != 0) continue;
      if (std::memcmp(gid.raw, kMapped, sizeof kMapped) == 0) found = i;
    }
    return found;
  }

  void post_receive(ibv_qp* qp, std::uint64_t index) {
    ibv_sge sge{address(), kMessage, mr_->lkey};
    ibv_recv_wr request{}, *bad = nullptr;
    request.wr_id = index;
    request.sg_list = &sge;
    request.num_sge = 1;
    if (const int error = ibv_post_recv(qp, &request, &bad); error != 0) {
      throw failure("cannot post a receive", error);
    }
  }

  void modify(ibv_qp* qp, ibv_qp_attr attributes, int mask) {
    if (const int error = ibv_modify_qp(qp, &attributes, mask); error != 0) {
      throw failure("cannot modify a QP", error);
    }
  }

  ibv_qp* connect(Connection& peer) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq_;
    init.qp_type = IBV_QPT_RC;
    init.cap = {2, kReceivesPerQp, 1, 1, 0};
    ibv_qp* qp = ibv_create_qp(pd_, &init);
    if (qp == nullptr) throw failure("cannot create a QP");

    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = kPort;
    modify(qp, attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);

    Address own{qp->qp_num, {}};
    ibv_query_gid(context_, kPort, gid_index_, &own.gid);
    peer.put(own);
    const auto other = peer.take<Address>();
    attributes = {};
    attributes.qp_state = IBV_QPS_RTR;
    attributes.path_mtu = IBV_MTU_1024;
    attributes.dest_qp_num = other.qpn;
    attributes.max_dest_rd_atomic = 1;
    attributes.min_rnr_timer = 12;
    attributes.ah_attr.is_global = 1;
    attributes.ah_attr.port_num = kPort;
    attributes.ah_attr.grh.dgid = other.gid;
    attributes.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(gid_index_);
    attributes.ah_attr.grh.hop_limit = 64;
    modify(qp, attributes,
           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
               IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
    attributes = {};
    attributes.qp_state = IBV_QPS_RTS;
    attributes.timeout = 14;
    attributes.retry_cnt = 7;
    attributes.rnr_retry = 7;
    attributes.max_rd_atomic = 1;
    modify(qp, attributes,
           IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
               IBV_QP_MAX_QP_RD_ATOMIC);
    for (int i = 0; i < kReceivesPerQp; ++i) post_receive(qp, qps_.size());
    return qp;
  }

  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_mr* mr_ = nullptr;
  ibv_cq* cq_ = nullptr;
  std::vector<ibv_qp*> qps_;
  int gid_index_ = 0;
};

std::size_t entries(const char* folder) {
  const std::filesystem::directory_iterator begin(folder);
  return static_cast<std::size_t>(std::distance(begin, {}));
}
std::size_t threads() {
  return entries("/proc/self/task");
}
// Without the one that this look itself opens.
std::size_t descriptors() {
  return entries("/proc/self/fd") - 1;
}

void serve(const Options& options) {
  Connection client(accept_one(options.port));
  const auto qps = client.take<std::uint32_t>();
  if (qps > kMaxQps) throw std::runtime_error("the client asks for too many QPs");
  const Memory memory(std::size_t{1} << 20);
  std::unique_ptr<Rdma> rdma;
  if (qps > 0) rdma = std::make_unique<Rdma>(qps, memory, client);
  // Receives are posted again here; the client closing the connection is the end.
  for (pollfd closed{client.get(), POLLIN, 0}; poll(&closed, 1, 1) == 0 && stop_requested == 0;) {
    if (rdma) rdma->poll_send();
  }
}

// One message at a time, over each queue pair in turn, until the stop.
bool trickle(Rdma* rdma) {
  std::uint64_t sent = 0, failed = 0;
  while (stop_requested == 0 && failed == 0) {
    if (rdma != nullptr) {
      rdma->post_send(sent++ % rdma->qps());
      std::optional<ibv_wc_status> status;
      while (!(status = rdma->poll_send())) poll(nullptr, 0, 1);
      failed += *status != IBV_WC_SUCCESS ? 1 : 0;
    }
    poll(nullptr, 0, kPauseMs);
  }
  std::printf("{\"sent\":%llu,\"failed\":%llu}\n", static_cast<unsigned long long>(sent),
              static_cast<unsigned long long>(failed));
  return failed == 0;
}

bool hold(const Options& options) {
  Connection peer(connect_to(options.host, options.port));
  peer.put(options.qps);
  const Memory memory(options.memory);
  std::unique_ptr<Rdma> rdma;
  if (options.qps > 0) rdma = std::make_unique<Rdma>(options.qps, memory, peer);

  while (threads() < options.threads) {
    std::thread([] {
      for (;;) poll(nullptr, 0, -1);
    }).detach();
  }
  while (descriptors() < options.descriptors) {
    if (eventfd(0, EFD_CLOEXEC) < 0) throw failure("cannot open another descriptor");
  }
  std::printf("{\"qps\":%u,\"threads\":%zu,\"descriptors\":%zu,\"memory_bytes\":%zu}\n",
              options.qps, threads(), descriptors(), memory.size());
  std::fflush(stdout);
  return trickle(rdma.get());
}

std::uint64_t number(const std::string& option, std::string_view text, std::uint64_t max) {
  std::uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || value > max) {
    throw std::runtime_error(option + " " + std::string(text) + ": give a number up to " +
                             std::to_string(max));
  }
  return value;
}

Options parse(std::span<char*> arguments) {
  Options options;
  std::vector<std::string> positional;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string word = arguments[i];
    if (word == "--listen") {
      options.listen = true;
    } else if (!word.starts_with("--") || i + 1 == arguments.size()) {
      positional.push_back(word);
    } else {
      const std::string_view value = arguments[++i];
      if (word == "--qps") {
        options.qps = static_cast<std::uint32_t>(number(word, value, kMaxQps));
      } else if (word == "--memory") {
        options.memory = number(word, value, 1 << 20) << 20;
      } else if (word == "--threads") {
        options.threads = number(word, value, 1000);
      } else if (word == "--descriptors") {
        options.descriptors = number(word, value, 1000);
      } else {
        throw std::runtime_error(word + ": unknown option");
      }
    }
  }
  if (positional.size() != (options.listen ? 1U : 2U)) {
    throw std::runtime_error(
        "usage: move_subject --listen PORT | HOST PORT [--qps N] [--memory MIB] [--threads T] "
        "[--descriptors D]");
  }
  if (!options.listen) options.host = positional[0];
  options.port = positional.back();
  number("PORT", options.port, 65535);
  if (options.memory < kMessage) throw std::runtime_error("--memory: give at least 1 MiB");
  return options;
}

}  // namespace

int main(int argc, char** argv) try {
  struct sigaction action {};
  action.sa_handler = [](int) { stop_requested = 1; };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  const Options options = parse({argv + 1, static_cast<std::size_t>(argc - 1)});
  if (options.listen) {
    serve(options);
    return 0;
  }
  return hold(options) ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "move_subject: %s\n", error.what());
  return 1;
}
