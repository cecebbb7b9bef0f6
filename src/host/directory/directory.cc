#include "host/directory/directory.h"

#include <fmt/core.h>

#include "base/failure.h"
#include "base/net.h"
#include "host/directory/etcd_directory.h"
#include "host/directory/hosts_directory.h"
#include "host/peers/peer.h"

namespace ferry::host {
namespace {

constexpr std::uint16_t kEtcdPort = 2379;

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at <= list.size();) {
    const std::size_t end = std::min(list.find(',', at), list.size());
    if (end > at) parts.push_back(list.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

}  // namespace

std::unique_ptr<Directory> make_directory(const DirectoryOptions& options) {
  const std::string ferryd = "ferryd://";
  for (const std::string etcd : {"etcd://", "etcds://"}) {
    if (!options.url.starts_with(etcd)) continue;
    std::vector<EtcdDirectory::Endpoint> endpoints;
    for (const auto& endpoint : split(options.url.substr(etcd.size()))) {
      const auto [host, port] = split_host_port(endpoint, kEtcdPort);
      endpoints.push_back({join_host_port(resolve(host), port), host});
    }
    if (endpoints.empty()) throw Failure("--directory " + etcd + " names no HOST:PORT");
    const bool tls = etcd == "etcds://";
    if (tls && options.etcd_credentials == nullptr) {
      throw Failure(
          "--directory etcds:// needs certificates, and this host has none; give it some: ferry "
          "host add, or --etcd-tls-dir");
    }
    return std::make_unique<EtcdDirectory>(std::move(endpoints),
                                           tls ? options.etcd_credentials : nullptr,
                                           std::chrono::ceil<std::chrono::seconds>(options.lease));
  }
  if (options.url.starts_with(ferryd)) {
    std::map<std::string, std::string> hosts;
    for (const auto& entry : split(options.url.substr(ferryd.size()))) {
      const auto [host, port] = split_host_port(entry, kFerrydPort);
      hosts.emplace(join_host_port(resolve(host), port), host);
    }
    return std::make_unique<HostsDirectory>(options.self, options.credentials, std::move(hosts));
  }
  throw Failure(fmt::format(
      "unknown directory '{}'; known: etcd[s]://HOST:PORT[,...], ferryd://[HOST[:PORT],...]",
      options.url));
}

}  // namespace ferry::host
