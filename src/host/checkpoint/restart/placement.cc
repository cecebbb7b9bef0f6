#include "host/checkpoint/restart/placement.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "base/failure.h"
#include "ferry.pb.h"

namespace ferry::host {
namespace {

std::uint64_t content_of(const store::Program& program) {
  std::uint64_t bytes = 0;
  for (const auto& shard : program.shards) bytes += shard.content;
  return bytes;
}

// For each program, by its number, the host.
std::vector<std::string> dealt_out(const store::Manifest& manifest,
                                   const std::vector<std::string>& hosts) {
  if (std::set(hosts.begin(), hosts.end()).size() < hosts.size()) {
    throw Failure("--on names a host twice");
  }
  std::vector<std::size_t> order(manifest.programs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t one, std::size_t other) {
    return content_of(manifest.programs[one]) > content_of(manifest.programs[other]);
  });
  std::vector<std::uint64_t> bytes(hosts.size());
  std::vector<std::string> placed(manifest.programs.size());
  for (const auto program : order) {
    const auto least = std::min_element(bytes.begin(), bytes.end());
    *least += content_of(manifest.programs[program]);
    placed[program] = hosts[static_cast<std::size_t>(least - bytes.begin())];
  }
  return placed;
}

std::vector<std::string> mapped(const store::Manifest& manifest, const v1::RestartRequest& request,
                                const std::string& here) {
  std::set<std::string> former;
  for (const auto& program : manifest.programs) former.insert(program.host);
  for (const auto& [from, to] : request.map()) {
    if (!former.contains(from)) {
      throw Failure(fmt::format("no program of checkpoint {} ran on {}", manifest.id, from));
    }
  }
  std::vector<std::string> placed;
  for (const auto& program : manifest.programs) {
    const auto found = request.map().find(program.host);
    if (found != request.map().end())
      placed.push_back(found->second);
    else
      placed.push_back(former.size() == 1 ? here : program.host);
  }
  return placed;
}

}  // namespace

std::vector<Placed> placement_of(const store::Manifest& manifest, const v1::RestartRequest& request,
                                 const std::string& here) {
  if (!request.hosts().empty() && !request.map().empty()) {
    throw Failure("--on and --map do not go together");
  }
  const auto hosts = request.hosts().empty()
                         ? mapped(manifest, request, here)
                         : dealt_out(manifest, {request.hosts().begin(), request.hosts().end()});
  std::vector<Placed> placement;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    auto found = std::find_if(placement.begin(), placement.end(),
                              [&](const Placed& placed) { return placed.host == hosts[i]; });
    if (found == placement.end()) found = placement.insert(found, {hosts[i], {}});
    found->programs.push_back(static_cast<std::uint32_t>(i));
  }
  return placement;
}

}  // namespace ferry::host
