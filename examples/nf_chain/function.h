#pragma once

#include <memory>
#include <string>
#include <vector>

#include "../carriers/channel.h"
#include "output.h"
#include "request.h"
#include "rules.h"

namespace nf_chain {

// A network function. It passes on what it is given, or does not.
class Function {
 public:
  virtual ~Function() = default;
  virtual const char* name() const = 0;
  // Whether it has written the request to one of the outputs.
  virtual bool process(const Header& header, const char* payload, std::vector<Output>& outputs) = 0;
};

std::unique_ptr<Function> make_firewall(Rules denied);
std::unique_ptr<Function> make_balancer();
std::unique_ptr<Function> make_decryption(const std::string& key);

// Where a function listens for the one before, and where those after it do.
struct Place {
  std::string at;
  std::vector<std::string> to;
};

// Runs a function until the end of the requests: one thread receives, and this one processes and sends.
Report run(Function& function, carriers::Carrier& carrier, const Place& place);

}  // namespace nf_chain
