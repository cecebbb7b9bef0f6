#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

// OCI bundles, and what of a bundle has to be on the host to which its container goes. Paths in
// config.json are relative to the bundle's folder.
namespace ferry::host {

// Reads BUNDLE/config.json. Throws Failure.
nlohmann::json read_config(const std::string& bundle);

// True for a bind mount. The mounts that CDI adds have no type, but options.
bool is_bind(const nlohmann::json& mount);

// On the source: throws Failure when a container with this config cannot move.
void check_config(const nlohmann::json& config);

// The path of the container's network namespace; empty: it is on the host's network. Throws Failure
// for a namespace without a path.
std::string network_namespace(const nlohmann::json& config);

// The folder of the container's root filesystem.
std::string root_folder(const std::string& bundle, const nlohmann::json& config);

// On the destination: the root filesystem, the sources of bind mounts and the hooks' programs
// are there, and a config.json that is there already is for the same network. `copied`: bytes of a
// root filesystem that is going to be copied, for which there has to be room. Throws Failure.
void check_bundle(const std::string& bundle, const nlohmann::json& config,
                  std::optional<std::uint64_t> copied);

}  // namespace ferry::host
