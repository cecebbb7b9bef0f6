#pragma once

#include <string>
#include <vector>

namespace ferry::cli::doctor {

// `ferry doctor [HOST...]`: what works on this host and towards others, and the way out of what
// does not (docs/doctor.md). Gives the exit status: 1 when there is a problem.
int run(const std::vector<std::string>& hosts, const std::string& tls, bool json);

}  // namespace ferry::cli::doctor
