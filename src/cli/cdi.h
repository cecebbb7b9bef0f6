#pragma once

#include <string>

// Ferry's RDMA devices in containers (docs/containers.md).
namespace ferry::cli {

inline constexpr char kCdiFile[] = "/etc/cdi/ferry.json";
inline constexpr char kCdiLibraries[] = "/var/lib/ferry-cdi";

// `ferry cdi generate [--output FILE|--json]`: puts what containers need into a folder of
// `libraries` that is named after its content, and writes the CDI specification of the device
// ferry.dev/rnic=all, and of one for each RDMA device of the kernel, ferry.dev/rnic=rxe0; with
// `json` to stdout. Throws Failure.
int cdi_generate(const std::string& libraries, const std::string& output, bool json);

// `ferry cdi apply BUNDLE [--device NAME]`: adds the same to the config.json of a bundle, for runtimes that are used
// without an engine. May be repeated. `device`: a device of the kernel; empty: Ferry's own.
int cdi_apply(const std::string& libraries, const std::string& bundle, const std::string& device);

}  // namespace ferry::cli
