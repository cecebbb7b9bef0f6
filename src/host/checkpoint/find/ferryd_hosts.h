#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "host/checkpoint/find/closure.h"

namespace ferry::host {

class Carrier;
class Directory;
struct ThisHost;

// This host, and others by their ferryds.
class FerrydHosts final : public Hosts {
 public:
  using Here = std::function<std::vector<FoundProgram>(const Question& question)>;

  // `named`: the other hosts that are asked, as Peer takes them, and that have to answer. Empty: those that this ferryd
  // knows, those at whose RDMA addresses peers are, and those of which the directory tells that peers are there.
  FerrydHosts(const ThisHost& host, Here here, const Carrier& carrier, Directory& directory,
              std::vector<std::string> named);

  std::string here() const override;
  std::vector<HostAnswer> ask(const Question& question, const std::string& only) override;
  std::set<std::string> silent() const override { return silent_; }

 private:
  // A ferryd that is asked.
  struct Target {
    PeerRecord ferryd;
    bool has_to_answer = false, is_guess = false;
  };
  struct Outcome {
    HostAnswer answer;
    bool has_answered = false;
    std::string refusal;  // that it gave in place of an answer
  };

  std::vector<Target> targets_for(const Question& question) const;
  std::vector<Target> told_by_directory(const Question& question,
                                        const std::vector<HostAnswer>& answers) const;
  void ask(const std::vector<Target>& targets, const Question& question,
           std::vector<HostAnswer>* answers);
  Outcome ask_one(const Target& target, const Question& question) const;

  const ThisHost& host_;
  const Here here_;
  const Carrier& carrier_;
  Directory& directory_;
  const std::vector<std::string> named_;
  std::set<std::string> silent_;    // names, or addresses
  std::set<std::string> given_up_;  // addresses where nobody answers
};

}  // namespace ferry::host
