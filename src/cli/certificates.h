#pragma once

#include <string>
#include <vector>

#include "host/peers/credentials.h"

// Who may be a host: a CA in a directory of one host, a certificate in a directory of each.
//
//   ferry ca init           ca.key (0600) and ca.pem in --ca-dir; a certificate for this host
//   ferry host add HOST     HOST.ferry: key, certificate and the CA's certificate, one PEM file
//   ferry host join FILE    puts the three into --tls-dir, where ferryd finds them
//   ferry ca scraper NAME   ca.pem, scraper.pem and scraper.key (0600) in a folder, for a scraper,
//                           which reads metrics and is no host
//
// All throw Failure, and change nothing then.
namespace ferry::cli {

inline constexpr char kCaDirectory[] = "/etc/ferry/ca";

struct NewHost {
  std::string host;               // name or address; USER@HOST: joined over ssh
  std::vector<std::string> also;  // more names and addresses
  std::string output;             // file, "-" for stdout; empty: HOST.ferry here
  long days = 1096;               // valid for
};

struct NewScraper {
  std::string name;
  std::string output;  // folder; empty: NAME here
  long days = 1096;    // valid for
};

int ca_init(const NewHost& self, const std::string& ca_directory, const std::string& tls_directory);
int ca_scraper(const NewScraper& scraper, const std::string& ca_directory);
int host_add(const NewHost& host, const std::string& ca_directory);
// `file`: "-" for stdin. A directory whose certificates are of another CA is left alone unless
// `replace`.
int host_join(const std::string& file, const std::string& tls_directory, bool replace);

}  // namespace ferry::cli
