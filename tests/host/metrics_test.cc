#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/net.h"
#include "ferryd_here.h"
#include "host/history/accounts.h"
#include "host/metrics/exposition.h"
#include "host/metrics/http.h"
#include "host/metrics/metrics.h"
#include "host/metrics/metrics_server.h"
#include "temporary.h"

namespace ferry::host {
namespace {

using test::failure_of;
using test::Folder;
using Type = Exposition::Type;

std::string page() {
  return "a 1\n";
}

TEST(ExpositionTest, IsPrometheusText) {
  Exposition out;
  out.family("a_total", Type::kCounter, "All of it.");
  out.sample({{"what", "x\"y\\z\n"}, {"other", ""}}, 3);
  out.sample(1.5);
  out.family("b_seconds", Type::kHistogram, "Times.");
  out.histogram({{0.5, 2}, {1, 0}, {2.5, 1}}, 4, 12.25);
  EXPECT_EQ(out.text(),
            "# HELP a_total All of it.\n# TYPE a_total counter\n"
            "a_total{what=\"x\\\"y\\\\z\\n\",other=\"\"} 3\na_total 1.5\n"
            "# HELP b_seconds Times.\n# TYPE b_seconds histogram\n"
            "b_seconds_bucket{le=\"0.5\"} 2\nb_seconds_bucket{le=\"1\"} 2\n"
            "b_seconds_bucket{le=\"2.5\"} 3\nb_seconds_bucket{le=\"+Inf\"} 4\n"
            "b_seconds_sum 12.25\nb_seconds_count 4\n");
}

// What `promtool check metrics` demands of a text, and what Prometheus' naming rules do: a line for
// each fault.
std::string faults(const std::string& text) {
  static const std::regex head("# (HELP|TYPE) ([a-z][a-z0-9_]*) (.+)");
  static const std::string label = R"re([a-z][a-z0-9_]*="(?:[^"\\\n]|\\[\\"n])*")re";
  static const std::regex sample("([a-z][a-z0-9_]*)(?:\\{(" + label + "(?:," + label +
                                 ")*)\\})? ([0-9.e+-]+|\\+Inf|NaN)");
  static const std::regex unit("seconds|bytes"), unit_at_end("_(?:seconds|bytes)(?:_total)?$");
  static const std::regex other_unit(
      "(?:^|_)(?:ms|us|ns|sec|secs|minutes|hours|days|(?:milli|micro|nano)seconds|"
      "[kmg]i?b|(?:kilo|mega|giga)bytes|bits|percent|gauge|counter|histogram)(?:_|$)");
  std::map<std::string, std::string> helps, types;
  std::set<std::string> samples;
  std::string found, family;
  if (!text.ends_with('\n')) found += "the last line has no end\n";
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const auto need = [&](bool holds, const char* rule) {
      if (!holds) found += line + ": " + rule + "\n";
    };
    std::smatch match;
    if (std::regex_match(line, match, head)) {
      const std::string kind = match[1], name = match[2], value = match[3];
      auto& known = kind == "HELP" ? helps : types;
      need(known.emplace(name, value).second, "twice");
      if (kind == "HELP") {
        family = name;
        need(value.ends_with('.') && !value.starts_with("Those "), "HELP has to stand by itself");
        continue;
      }
      need(name == family, "HELP stands before TYPE");
      need(value == "counter" || value == "gauge" || value == "histogram", "no such type");
      need((value == "counter") == name.ends_with("_total"), "counters, and no others, are _total");
      need(!std::regex_search(name, other_unit), "a unit other than the base unit, or a type");
      need(!std::regex_search(name, unit) || std::regex_search(name, unit_at_end),
           "the unit is no suffix");
      need(name.starts_with("ferry_"), "no prefix");
    } else if (std::regex_match(line, match, sample)) {
      const std::string name = match[1], labels = match[2];
      need(samples.insert(name + "{" + labels + "}").second, "twice");
      const std::string type = types.contains(family) ? types[family] : "";
      const bool is_histogram = type == "histogram";
      const std::string suffix = name.starts_with(family) ? name.substr(family.size()) : "?";
      need(is_histogram ? suffix == "_bucket" || suffix == "_sum" || suffix == "_count"
                        : suffix.empty(),
           "not of the family above it");
      need((suffix == "_bucket") == labels.starts_with("le="), "le is of buckets alone");
      need(labels.find("quantile=") == std::string::npos, "quantile is of summaries");
      need(type == "gauge" || !match[3].str().starts_with('-'), "a counter below 0");
    } else {
      need(false, "neither a head nor a sample");
    }
  }
  for (const auto& [name, help] : helps) {
    if (!types.contains(name)) found += name + ": no TYPE\n";
  }
  return found;
}

TEST(ExpositionTest, KeepsTheRules) {
  test::FerrydHere ferryd("h1");
  Metrics metrics("1.2.3", ferryd.history, *ferryd.move_counters, ferryd.stand_ins,
                  *ferryd.control);
  v1::MoveReport parts;
  parts.set_blackout_ms(31.25);
  parts.set_image_bytes(1'234'567'890);
  std::uint64_t id = 0;
  for (const Side side : {Side::kSource, Side::kDestination}) {
    for (const auto outcome : {MoveOutcome::kMoved, MoveOutcome::kFailed, MoveOutcome::kAborted,
                               MoveOutcome::kReturned, MoveOutcome::kEnded, MoveOutcome::kLost}) {
      v1::PastMove move;
      move.set_move_id(++id);
      ferryd.accounts->begun(side, move);
      ferryd.accounts->ended(side, id, {outcome, "copy ahead", "why \"so\"", {}, {}, &parts});
    }
  }
  const std::string text = metrics.text();
  EXPECT_EQ(faults(text), "");
  for (const char* line :
       {"ferry_moves_ended_total{direction=\"in\",outcome=\"lost\"} 1",
        "ferry_move_failures_total{direction=\"out\",step=\"copy ahead\"} 3",
        "ferry_move_blackout_seconds_sum 0.03125", "ferry_move_blackout_seconds_count 1"}) {
    EXPECT_NE(text.find(std::string(line) + "\n"), std::string::npos) << line << " in\n" << text;
  }
  // The rules are not empty ones.
  for (const char* bad :
       {"ferry_a 1\n", "# HELP ferry_a All.\nferry_a 1\n",
        "# HELP ferry_a All.\n# TYPE ferry_a counter\nferry_a 1\n",
        "# HELP ferry_a_total All.\n# TYPE ferry_a_total gauge\nferry_a_total 1\n",
        "# HELP ferry_a_ms All.\n# TYPE ferry_a_ms gauge\nferry_a_ms 1\n",
        "# HELP ferry_bytes_of_a All.\n# TYPE ferry_bytes_of_a gauge\nferry_bytes_of_a 1\n",
        "# HELP ferry_a All.\n# TYPE ferry_a gauge\nferry_b 1\n",
        "# HELP ferry_a All.\n# TYPE ferry_a gauge\nferry_a{le=\"1\"} 1\n",
        "# HELP ferry_a All.\n# TYPE ferry_a gauge\nferry_a 1\nferry_a 2\n",
        "# HELP ferry_a All.\n# TYPE ferry_a gauge\nferry_a{b=\"\"c\"} 1\n"}) {
    EXPECT_NE(faults(bad), "") << bad;
  }
}

TEST(HttpTest, AnswersRequests) {
  const auto status = [](const std::string& request) {
    const std::string answer = http_answer(request, page);
    return answer.substr(9, 3);
  };
  EXPECT_EQ(http_answer("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", page),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"
            "Content-Length: 4\r\nConnection: close\r\n\r\na 1\n");
  EXPECT_TRUE(http_answer("HEAD /metrics HTTP/1.1\r\n\r\n", page).ends_with("close\r\n\r\n"));
  EXPECT_EQ(status("GET /metrics?x=y HTTP/1.0\r\n\r\n"), "200");
  EXPECT_EQ(status("GET http://h1:9/metrics HTTP/1.1\r\n\r\n"), "200");
  EXPECT_EQ(status("GET / HTTP/1.1\r\n\r\n"), "404");
  EXPECT_EQ(status("GET /metrics/ HTTP/1.1\r\n\r\n"), "404");
  EXPECT_EQ(status("POST /metrics HTTP/1.1\r\n\r\n"), "405");
  EXPECT_EQ(status("GET /metrics HTTP/2.0\r\n\r\n"), "505");
  EXPECT_EQ(status("GET /metrics HTTP/1.1\r\n"), "431");
  for (const char* bad : {"\r\n\r\n", " \r\n\r\n", "GET /metrics\r\n\r\n", "GET  HTTP/1.1\r\n\r\n",
                          "GET /a b HTTP/1.1\r\n\r\n", "GET /metrics FTP\r\n\r\n"}) {
    EXPECT_EQ(status(bad), "400") << bad;
  }
}

struct MetricsServerTest : testing::Test {
  Folder folder;
  const std::string path = folder.path("metrics.sock");

  UniqueFd connect() const {
    UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, path.size());
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return socket;
  }
  static std::string read_all(const UniqueFd& socket) {
    std::string text;
    char piece[4096];
    for (ssize_t size; (size = ::recv(socket.get(), piece, sizeof piece, 0)) > 0;) {
      text.append(piece, static_cast<std::size_t>(size));
    }
    return text;
  }
  std::string ask(const std::string& request) const {
    const UniqueFd socket = connect();
    ::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL);
    return read_all(socket);
  }
};

TEST_F(MetricsServerTest, IsForRootAndItsGroup) {
  const auto mode = [&] {
    struct stat status {};
    ::stat(path.c_str(), &status);
    return status.st_mode & 0777;
  };
  EXPECT_TRUE(listen_unix(path, std::nullopt));
  EXPECT_EQ(mode(), 0600u);
  if (::geteuid() == 0) {
    EXPECT_TRUE(listen_unix(path, 12345));  // in the place of the former
    EXPECT_EQ(mode(), 0660u);
  }
  EXPECT_EQ(group_of("root"), 0u);
  EXPECT_EQ(group_of("12345"), 12345u);
  EXPECT_NE(failure_of([] { group_of("no-such-group"); }).find("no group 'no-such-group'"),
            std::string::npos);
  EXPECT_NE(failure_of([&] { listen_unix(folder.path(std::string(200, 'x')), std::nullopt); }), "");
}

TEST_F(MetricsServerTest, AnswersAndEnds) {
  const MetricsServer server(listen_unix(path, std::nullopt), nullptr, page);
  EXPECT_TRUE(ask("GET /metrics HTTP/1.1\r\n\r\n").ends_with("\r\n\r\na 1\n"));
  // What is too long is refused, and read, so that the answer arrives.
  EXPECT_TRUE(ask("GET /metrics HTTP/1.1\r\nX: " + std::string(4 * kMostRequest, 'x'))
                  .starts_with("HTTP/1.1 431 "));
}

// Neither who says nothing, nor who says it slowly or does not read, keeps others waiting.
TEST_F(MetricsServerTest, SlowClientsBlockNobody) {
  const std::string long_page(32 << 20, 'x');
  const MetricsServer server(
      listen_unix(path, std::nullopt), nullptr, [&] { return long_page; },
      std::chrono::milliseconds(300));
  const UniqueFd silent = connect(), deaf = connect(), slow = connect();
  const std::string request = "GET /metrics HTTP/1.1\r\n\r\n";
  ::send(deaf.get(), request.data(), request.size(), MSG_NOSIGNAL);
  ::send(slow.get(), "G", 1, MSG_NOSIGNAL);
  EXPECT_EQ(read_all(silent), "");  // it returns: the server has ended the connection
  EXPECT_EQ(read_all(slow), "");
  EXPECT_TRUE(ask("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
}

TEST_F(MetricsServerTest, TooManyClientsAreTurnedAway) {
  // Nobody's time is over before this test is.
  std::optional<MetricsServer> server(std::in_place, listen_unix(path, std::nullopt), nullptr, page,
                                      std::chrono::minutes(10));
  std::vector<UniqueFd> clients;
  for (std::size_t i = 0; i < MetricsServer::kMostClients; ++i) clients.push_back(connect());
  EXPECT_EQ(read_all(connect()), "");
  clients.pop_back();
  while (!ask("GET /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 200 ")) ::usleep(1000);
  clients.clear();
}

}  // namespace
}  // namespace ferry::host
