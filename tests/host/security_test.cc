#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <thread>

#include "base/failure.h"
#include "base/net.h"
#include "ferry.grpc.pb.h"
#include "ferryd_here.h"
#include "host/metrics/metrics_server.h"
#include "host/peers/certificate.h"
#include "host/peers/credentials.h"
#include "host/peers/peer.h"
#include "host/peers/stream.h"
#include "played_ca.h"
#include "played_process.h"

// What ferryds believe of each other (docs/security.md).
namespace ferry::host {
namespace {

using std::chrono::seconds;
using test::Ca;
using test::failure_of;
using test::FerrydHere;
using test::Folder;

struct Security : testing::Test {
  Ca ca;
  Credentials here = ca.of("here");
  FerrydHere there{"there", ca.of("there")};

  static v1::CheckRequest check_of(const std::string& host) {
    v1::CheckRequest request;
    request.set_version(kVersion);
    request.set_host(host);
    request.set_program("p");
    request.add_netdevs("lo");
    request.set_kind("process");
    return request;
  }
  std::string check(const Credentials* credentials, const std::string& identity = {},
                    const std::string& host = "here") {
    Peer peer(there.host.address, credentials, identity);
    v1::CheckReply reply;
    return failure_of([&] { peer.call(check_of(host), &reply, seconds(20)); });
  }
  void prepare(const Credentials& from, std::uint64_t move_id, v1::PrepareReply* reply) {
    Peer peer(there.host.address, &from);
    v1::PrepareRequest request;
    request.set_kind("process");
    request.set_move_id(move_id);
    request.set_program("p");
    request.set_version(kVersion);
    request.set_source("127.0.0.1:1");
    request.add_inner_pids(5);
    peer.call(request, reply, seconds(20));
  }
  static bool is_line_with(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos && text.find('\n') == std::string::npos;
  }
};

TEST_F(Security, HostsOfOneCaTalk) {
  EXPECT_EQ(check(&here), "");
  EXPECT_EQ(check(&here, "there"), "");
}

TEST_F(Security, AHostOfAnotherCaIsRefused) {
  const Ca other;
  // Its own ferryd refuses us ...
  const Credentials stranger = other.of("here");
  EXPECT_PRED2(is_line_with, check(&stranger), "is not of this host's CA");
  // ... and ours refuses it, when it does not care whom it talks to.
  const auto own = other.certificate("here");
  const Credentials careless(other.pair.certificate, own.certificate, own.key);
  ASSERT_EQ(X509_STORE_add_cert(SSL_CTX_get_cert_store(careless.context()),
                                parse_certificate(ca.pair.certificate).get()),
            1);
  const auto [address, port] = split_host_port(there.host.address, 0);
  Stream stream = Stream::to_server(connect_tcp(address, port), &careless, address, "h2");
  char byte = 0;
  EXPECT_NE(stream.receive(&byte, 1), 0);
}

TEST_F(Security, AHostWithoutACertificateIsRefused) {
  EXPECT_PRED2(is_line_with, check(nullptr), "takes no calls without certificates");
}

TEST_F(Security, AFerrydWithoutTlsIsNotBelieved) {
  FerrydHere insecure("insecure");
  Peer peer(insecure.host.address, &here);
  v1::CheckReply reply;
  EXPECT_PRED2(is_line_with, failure_of([&] { peer.call(check_of("here"), &reply, seconds(20)); }),
               "does not speak TLS");
}

TEST_F(Security, ANameThatIsNotTheCertificatesIsRefusedByWhoCalls) {
  EXPECT_PRED2(is_line_with, check(&here, "elsewhere"),
               "shows the certificate of there, which is not for 'elsewhere'");
}

TEST_F(Security, ANameThatIsNotTheCertificatesIsRefusedByWhoIsCalled) {
  EXPECT_PRED2(is_line_with, check(&here, "", "elsewhere"),
               "it calls itself 'elsewhere', and its certificate is of here");
}

TEST_F(Security, ACertificateServesFromItsAddressOnly) {
  const Credentials elsewhere = ca.of("here", {"192.0.2.7"});
  EXPECT_PRED2(is_line_with, check(&elsewhere),
               "the certificate of here is not for 127.0.0.1, from where it calls");
  const Credentials anywhere = ca.of("here", {});
  EXPECT_EQ(check(&anywhere), "");
}

TEST_F(Security, HostsOfTheCaAloneAreToldOfThisOne) {
  const auto probe = [&](const Credentials* credentials) {
    Peer peer(there.host.address, credentials);
    v1::ProbeReply reply;
    return failure_of([&] { peer.call(v1::ProbeRequest(), &reply, seconds(20)); });
  };
  EXPECT_EQ(probe(&here), "");
  EXPECT_PRED2(is_line_with, probe(nullptr), "takes no calls without certificates");
  const Credentials stranger = Ca().of("here");
  EXPECT_PRED2(is_line_with, probe(&stranger), "is not of this host's CA");
  const Credentials elsewhere = ca.of("here", {"192.0.2.7"});
  EXPECT_PRED2(is_line_with, probe(&elsewhere),
               "the certificate of here is not for 127.0.0.1, from where it calls");
}

TEST_F(Security, OnlyTheSourceSteersAMove) {
  v1::PrepareReply reply;
  prepare(here, 77, &reply);
  const Credentials third = ca.of("third");
  Peer peer(there.host.address, &third);
  const auto refused = [&](auto request, auto answer) {
    request.set_move_id(77);
    return failure_of([&] { peer.call(request, &answer, seconds(20)); });
  };
  const std::string line = "this is a move of here, not of third";
  EXPECT_PRED2(is_line_with, refused(v1::AbortRequest{}, v1::AbortReply{}), line);
  EXPECT_PRED2(is_line_with, refused(v1::CommitRequest{}, v1::CommitReply{}), line);
  EXPECT_PRED2(is_line_with, refused(v1::RestoreRequest{}, v1::RestoreReply{}), line);
  EXPECT_PRED2(is_line_with, refused(v1::BindRequest{}, v1::BindReply{}), line);
  const auto told = [](const v1::WatchEvent&) { ADD_FAILURE(); };
  EXPECT_PRED2(is_line_with, peer.watch(77, told, seconds(20)).error_message(), line);
  // A refusal binds nobody: the move goes on.
  EXPECT_FALSE(there.decisions.decision(77, Side::kDestination));
}

// Of the programs of several hosts each is its own host's, and no other host joins these.
TEST_F(Security, OnlyItsSourcesJoinAGroup) {
  const Credentials other = ca.of("other"), third = ca.of("third");
  const auto prepared = [&](const Credentials& from, std::uint32_t program,
                            const std::vector<std::string>& hosts) {
    v1::PrepareRequest request;
    request.set_kind("process");
    request.set_move_id(100 + program);
    request.set_program("p" + std::to_string(program));
    request.set_version(kVersion);
    request.set_source("127.0.0.1:1");
    request.add_inner_pids(5);
    request.mutable_group()->set_id(99);
    request.mutable_group()->set_programs(2);
    request.mutable_group()->set_program(program);
    for (const auto& host : hosts) {
      request.mutable_group()->add_sources()->set_host(host);
      request.mutable_group()->mutable_sources()->rbegin()->set_programs(1);
    }
    v1::PrepareReply reply;
    Peer peer(there.host.address, &from);
    return failure_of([&] { peer.call(request, &reply, seconds(20)); });
  };
  EXPECT_EQ(prepared(here, 0, {"here", "other"}), "");
  EXPECT_PRED2(is_line_with, prepared(third, 1, {"here", "other"}),
               "this is a move of other, not of third");
  EXPECT_PRED2(is_line_with, prepared(here, 1, {"here", "other"}),
               "this is a move of other, not of here");
  EXPECT_PRED2(is_line_with, prepared(third, 1, {"here", "third"}), "no program of that group");
  EXPECT_PRED2(is_line_with, prepared(third, 1, {}), "no program of that group");
  EXPECT_PRED2(is_line_with, prepared(other, 1, {"here"}), "malformed request");
  EXPECT_EQ(prepared(other, 1, {"here", "other"}), "");
  // Each steers its own program.
  const auto refused = [&](const Credentials& from, std::uint64_t move_id) {
    v1::AbortRequest request;
    v1::AbortReply reply;
    request.set_move_id(move_id);
    Peer peer(there.host.address, &from);
    return failure_of([&] { peer.call(request, &reply, seconds(20)); });
  };
  EXPECT_PRED2(is_line_with, refused(here, 101), "this is a move of other, not of here");
  EXPECT_PRED2(is_line_with, refused(other, 100), "this is a move of here, not of other");
  EXPECT_EQ(refused(other, 101), "");
  EXPECT_TRUE(test::eventually([&] {
    const auto first = there.arrivals->find(100);
    return !first || first->is_over();
  }));
}

TEST_F(Security, ImagesComeFromTheHostOfTheMove) {
  Folder image;
  image.write("file", "secret");
  v1::PrepareReply reply;
  prepare(here, 78, &reply);
  ImageToken token;
  ASSERT_EQ(reply.image_token().size(), token.size());
  std::copy_n(reinterpret_cast<const std::byte*>(reply.image_token().data()), token.size(),
              token.begin());
  const auto port = static_cast<std::uint16_t>(reply.image_port());
  const auto send = [&](const Credentials* credentials, const std::string& host) {
    return failure_of([&] {
      ImageSender("127.0.0.1", port, token, credentials, host).send(image_files(image.path()));
    });
  };
  const Credentials third = ca.of("third"), stranger = Ca().of("here");
  EXPECT_NE(send(&third, "there"), "");
  EXPECT_NE(send(nullptr, "there"), "");
  EXPECT_PRED2(is_line_with, send(&stranger, "there"), "is not of this host's CA");
  EXPECT_PRED2(is_line_with, send(&here, "elsewhere"), "which is not for 'elsewhere'");
  EXPECT_TRUE(image_files(there.room->folder_of(78)).empty());
  EXPECT_EQ(send(&here, "there"), "");
  EXPECT_EQ(image_files(there.room->folder_of(78)).size(), 1u);
}

// The side of a scraper, whose certificate is in the place of a host's.
struct Scraper {
  Scraper(const Ca& ca, const KeyAndCertificate& own) : credentials(ca.of("prometheus")) {
    SSL_CTX* context = credentials.context();
    SSL_CTX_use_certificate(context, parse_certificate(own.certificate).get());
    SSL_CTX_use_PrivateKey(context, parse_key(own.key).get());
  }
  // What it reads of what is sent on a connection to this port first; empty: it is refused.
  std::string reads(std::uint16_t port) const {
    try {
      Stream stream = Stream::to_server(connect_tcp("127.0.0.1", port), &credentials, "127.0.0.1");
      const std::string request = "GET /metrics HTTP/1.1\r\n\r\n";
      stream.send(request.data(), request.size());
      std::string answer(1024, '\0');
      std::size_t size = 0;
      refusal = stream.receive_some(answer.data(), answer.size(), &size);
      return answer.substr(0, size);
    } catch (const Failure& failure) {
      ADD_FAILURE() << failure.what();
      return {};
    }
  }

  Credentials credentials;
  mutable int refusal = 0;  // errno
};

TEST_F(Security, AScraperReadsMetricsAndNothingElse) {
  const auto own = make_scraper_certificate(ca.pair, "prometheus", Days(1));
  const Scraper scraper(ca, own);
  UniqueFd listener = listen_tcp("127.0.0.1", 0);
  const std::uint16_t port = local_port(listener.get());
  const MetricsServer metrics(std::move(listener), &*there.credentials, [] { return "a 1\n"; });
  EXPECT_TRUE(scraper.reads(port).ends_with("a 1\n"));
  // Images, and calls of ferryd: at the handshake, before anything is asked.
  EXPECT_EQ(scraper.reads(there.images.port()), "");
  EXPECT_EQ(scraper.refusal, EACCES);
  EXPECT_EQ(scraper.reads(split_host_port(there.host.address, 0).second), "");
  EXPECT_NE(scraper.refusal, 0);  // gRPC sends no alert
  const auto channel = grpc::CreateChannel(
      there.host.address, grpc::SslCredentials({.pem_root_certs = ca.pair.certificate,
                                                .pem_private_key = own.key,
                                                .pem_cert_chain = own.certificate}));
  grpc::ClientContext context;
  v1::ProbeReply reply;
  EXPECT_FALSE(v1::Ferryd::NewStub(channel)->Probe(&context, {}, &reply).ok());
  // Nor is it believed where a host is called.
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  std::thread called([&] {
    EXPECT_NE(failure_of([&] { Stream::to_client(UniqueFd(ends[0]), &scraper.credentials); }), "");
  });
  EXPECT_PRED2(is_line_with,
               failure_of([&] { Stream::to_server(UniqueFd(ends[1]), &here, "prometheus"); }),
               "certificate purpose");
  called.join();
}

TEST_F(Security, AScraperOfAnotherCaReadsNothing) {
  const Ca other;
  const Scraper stranger(ca, make_scraper_certificate(other.pair, "prometheus", Days(1)));
  const Scraper expired(ca, make_scraper_certificate(ca.pair, "prometheus", Days(-1)));
  UniqueFd listener = listen_tcp("127.0.0.1", 0);
  const std::uint16_t port = local_port(listener.get());
  const MetricsServer metrics(std::move(listener), &*there.credentials, [] { return "a 1\n"; });
  for (const Scraper* each : {&stranger, &expired}) {
    EXPECT_EQ(each->reads(port), "");
    EXPECT_EQ(each->refusal, EACCES);
  }
}

// What goes over the network is not what is in the image.
TEST_F(Security, ImagesAreEncrypted) {
  const std::string secret = "correct horse battery staple";
  const Credentials server = ca.of("there");
  const UniqueFd listener = listen_tcp("127.0.0.1", 0);
  const UniqueFd relay = listen_tcp("127.0.0.1", 0);
  std::string seen;
  std::thread tap([&] {  // one way is enough to look at; both have to be carried
    const UniqueFd from(::accept(relay.get(), nullptr, nullptr));
    const UniqueFd to = connect_tcp("127.0.0.1", local_port(listener.get()));
    std::thread back([&] {
      char bytes[4096];
      for (ssize_t size; (size = ::recv(to.get(), bytes, sizeof bytes, 0)) > 0;) {
        if (::send(from.get(), bytes, static_cast<std::size_t>(size), MSG_NOSIGNAL) < 0) break;
      }
      ::shutdown(from.get(), SHUT_RDWR);
    });
    char bytes[4096];
    for (ssize_t size; (size = ::recv(from.get(), bytes, sizeof bytes, 0)) > 0;) {
      seen.append(bytes, static_cast<std::size_t>(size));
      if (::send(to.get(), bytes, static_cast<std::size_t>(size), MSG_NOSIGNAL) < 0) break;
    }
    ::shutdown(to.get(), SHUT_RDWR);
    back.join();
  });
  std::string arrived(secret.size(), '\0');
  std::thread receiver([&] {
    Stream stream =
        Stream::to_client(UniqueFd(::accept(listener.get(), nullptr, nullptr)), &server);
    EXPECT_EQ(stream.peer(), "here");
    EXPECT_EQ(stream.receive(arrived.data(), arrived.size()), 0);
  });
  {
    Stream stream =
        Stream::to_server(connect_tcp("127.0.0.1", local_port(relay.get())), &here, "there");
    EXPECT_EQ(stream.peer(), "there");
    EXPECT_EQ(stream.send(secret.data(), secret.size()), 0);
    receiver.join();
  }
  tap.join();
  EXPECT_EQ(arrived, secret);
  EXPECT_GT(seen.size(), secret.size());
  EXPECT_EQ(seen.find("horse"), std::string::npos);
}

// A signal is no silence of the other side's.
TEST(Streams, GoOnAfterASignal) {
  const Ca ca;
  const Credentials server = ca.of("there"), client = ca.of("here");
  struct sigaction ignore {};
  ignore.sa_handler = [](int) {};  // without SA_RESTART
  struct sigaction before {};
  ::sigaction(SIGUSR1, &ignore, &before);
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  const timeval limit{60, 0};
  ::setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  char byte = 0;
  std::atomic<bool> reads = false;
  std::thread receiver([&] {
    Stream stream = Stream::to_client(UniqueFd(ends[0]), &server);
    reads = true;
    EXPECT_EQ(stream.receive(&byte, 1), 0);
  });
  Stream stream = Stream::to_server(UniqueFd(ends[1]), &client, "there");
  while (!reads) std::this_thread::yield();
  for (int i = 0; i < 100; ++i) {
    ::pthread_kill(receiver.native_handle(), SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(stream.send("x", 1), 0);
  receiver.join();
  EXPECT_EQ(byte, 'x');
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST(Certificates, AreForTheNamesAndAddressesAskedFor) {
  const Ca ca;
  const auto pair = make_host_certificate(
      ca.pair, {"h2", {"h2", "h2.example.com"}, {"10.0.0.2", "fd78::2"}}, Days(10));
  const auto certificate = parse_certificate(pair.certificate);
  const Identity identity = identity_of(certificate.get());
  EXPECT_EQ(identity.name, "h2");
  for (const char* host : {"h2", "H2.Example.com", "10.0.0.2", "fd78::2", "fd78:0::2"}) {
    EXPECT_TRUE(identity.covers(host)) << host;
  }
  for (const char* host : {"h3", "example.com", "10.0.0.3", "fd78::3", ""}) {
    EXPECT_FALSE(identity.covers(host)) << host;
  }
  EXPECT_EQ(problem_with(certificate.get(), parse_certificate(ca.pair.certificate).get()), "");
  EXPECT_NE(problem_with(certificate.get(), parse_certificate(Ca().pair.certificate).get()), "");
  const auto left = end_of(certificate.get()) - std::chrono::system_clock::now();
  EXPECT_GT(left, Days(9));
  EXPECT_LE(left, Days(10));
}

TEST(Certificates, OfAHostMakeNoOthers) {
  const Ca ca;
  const auto host = ca.certificate("h2");
  const auto child = make_host_certificate(host, {"h3", {"h3"}, {}}, Days(1));
  EXPECT_NE(problem_with(parse_certificate(child.certificate).get(),
                         parse_certificate(ca.pair.certificate).get()),
            "");
  EXPECT_NE(problem_with(parse_certificate(child.certificate).get(),
                         parse_certificate(host.certificate).get()),
            "");
}

TEST(Certificates, OfAScraperMakeNoHost) {
  const Ca ca;
  const auto own = make_scraper_certificate(ca.pair, "prometheus", Days(1));
  EXPECT_TRUE(is_scraper(parse_certificate(own.certificate).get()));
  EXPECT_FALSE(is_scraper(parse_certificate(ca.certificate("h2").certificate).get()));
  EXPECT_FALSE(is_scraper(parse_certificate(ca.pair.certificate).get()));
  EXPECT_NE(failure_of([&] {
              Credentials(ca.pair.certificate, own.certificate, own.key);
            }).find("the certificate of prometheus is a scraper's, for metrics only"),
            std::string::npos);
  const auto child = make_host_certificate(own, {"h3", {"h3"}, {}}, Days(1));
  EXPECT_NE(problem_with(parse_certificate(child.certificate).get(),
                         parse_certificate(own.certificate).get()),
            "");
}

TEST(Certificates, NamesThatWouldSayMoreAreRefused) {
  const Ca ca;
  for (const char* name : {"h2,DNS:h3", "h 2", "", "h2\n", "*"}) {
    EXPECT_NE(failure_of([&] { ca.certificate(name); }), "") << name;
    EXPECT_NE(failure_of([&] { make_scraper_certificate(ca.pair, name, Days(1)); }), "") << name;
  }
}

TEST(Certificates, ThatHaveExpiredAreSaidToHave) {
  const Ca ca;
  const auto host = ca.certificate("h2", {}, Days(-1));
  EXPECT_NE(failure_of([&] {
              Credentials(ca.pair.certificate, host.certificate, host.key);
            }).find("certificate has expired"),
            std::string::npos);
}

TEST(Certificates, AreLoadedOnlyWithAPrivateKeyThatFits) {
  const Ca ca;
  Folder folder;
  const auto host = ca.certificate("h2"), other = ca.certificate("h3");
  EXPECT_FALSE(Credentials::exist(folder.path()));
  EXPECT_NE(failure_of([&] { Credentials::load(folder.path()); }).find("cannot read"),
            std::string::npos);
  folder.write(kCaFile, ca.pair.certificate);
  folder.write(kCertificateFile, host.certificate);
  folder.write(kKeyFile, host.key);
  EXPECT_TRUE(Credentials::exist(folder.path()));
  ::chmod(folder.path(kKeyFile).c_str(), 0644);
  EXPECT_NE(failure_of([&] { Credentials::load(folder.path()); }).find("can be read by others"),
            std::string::npos);
  ::chmod(folder.path(kKeyFile).c_str(), 0600);
  EXPECT_EQ(Credentials::load(folder.path()).identity().name, "h2");
  folder.write(kKeyFile, other.key);
  EXPECT_NE(failure_of([&] { Credentials::load(folder.path()); }).find("do not go together"),
            std::string::npos);
  folder.write(kKeyFile, "nonsense");
  EXPECT_NE(failure_of([&] { Credentials::load(folder.path()); }).find("no private key"),
            std::string::npos);
}

}  // namespace
}  // namespace ferry::host
