#include "host/directory/directory.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "base/failure.h"
#include "base/net.h"
#include "ferry.grpc.pb.h"
#include "host/directory/etcd_directory.h"
#include "host/directory/hosts_directory.h"
#include "host/directory/places.h"
#include "played_process.h"
#include "port/slot.h"
#include "temporary.h"

namespace ferry::host {
namespace {

using std::chrono::seconds;
using test::eventually;
using test::failure_of;
using test::Folder;

port::Endpoint endpoint(unsigned host, std::uint32_t slot) {
  return {port::Address::from_ipv4(0x0A4E0000 + (host << 8) + 1), port::udp_port_of_slot(slot)};
}

// Some hosts with a directory each, which are of one kind.
class Cluster {
 public:
  virtual ~Cluster() = default;
  virtual Directory& start(const std::string& host) = 0;
  virtual void stop(const std::string& host) = 0;
  virtual std::string ferryd(const std::string& host) = 0;

  Place place(const std::string& host, std::uint32_t epoch, std::uint32_t origin_slot = 3) {
    const auto number = static_cast<unsigned>(host.back() - '0');
    return {endpoint(1, origin_slot), endpoint(number, 7), host, ferryd(host), epoch, false};
  }
};

// What a watcher was told last.
class Seen {
 public:
  Directory::Watcher watcher() {
    return [this](const std::optional<Place>& place) {
      std::lock_guard lock(mutex_);
      heard_ = true;
      place_ = place;
    };
  }
  bool is(const std::optional<Place>& place) {
    std::lock_guard lock(mutex_);
    return heard_ && place_ == place;
  }
  bool ended() {
    std::lock_guard lock(mutex_);
    return place_ && place_->ended;
  }

 private:
  std::mutex mutex_;
  bool heard_ = false;
  std::optional<Place> place_;
};

// --- Ferryds that ask each other

class HostsCluster : public Cluster {
 public:
  Directory& start(const std::string& host) override {
    Node& node = nodes_[host];
    node.service = std::make_unique<Service>(host);
    grpc::ServerBuilder builder;
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    int port = 0;
    builder.AddListeningPort("127.0.0.1:" + std::to_string(node.port),
                             grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(node.service.get());
    node.server = builder.BuildAndStart();
    node.port = port;
    std::map<std::string, std::string> others;
    for (const auto& [name, other] : nodes_) {
      if (other.directory) others.emplace(ferryd(name), name);
    }
    node.directory = std::make_unique<HostsDirectory>(ferryd(host), nullptr, others);
    node.service->directory = node.directory.get();
    for (const auto& [name, other] : nodes_) {
      if (other.directory) other.directory->met(ferryd(host), host);
    }
    return *node.directory;
  }
  void stop(const std::string& host) override {
    Node& node = nodes_[host];
    node.server->Shutdown(std::chrono::system_clock::now());
    node.server.reset();
    node.directory.reset();
  }
  std::string ferryd(const std::string& host) override {
    return "127.0.0.1:" + std::to_string(nodes_[host].port);
  }
  // That have asked `host` since it started.
  std::size_t connections(const std::string& host) {
    std::lock_guard lock(nodes_[host].service->mutex);
    return nodes_[host].service->callers.size();
  }
  ~HostsCluster() override {
    for (auto& [name, node] : nodes_) {
      if (node.server) node.server->Shutdown(std::chrono::system_clock::now());
    }
  }

 private:
  struct Service : v1::Ferryd::Service {
    explicit Service(std::string host_name) : host(std::move(host_name)) {}
    grpc::Status Locate(grpc::ServerContext* context, const v1::LocateRequest* request,
                        v1::LocateReply* reply) override {
      {
        std::lock_guard lock(mutex);
        callers.insert(context->peer());
      }
      Directory* known = directory;
      if (known == nullptr) return {grpc::StatusCode::UNAVAILABLE, "it is starting"};
      reply->set_host(host);
      const auto place = known->told(*from_message(request->origin()));
      if (place) to_message(*place, reply->mutable_place());
      return grpc::Status::OK;
    }
    std::string host;
    std::mutex mutex;
    std::set<std::string> callers;
    std::atomic<Directory*> directory{nullptr};  // made when the server has its port, and serves
  };
  struct Node {
    int port = 0;
    std::unique_ptr<Service> service;
    std::unique_ptr<HostsDirectory> directory;
    std::unique_ptr<grpc::Server> server;
  };
  std::map<std::string, Node> nodes_;
};

// A host that was never met: another one has told where it is, and is no more.
TEST(HostsDirectoryTest, AsksHostsThatItWasToldOf) {
  HostsCluster cluster;
  Directory& h2 = cluster.start("h2");
  Directory& h3 = cluster.start("h3");
  HostsDirectory h1("127.0.0.1:1", nullptr, {{cluster.ferryd("h2"), "h2"}});
  const Place second = cluster.place("h3", 2), third = cluster.place("h3", 3);
  Seen seen;
  h1.watch(second.origin, seen.watcher());
  h3.put(second);
  h2.left(second);
  ASSERT_TRUE(eventually([&] { return seen.is(second); }));
  cluster.stop("h2");
  h3.put(third);
  EXPECT_TRUE(eventually([&] { return h1.lookup(third.origin) == third; }));
}

TEST(HostsDirectoryTest, AConnectionLastsFromOneQuestionToTheNext) {
  HostsCluster cluster;
  cluster.start("h2");
  HostsDirectory h1("127.0.0.1:1", nullptr, {{cluster.ferryd("h2"), "h2"}});
  const Place place = cluster.place("h3", 2);
  for (int question = 0; question < 20; ++question) h1.lookup(place.origin);
  EXPECT_EQ(cluster.connections("h2"), 1u);
  cluster.stop("h2");
  EXPECT_THROW(h1.lookup(place.origin), Failure);
  cluster.start("h2").put(cluster.place("h2", 3));
  EXPECT_TRUE(eventually([&] {
    try {
      return h1.lookup(place.origin) == cluster.place("h2", 3);
    } catch (const Failure&) {
      return false;
    }
  }));
  EXPECT_EQ(cluster.connections("h2"), 1u);
}

// --- A real etcd

std::uint16_t free_port() {
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), length) != 0) return 0;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &length);
  return ntohs(address.sin_port);
}

class Etcd {
 public:
  Etcd() : client_(free_port()), peer_(free_port()) { start(); }
  ~Etcd() { stop(); }
  void start() {
    const std::string at = "http://127.0.0.1:" + std::to_string(client_);
    const std::string between = "http://127.0.0.1:" + std::to_string(peer_);
    const std::string cluster = "default=" + between, data = folder_.path("data");
    const std::string log = folder_.path("log");
    pid_ = ::fork();
    if (pid_ == 0) {
      const int out = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      ::dup2(out, 1);
      ::dup2(out, 2);
      ::execlp("etcd", "etcd", "--data-dir", data.c_str(), "--listen-client-urls", at.c_str(),
               "--advertise-client-urls", at.c_str(), "--listen-peer-urls", between.c_str(),
               "--initial-advertise-peer-urls", between.c_str(), "--initial-cluster",
               cluster.c_str(), nullptr);
      ::_exit(127);
    }
  }
  void stop() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  std::string endpoint() const { return "127.0.0.1:" + std::to_string(client_); }
  std::string log() const { return folder_.read("log"); }

 private:
  Folder folder_;
  const std::uint16_t client_, peer_;
  pid_t pid_ = 0;
};

class EtcdCluster : public Cluster {
 public:
  Directory& start(const std::string& host) override {
    // The first endpoint is nobody's: the next is tried.
    auto& directory = nodes_[host];
    directory = std::make_unique<EtcdDirectory>(
        std::vector<EtcdDirectory::Endpoint>{{"127.0.0.1:1", "nobody"}, {etcd.endpoint(), "etcd"}},
        nullptr, kTtl);
    return *directory;
  }
  void stop(const std::string& host) override { nodes_.erase(host); }
  std::string ferryd(const std::string& host) override { return host + ":4780"; }
  Etcd etcd;

 private:
  static constexpr seconds kTtl{2};  // etcd's least
  std::map<std::string, std::unique_ptr<EtcdDirectory>> nodes_;
};

enum class Kind { kHosts, kEtcd };

class DirectoryTest : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (GetParam() == Kind::kHosts) {
      cluster = std::make_unique<HostsCluster>();
    } else {
      auto with_etcd = std::make_unique<EtcdCluster>();
      etcd = &with_etcd->etcd;
      cluster = std::move(with_etcd);
    }
    h1 = &cluster->start("h1");
    h2 = &cluster->start("h2");
    h3 = &cluster->start("h3");
    ASSERT_TRUE(eventually([&] { return failure_of([&] { h3->lookup(kNobody); }).empty(); }))
        << (etcd != nullptr ? etcd->log() : "");
  }
  bool finds(Directory& directory, const port::Endpoint& origin,
             const std::optional<Place>& expected) {
    return eventually([&] {
      try {
        return directory.lookup(origin) == expected;
      } catch (const Failure&) {
        return false;
      }
    });
  }
  const port::Endpoint kNobody = endpoint(9, 9);
  std::unique_ptr<Cluster> cluster;
  Etcd* etcd = nullptr;
  Directory *h1 = nullptr, *h2 = nullptr, *h3 = nullptr;
};

TEST_P(DirectoryTest, TellsEverybodyWhereSomethingIs) {
  const Place place = cluster->place("h2", 1);
  EXPECT_EQ(h3->lookup(place.origin), std::nullopt);
  h2->put(place);
  EXPECT_TRUE(finds(*h3, place.origin, place));
  EXPECT_TRUE(finds(*h1, place.origin, place));
  EXPECT_TRUE(finds(*h2, place.origin, place));
  EXPECT_EQ(h3->lookup(kNobody), std::nullopt);
}

TEST_P(DirectoryTest, FollowsAMoveAndNeverGoesBack) {
  const Place first = cluster->place("h2", 1), second = cluster->place("h3", 2);
  h2->put(first);
  ASSERT_TRUE(finds(*h1, first.origin, first));
  h3->put(second);
  h2->left(second);
  EXPECT_TRUE(finds(*h1, first.origin, second));
  // A host that comes late, or restores an old image.
  h2->put(first);
  h2->remove(first);
  const Place marker = cluster->place("h2", 1, 40);
  h2->put(marker);
  ASSERT_TRUE(finds(*h1, marker.origin, marker));
  EXPECT_EQ(h1->lookup(first.origin), second);
  EXPECT_EQ(h2->lookup(first.origin), second);
}

TEST_P(DirectoryTest, TellsOfTheEnd) {
  const Place place = cluster->place("h2", 1);
  Seen seen;
  h1->watch(place.origin, seen.watcher());
  h2->put(place);
  EXPECT_TRUE(eventually([&] { return seen.is(place); }));
  h2->remove(place);
  EXPECT_TRUE(eventually([&] { return seen.ended(); }));
  EXPECT_TRUE(finds(*h3, place.origin, std::nullopt));
  // It stays ended.
  h2->put(place);
  const Place marker = cluster->place("h2", 1, 40);
  h2->put(marker);
  ASSERT_TRUE(finds(*h1, marker.origin, marker));
  EXPECT_EQ(h3->lookup(place.origin), std::nullopt);
  h1->unwatch(place.origin);
}

// A program from a checkpoint is younger in epochs than the one that has ended, here or elsewhere.
TEST_P(DirectoryTest, BelievesARestart) {
  const Place before = cluster->place("h3", 3), again = cluster->place("h3", 1);
  h3->put(before);
  ASSERT_TRUE(finds(*h3, before.origin, before));
  h3->remove(before);
  ASSERT_TRUE(finds(*h3, before.origin, std::nullopt));
  h3->renew(again);
  h3->put(again);
  EXPECT_TRUE(finds(*h3, again.origin, again));
}

// Two restarts of one checkpoint have the same epoch. That it has ended on one host is no news of the other one.
TEST_P(DirectoryTest, BelievesARestartElsewhere) {
  const Place before = cluster->place("h1", 2), again = cluster->place("h3", 2);
  h1->renew(before);
  h1->remove(before);
  ASSERT_TRUE(finds(*h1, before.origin, std::nullopt));
  h3->renew(again);
  EXPECT_TRUE(finds(*h1, again.origin, again));
  EXPECT_TRUE(finds(*h2, again.origin, again));
}

TEST_P(DirectoryTest, WatchesFromHostToHost) {
  const Place first = cluster->place("h2", 1), second = cluster->place("h3", 2);
  h2->put(first);
  ASSERT_TRUE(finds(*h1, first.origin, first));
  Seen seen, late;
  h1->watch(first.origin, seen.watcher());  // of what is there already
  EXPECT_TRUE(eventually([&] { return seen.is(first); }));
  h3->put(second);
  h2->left(second);
  EXPECT_TRUE(eventually([&] { return seen.is(second); }));
  h1->watch(first.origin, late.watcher());
  EXPECT_TRUE(eventually([&] { return late.is(second); }));
  h1->unwatch(first.origin);
}

std::string name_of_kind(const testing::TestParamInfo<Kind>& info) {
  return info.param == Kind::kHosts ? "Hosts" : "Etcd";
}
INSTANTIATE_TEST_SUITE_P(All, DirectoryTest, testing::Values(Kind::kHosts, Kind::kEtcd),
                         name_of_kind);

// --- What is of etcd alone

struct EtcdTest : testing::Test {
  EtcdCluster cluster;
  const Place place = cluster.place("h2", 1);
  bool finds(Directory& directory, const std::optional<Place>& expected) {
    return eventually([&] {
      try {
        return directory.lookup(place.origin) == expected;
      } catch (const Failure&) {
        return false;
      }
    });
  }
};

TEST_F(EtcdTest, LosesNothingWhileEtcdIsAway) {
  Directory& h2 = cluster.start("h2");
  Directory& h1 = cluster.start("h1");
  Seen seen;
  h1.watch(place.origin, seen.watcher());
  ASSERT_TRUE(finds(h1, std::nullopt)) << cluster.etcd.log();
  cluster.etcd.stop();
  EXPECT_NE(failure_of([&] { h1.lookup(place.origin); }), "");
  h2.put(place);
  cluster.etcd.start();
  EXPECT_TRUE(finds(h1, place)) << cluster.etcd.log();
  EXPECT_TRUE(eventually([&] { return seen.is(place); }));
  h1.unwatch(place.origin);
}

// A host that dies takes what it told along, until its next ferryd says it again.
TEST_F(EtcdTest, ForgetsWhatALostHostSaid) {
  Directory& h1 = cluster.start("h1");
  Directory& h3 = cluster.start("h3");
  Seen seen;
  cluster.start("h2").put(place);
  ASSERT_TRUE(finds(h3, place)) << cluster.etcd.log();
  h1.watch(place.origin, seen.watcher());
  ASSERT_TRUE(eventually([&] { return seen.is(place); }));
  cluster.stop("h2");
  EXPECT_TRUE(finds(h3, std::nullopt));
  EXPECT_TRUE(eventually([&] { return seen.is(std::nullopt); }));
  cluster.start("h2").put(place);
  EXPECT_TRUE(finds(h3, place));
  EXPECT_TRUE(eventually([&] { return seen.is(place); }));
  h1.unwatch(place.origin);
}

TEST_F(EtcdTest, ALeaseIsKeptAliveAsLongAsItsFerryd) {
  Directory& h1 = cluster.start("h1");
  Directory& h2 = cluster.start("h2");
  Seen seen;
  h1.watch(place.origin, seen.watcher());
  h2.put(place);
  ASSERT_TRUE(eventually([&] { return seen.is(place); })) << cluster.etcd.log();
  // Another one's lease, as long and not kept, runs out meanwhile.
  Directory& h3 = cluster.start("h3");
  Place other = cluster.place("h3", 1, 50);
  h3.put(other);
  ASSERT_TRUE(eventually([&] { return h1.lookup(other.origin) == other; }));
  cluster.stop("h3");
  EXPECT_TRUE(eventually([&] { return !h1.lookup(other.origin); }));
  EXPECT_TRUE(finds(h1, place));
  EXPECT_TRUE(eventually([&] { return seen.is(place); }));
  cluster.stop("h2");
  EXPECT_TRUE(eventually([&] { return seen.is(std::nullopt); }));
  h1.unwatch(place.origin);
}

// --- Texts

TEST(PlaceText, OfKeysAndValues) {
  Place place{endpoint(1, 0), endpoint(2, 5), "h2", "10.77.0.2:4780", 7, false};
  EXPECT_EQ(origin_text(place.origin), "10.78.1.1/0");
  EXPECT_EQ(value_text(place),
            R"({"address":"10.78.2.1","epoch":7,"ferryd":"10.77.0.2:4780","host":"h2","slot":5})");
  EXPECT_EQ(parse_origin("10.78.1.1/0"), place.origin);
  EXPECT_EQ(parse_value(place.origin, value_text(place)), place);
  place.ended = true;
  EXPECT_EQ(parse_value(place.origin, value_text(place)), place);
  const auto six = parse_origin("fd78::1:1/9");
  ASSERT_TRUE(six);
  EXPECT_EQ(origin_text(*six), "fd78::1:1/9");
  for (const char* wrong : {"", "/", "10.78.1.1", "10.78.1.1/", "10.78.1.1/1023", "10.78.1.1/x",
                            "10.78.1.1/1/2", "h1/0", "10.78.1.1/-1"}) {
    EXPECT_FALSE(parse_origin(wrong)) << wrong;
  }
  for (const char* wrong :
       {"", "[]", "{}", R"({"address":"h2","epoch":1,"ferryd":"","host":"","slot":0})",
        R"({"address":"10.0.0.1","epoch":-1,"ferryd":"","host":"","slot":2000})",
        R"({"address":"10.0.0.1","epoch":"1","ferryd":"","host":"","slot":1})"}) {
    EXPECT_FALSE(parse_value(place.origin, wrong)) << wrong;
  }
}

TEST(MakeDirectory, KnowsItsUrls) {
  EXPECT_NE(make_directory({"ferryd://", "127.0.0.1:1", nullptr, nullptr}), nullptr);
  EXPECT_NE(make_directory({"etcd://127.0.0.1:1,127.0.0.1:2", "127.0.0.1:1", nullptr, nullptr}),
            nullptr);
  EXPECT_NE(failure_of([] {
              make_directory({"etcd://", "", nullptr, nullptr});
            }).find("HOST:PORT"),
            std::string::npos);
  EXPECT_NE(failure_of([] {
              make_directory({"etcds://127.0.0.1:1", "", nullptr, nullptr});
            }).find("needs certificates"),
            std::string::npos);
  EXPECT_NE(failure_of([] {
              make_directory({"consul://x", "", nullptr, nullptr});
            }).find("etcd[s]://"),
            std::string::npos);
}

}  // namespace
}  // namespace ferry::host
