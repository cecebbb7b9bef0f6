#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "base/build_id.h"
#include "base/failure.h"
#include "base/unique_fd.h"
#include "ferryd_here.h"
#include "host/attestation/attestor.h"
#include "played_ca.h"
#include "played_process.h"

// What ferryds tell each other of the libraries of programs, and whom they trust (docs/security.md).
namespace ferry::test {
namespace {

constexpr std::size_t kPage = 4096;

// A file libferry.so, mapped in this process as code.
class MappedLibrary {
 public:
  explicit MappedLibrary(const std::string& folder) : path_(folder + "/libferry.so") {
    std::filesystem::create_directories(folder);
    std::filesystem::copy_file("/proc/self/exe", path_);
    const UniqueFd file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    code_ = ::mmap(nullptr, 4 * kPage, PROT_READ | PROT_EXEC, MAP_PRIVATE, file.get(), kPage);
  }
  ~MappedLibrary() { ::munmap(code_, 4 * kPage); }
  MappedLibrary(const MappedLibrary&) = delete;

  const std::string& path() const { return path_; }
  bool change() {
    if (::mprotect(code_, 4 * kPage, PROT_READ | PROT_WRITE) != 0) return false;
    static_cast<char*>(code_)[kPage + 1] ^= 1;
    return ::mprotect(code_, 4 * kPage, PROT_READ | PROT_EXEC) == 0;
  }

 private:
  std::string path_;
  void* code_ = MAP_FAILED;
};

struct Libraries : testing::Test {
  Folder folder;
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, as ferryd does";
  }
};

TEST_F(Libraries, AreThoseThatTheKernelHasMapped) {
  const MappedLibrary mapped(folder.path("a"));
  const Library library = library_of(::getpid());
  EXPECT_EQ(library.digest, digest_of(mapped.path()));
  EXPECT_EQ(library.digest.size(), 64u);
  EXPECT_EQ(library.build_id, build_id_of("/proc/self/exe"));
  EXPECT_TRUE(library.is_intact);
  // The file that is mapped counts, not one that has its name by now.
  std::filesystem::remove(mapped.path());
  std::ofstream(mapped.path()) << "another";
  EXPECT_EQ(library_of(::getpid()).digest, library.digest);
}

TEST_F(Libraries, WhoseCodeWasChangedInMemoryAreNotIntact) {
  MappedLibrary mapped(folder.path("a"));
  ASSERT_TRUE(mapped.change());
  EXPECT_FALSE(library_of(::getpid()).is_intact);
}

TEST_F(Libraries, AreOneOfAProcess) {
  EXPECT_NE(failure_of([] { library_of(::getpid()); }).find("has no libferry.so"),
            std::string::npos);
  const MappedLibrary one(folder.path("a")), other(folder.path("b"));
  EXPECT_NE(failure_of([] { library_of(::getpid()); }).find("has more than one libferry.so"),
            std::string::npos);
}

TEST(TrustedLibraries, AreReadFromWhatSha256sumPrints) {
  const Folder folder;
  const std::string path = folder.path("trusted"), digest(64, 'a');
  std::ofstream(path) << "# of version 1\n\n" << digest << "  /usr/lib/ferry/libferry.so\n";
  const auto trusted = host::TrustedLibraries::load(path);
  EXPECT_TRUE(trusted.has(digest));
  EXPECT_FALSE(trusted.has(std::string(64, 'b')));
  EXPECT_FALSE(trusted.are_all());
  EXPECT_TRUE(host::TrustedLibraries::load("").has(digest));
  std::ofstream(path) << digest << "\nlibferry.so\n";
  EXPECT_NE(failure_of([&] { host::TrustedLibraries::load(path); }).find("line 2"),
            std::string::npos);
  EXPECT_NE(failure_of([&] { host::TrustedLibraries::load(folder.path("none")); }), "");
}

TEST(Signatures, AreOfAHostOfTheCa) {
  const Ca ca, strangers;
  const Credentials here = ca.of("here"), there = ca.of("there");
  const std::string signature = there.sign("text");
  here.verify("text", signature, there.certificate(), "there");
  here.verify("text", signature, there.certificate(), "127.0.0.1");
  const auto refused = [&](const std::string& text, const std::string& by,
                           const std::string& certificate, const std::string& host) {
    return failure_of([&] { here.verify(text, by, certificate, host); });
  };
  EXPECT_NE(refused("texts", signature, there.certificate(), "there"), "");
  EXPECT_NE(refused("text", signature, there.certificate(), "here"), "");
  EXPECT_NE(refused("text", signature, here.certificate(), "here"), "");
  EXPECT_NE(refused("text", "", there.certificate(), "there"), "");
  const Credentials stranger = strangers.of("there");
  EXPECT_NE(refused("text", stranger.sign("text"), stranger.certificate(), "there"), "");
  const auto scraper = make_scraper_certificate(ca.pair, "there", Days(1));
  EXPECT_NE(refused("text", signature, scraper.certificate, "there"), "");
}

device::Letter::End end_of(std::uint32_t host, std::uint32_t qpn) {
  return {port::Address::from_ipv4(0x0A4F0000 + host), qpn};
}

// m on this host is connected with p on the other, whose ferryd says what a test has put into `library_`.
struct Attested : testing::Test {
  const device::Letter::End m = end_of(1, 17), p = end_of(2, 18);
  const std::string known = std::string(64, 'a'), unknown = std::string(64, 'b');
  std::mutex mutex;  // guards library_: threads of gRPC's read it
  Library library_{"01", known, true};
  std::atomic<int> looks{0}, trusted_from{0};  // until that look, the library is another
  Ca ca;
  Folder folder;
  FerrydHere here{"here", ca.of("here")}, there{"there", ca.of("there")};

  void SetUp() override {
    std::ofstream(folder.path("trusted")) << known << "  libferry.so\n";
    for (auto* ferryd : {&here, &there}) {
      ferryd->stop();
      ferryd->kernel.names_of = every_process_has({m, p});
      ferryd->library_of = [this](pid_t) {
        std::unique_lock lock(mutex);
        Library found = library_;
        lock.unlock();
        if (++looks < trusted_from) found.digest = unknown;
        return found;
      };
    }
    here.trusted = host::TrustedLibraries::load(folder.path("trusted"));
    here.restart();
    there.restart();
    here.carrier->met(ferryd_there());
  }
  Carrier::Ferryd ferryd_there() const { return {there.host.address, "there"}; }
  void have(const std::string& digest, bool is_intact = true) {
    std::lock_guard lock(mutex);
    library_ = {"01", digest, is_intact};
  }
  std::string refusal() {
    return failure_of([&] { here.attestor->need_trusted(ferryd_there(), {{m, p}}); });
  }
  static void await(FerrydHere& ferryd) {
    ASSERT_TRUE(eventually([&] { return ferryd.control->processes().size() == 1; }));
  }
};

TEST_F(Attested, ByItsHostALibraryIsTrustedWhenItsDigestIs) {
  EXPECT_NE(refusal().find("no program has it"), std::string::npos);
  PlayedProcess peer(there.folder.path("sock"), has(p, m, 2));
  await(there);
  have(unknown);
  EXPECT_NE(refusal().find(unknown), std::string::npos);
  have(known, false);
  EXPECT_NE(refusal().find("not that of its file"), std::string::npos);
  have(known);
  EXPECT_EQ(refusal(), "");
}

TEST_F(Attested, OnThisHostTheSameHolds) {
  PlayedProcess own(here.folder.path("sock"), has(m, p, 1));
  await(here);
  have(unknown);
  const auto refusal_here = [&] {
    return failure_of([&] { here.attestor->need_trusted({}, {{p, m}}); });
  };
  EXPECT_NE(refusal_here().find(unknown), std::string::npos);
  have(known);
  EXPECT_EQ(refusal_here(), "");
}

TEST_F(Attested, LettersOfAnotherLibraryWaitUntilItIsTrusted) {
  trusted_from = 3;
  PlayedProcess receiver(here.folder.path("sock"), has(m, p, 1));
  PlayedProcess sender(there.folder.path("sock"), has(p, m, 2));
  await(here);
  await(there);
  there.carrier->met({here.host.address, "here"});
  there.carrier->send(sender.pid(), {{p, m, {std::byte{1}}}});
  EXPECT_TRUE(eventually([&] { return receiver.seen().letters == 1; }));
  EXPECT_EQ(looks, 3);
}

TEST_F(Attested, AMalformedQuestionIsRefused) {
  v1::AttestRequest request;
  request.set_nonce("short");
  EXPECT_NE(failure_of([&] { there.attestor->attest(request); }), "");
}

}  // namespace
}  // namespace ferry::test
