#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "traffic.h"

namespace nf_chain {

// What has come out of the chain, compared with what is to come out of it. A difference ends the program.
class Answers {
 public:
  Answers(const Traffic& traffic, std::size_t workers)
      : traffic_(traffic), of_worker_(workers), answered_(traffic.count()) {}

  void take(std::size_t worker, const Header& header, const char* content);
  // Whether each request that no rule denies was answered, and each worker had its share.
  void check() const;
  const std::vector<std::size_t>& of_worker() const { return of_worker_; }
  std::size_t count() const { return count_; }

 private:
  const Traffic& traffic_;
  std::vector<std::size_t> of_worker_;
  std::vector<bool> answered_;
  std::map<std::uint64_t, std::size_t> workers_of_flows_;
  std::size_t count_ = 0;
};

}  // namespace nf_chain
