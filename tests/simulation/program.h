#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "events.h"
#include "network.h"
#include "transport/connected/connection.h"

// A program with RC connections, and the copies of it that a move makes. All of its state, the
// queues of its RNIC and what the application has counted, is in the image: a copy that goes on
// where another has gone on already is found out by its peers.
namespace ferry::simulation {

inline constexpr unsigned kReceives = 8;
inline constexpr unsigned kOutstanding = 8;

enum class Kind : std::uint8_t { kSend, kRead, kFetchAdd };

// What the application knows of one connection.
struct App {
  struct Request {
    std::uint64_t id;
    Kind kind;
    bool signaled;
    std::uint64_t original;  // what an atomic must find
  };
  std::uint64_t key = 0, peer_key = 0;  // of the bytes that each side sends
  std::uint64_t to_post = 0;
  std::uint64_t posted = 0, sends = 0, atomics = 0, arrived = 0, next_receive = 0;
  std::deque<Request> outstanding;
  bool done() const { return to_post == 0 && outstanding.empty(); }
};

struct QpImage {
  transport::test::FakeHost host;
  App app;
  std::vector<std::byte> record;
  std::uint32_t virtual_qpn = 0;
};
struct Image {
  std::vector<QpImage> qps;
  transport::MigrationSettings settings;
};

class Copy : public std::enable_shared_from_this<Copy> {
 public:
  struct Place {
    port::Endpoint at;
    std::uint32_t slot = 0;
  };
  struct Qp {
    std::unique_ptr<transport::test::FakeHost> host;
    std::unique_ptr<transport::Connection> connection;
    App app;
    std::uint32_t virtual_qpn = 0;
  };
  using Fail = std::function<void(const std::string&)>;

  Copy(Events& events, Network& network, Fail fail, int program, int on, const Place& place);

  const int program, on;  // of the hosts
  const Place place;
  bool runs = false;     // its threads do
  bool stopped = false;  // its RNIC is
  bool dead = false;
  std::uint64_t move = 0;  // that stopped it, or brought it here

  std::uint32_t add_qp(std::uint32_t index, const transport::MigrationSettings& settings,
                       std::uint64_t to_post);
  void connect(std::size_t qp, const Copy& peer, std::size_t peer_qp, std::uint32_t psn,
               std::uint32_t peer_psn, std::uint8_t timeout);

  void read_socket();  // from now on its RNIC does
  bool act();          // one turn of the application; true: something happened
  void prepare();      // HELLO
  bool peers_are_known() const;
  // Stops the RNIC; what a stand-in needs.
  std::vector<std::vector<std::byte>> stop();
  void resume(bool rollback);
  Image image() const;
  void load(const Image& image);
  // The virtual QPNs whose peers know where it is.
  std::vector<std::uint32_t> known() const;

  bool done() const;
  // After everything: RTS, nothing pending, and both sides agree.
  void check_end(const std::vector<std::shared_ptr<Copy>>& all) const;
  std::string describe() const;
  std::vector<Qp>& qps() { return qps_; }
  std::uint64_t completed() const { return completed_; }

 private:
  void hook(Qp& qp);
  void pump();
  void collect(Qp& qp);
  void post(Qp& qp);
  void post_receives(Qp& qp);
  void arm();
  void fail(const std::string& what) const;

  Events& events_;
  Network& network_;
  Fail fail_;
  transport::MigrationSettings settings_;
  std::vector<Qp> qps_;
  Time armed_ = transport::kNever;
  std::uint64_t completed_ = 0;
};

}  // namespace ferry::simulation
