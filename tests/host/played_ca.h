#pragma once

#include <string>
#include <vector>

#include "host/peers/certificate.h"
#include "host/peers/credentials.h"

namespace ferry::test {

using namespace host;

// A CA, and the certificates of hosts that it makes.
struct Ca {
  KeyAndCertificate pair = make_ca("test CA", Days(1));
  KeyAndCertificate certificate(const std::string& name,
                                const std::vector<std::string>& addresses = {"127.0.0.1"},
                                Days days = Days(1)) const {
    return make_host_certificate(pair, {name, {name}, addresses}, days);
  }
  Credentials of(const std::string& name,
                 const std::vector<std::string>& addresses = {"127.0.0.1"}) const {
    const auto host = certificate(name, addresses);
    return {pair.certificate, host.certificate, host.key};
  }
};

}  // namespace ferry::test
