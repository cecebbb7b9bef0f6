#include "cli/certificates.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netdb.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <sstream>

#include "base/failure.h"
#include "base/net.h"
#include "base/unique_fd.h"
#include "cli/files.h"
#include "port/address_text.h"

namespace ferry::cli {
namespace {

using host::Certificate;
using host::Days;
using host::Identity;
using host::KeyAndCertificate;

constexpr Days kCaDays{3653};
constexpr char kCaKey[] = "ca.key", kCaCertificate[] = "ca.pem";
constexpr char kScraperKey[] = "scraper.key", kScraperCertificate[] = "scraper.pem";
constexpr char kBundleSuffix[] = ".ferry";

void make_private_directory(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) std::filesystem::permissions(path, std::filesystem::perms::owner_all, error);
  if (error) {
    errno = error.value();
    throw cannot("cannot make " + path);
  }
}

bool is_address(const std::string& text) {
  unsigned char bytes[16];
  return ::inet_pton(AF_INET, text.c_str(), bytes) == 1 ||
         ::inet_pton(AF_INET6, text.c_str(), bytes) == 1;
}

// False for an address that means something else on each host.
bool is_global(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto bits = ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr);
    return bits >> 24 != 127 && bits >> 16 != 0xA9FE;
  }
  if (address->sa_family != AF_INET6) return false;
  const auto& bits = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return !IN6_IS_ADDR_LOOPBACK(&bits) && !IN6_IS_ADDR_LINKLOCAL(&bits);
}

void add_new(std::vector<std::string>& list, const std::string& text) {
  if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
}

void add(Identity& identity, const std::string& text) {
  add_new(is_address(text) ? identity.addresses : identity.names, text);
}

void add_addresses_of_name(Identity& identity, const std::string& name) {
  addrinfo hints{}, *list = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(name.c_str(), nullptr, &hints, &list) != 0) return;
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  for (; list != nullptr; list = list->ai_next) {
    if (is_global(list->ai_addr)) {
      add_new(identity.addresses, port::to_string(port::to_address(list->ai_addr)));
    }
  }
}

void add_own_addresses(Identity& identity) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (; list != nullptr; list = list->ifa_next) {
    if (list->ifa_addr != nullptr && is_global(list->ifa_addr)) {
      add_new(identity.addresses, port::to_string(port::to_address(list->ifa_addr)));
    }
  }
}

// `add_more` finds addresses when the user gave none.
template <typename AddMore>
Identity identity_of(const NewHost& host, const std::string& name, AddMore add_more) {
  Identity identity;
  identity.name = name;
  identity.names.push_back(name);
  add(identity, name);
  for (const auto& text : host.also) add(identity, text);
  if (identity.addresses.empty()) add_more(identity);
  return identity;
}

KeyAndCertificate read_ca(const std::string& directory) {
  const std::string key = directory + "/" + kCaKey;
  std::error_code unknown;  // set where only root may look whether the key exists
  if (!std::filesystem::exists(key, unknown) && !unknown) {
    throw Failure(fmt::format(
        "there is no CA in {}; make one (ferry ca init), or do this on the host that has it",
        directory));
  }
  return {read_file(key), read_file(directory + "/" + kCaCertificate)};
}

std::string bundle(const KeyAndCertificate& ca, const KeyAndCertificate& host) {
  return host.key + host.certificate + ca.certificate;
}

// The text from the first "-----BEGIN KIND-----" behind `from` to its end; `from` moves behind it.
std::string pem_block(const std::string& text, const std::string& kind, std::size_t* from) {
  const std::string begin = "-----BEGIN " + kind + "-----", end = "-----END " + kind + "-----";
  const std::size_t first = text.find(begin, *from);
  const std::size_t last = first == std::string::npos ? first : text.find(end, first);
  if (last == std::string::npos) return {};
  *from = last + end.size();
  return text.substr(first, *from - first) + "\n";
}

void install(const std::string& text, const std::string& tls_directory, bool replace) {
  std::size_t at = 0;
  const std::string key = pem_block(text, "PRIVATE KEY", &at);
  const std::string certificate = pem_block(text, "CERTIFICATE", &at);
  const std::string ca = pem_block(text, "CERTIFICATE", &at);
  if (ca.empty()) throw Failure("that is no file from ferry host add");
  const host::Credentials credentials(ca, certificate, key);  // throws if they do not fit together
  const std::string ca_file = tls_directory + "/" + host::kCaFile;
  std::error_code ignored;
  if (!replace && std::filesystem::exists(ca_file, ignored) && read_file(ca_file) != ca) {
    throw Failure(fmt::format(
        "{} has certificates of another CA; to leave it for this one: ferry host join --replace",
        tls_directory));
  }
  make_private_directory(tls_directory);
  // ferryd looks for host.pem: that one comes last.
  write_file(ca_file, ca, 0600);
  write_file(tls_directory + "/" + host::kKeyFile, key, 0600);
  write_file(tls_directory + "/" + host::kCertificateFile, certificate, 0600);
}

// Runs `ferry host join` on the host, over ssh: the key goes through its stdin, never to a disk
// here.
void join_over_ssh(const std::string& where, const std::string& text) {
  if (where.starts_with('-')) throw Failure("'" + where + "' is no USER@HOST");
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw cannot("cannot start ssh");
  UniqueFd reading(ends[0]), writing(ends[1]);
  const bool is_root = where.starts_with("root@");
  const pid_t child = ::fork();
  if (child < 0) throw cannot("cannot start ssh");
  if (child == 0) {
    ::dup2(reading.get(), STDIN_FILENO);
    ::execlp("ssh", "ssh", "--", where.c_str(),
             is_root ? "ferry host join -" : "sudo -n ferry host join -", nullptr);
    std::fprintf(stderr, "ferry: cannot start ssh: %s\n", error_text(errno).c_str());
    ::_exit(127);
  }
  reading.reset();
  ::signal(SIGPIPE, SIG_IGN);
  std::string broken;
  try {
    write_all(writing.get(), text, "to ssh");
  } catch (const Failure& failure) {
    broken = failure.what();  // ssh has said why
  }
  writing.reset();
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0 || !broken.empty()) {
    throw Failure(
        fmt::format("could not join {} over ssh (above is why); without a USER@ a file is written "
                    "to copy there",
                    where));
  }
}

}  // namespace

int ca_init(const NewHost& self, const std::string& ca_directory,
            const std::string& tls_directory) {
  std::string name = self.host;
  if (name.empty()) {
    char own[HOST_NAME_MAX + 1] = "";
    ::gethostname(own, sizeof own - 1);
    name = own;
  }
  std::error_code ignored;
  if (std::filesystem::exists(ca_directory + "/" + kCaKey, ignored)) {
    throw Failure(
        fmt::format("there is a CA in {} already; add hosts to it: ferry host add", ca_directory));
  }
  const KeyAndCertificate ca = host::make_ca("Ferry CA of " + name.substr(0, 40), kCaDays);
  const auto own =
      host::make_host_certificate(ca, identity_of(self, name, add_own_addresses), Days(self.days));
  make_private_directory(ca_directory);
  write_file(ca_directory + "/" + kCaCertificate, ca.certificate, 0600);
  write_file(ca_directory + "/" + kCaKey, ca.key, 0600);
  try {
    install(bundle(ca, own), tls_directory, false);
  } catch (const Failure&) {
    ::unlink((ca_directory + "/" + kCaKey).c_str());
    ::unlink((ca_directory + "/" + kCaCertificate).c_str());
    throw;
  }
  fmt::print(
      "made a CA in {} and the certificate of {} in {}\nadd every other host with: ferry host add "
      "HOST\n",
      ca_directory, name, tls_directory);
  return 0;
}

int ca_scraper(const NewScraper& scraper, const std::string& ca_directory) {
  const KeyAndCertificate ca = read_ca(ca_directory);
  const auto own = host::make_scraper_certificate(ca, scraper.name, Days(scraper.days));
  const std::string folder = scraper.output.empty() ? scraper.name : scraper.output;
  std::error_code ignored;
  if (std::filesystem::exists(folder, ignored)) {
    throw Failure(fmt::format("{} exists; remove it, or give another --output", folder));
  }
  make_private_directory(folder);
  write_file(folder + "/" + host::kCaFile, ca.certificate, 0600);
  write_file(folder + "/" + kScraperKey, own.key, 0600);
  write_file(folder + "/" + kScraperCertificate, own.certificate, 0600);
  fmt::print("wrote {}, {} and {} to {}, a secret of {}, which may read metrics and nothing else\n",
             host::kCaFile, kScraperCertificate, kScraperKey, folder, scraper.name);
  return 0;
}

int host_add(const NewHost& host, const std::string& ca_directory) {
  const std::size_t at = host.host.find('@');
  const bool by_ssh = at != std::string::npos;
  const std::string name = by_ssh ? host.host.substr(at + 1) : host.host;
  if (by_ssh && !host.output.empty()) {
    throw Failure("USER@HOST is joined over ssh; for a file leave USER@ away");
  }
  const KeyAndCertificate ca = read_ca(ca_directory);
  const Identity identity =
      identity_of(host, name, [&](Identity& found) { add_addresses_of_name(found, name); });
  const std::string text = bundle(ca, host::make_host_certificate(ca, identity, Days(host.days)));
  if (by_ssh) {
    join_over_ssh(host.host, text);
    return 0;
  }
  if (host.output == "-") {
    std::cout << text << std::flush;
    return 0;
  }
  const std::string file = host.output.empty() ? name + kBundleSuffix : host.output;
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored)) {
    throw Failure(fmt::format("{} exists; remove it, or give another --output", file));
  }
  write_file(file, text, 0600);
  fmt::print("wrote {}, a secret of {}: copy it there, then there: ferry host join {}\n", file,
             name, std::filesystem::path(file).filename().string());
  if (identity.addresses.empty()) {
    fmt::print(
        "{} has no address that this host knows: others reach it by that name only (--also "
        "adds names and addresses)\n",
        name);
  }
  return 0;
}

int host_join(const std::string& file, const std::string& tls_directory, bool replace) {
  std::string text;
  if (file == "-") {
    std::ostringstream all;
    all << std::cin.rdbuf();
    text = all.str();
  } else {
    text = read_file(file);
  }
  install(text, tls_directory, replace);
  const auto credentials = host::Credentials::load(tls_directory);
  fmt::print("{} is a host now; (re)start its ferryd{}\n", credentials.identity().name,
             file == "-" ? "" : fmt::format(", and remove {}", file));
  return 0;
}

}  // namespace ferry::cli
