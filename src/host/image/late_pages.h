#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "precopy/page_server.h"
#include "precopy/page_store.h"

// The memory that a program which was restored here gets when it goes on already, from ferry-pages (src/late_pages).
namespace ferry::host {

struct ThisHost;

class LatePages {
 public:
  explicit LatePages(const ThisHost& host);

  // The program is held. Hands what it lacks to ferry-pages; nothing of this ferryd is needed any more then. `pids`: of
  // its processes, by their pids in their own pid namespace. Throws Failure: no ferry-pages will fill it in.
  void hand_over(pid_t root, const std::map<std::int32_t, pid_t>& pids,
                 const std::vector<precopy::PageServer::Later>& later,
                 const precopy::PageStore& store) const;
  // Returns when all processes of the tree have all of their pages: CRIU would take those that are missing for empty
  // ones. `go_on` throws when nobody wants to wait any more. Throws Failure: they have not got them in time, or never
  // will.
  void wait(const std::string& program, pid_t root, std::chrono::steady_clock::time_point deadline,
            const std::function<void()>& go_on) const;
  // Logs which programs have lost memory because both processes of ferry-pages were killed. Removes what is left of
  // programs that have ended.
  void tidy() const;

 private:
  std::string lock_of(pid_t root) const;
  void start(const std::string& path, int lock, const std::map<std::int32_t, pid_t>& pids,
             const std::vector<precopy::PageServer::Later>& later,
             const precopy::PageStore& store) const;
  void wait_for(const std::string& program, pid_t root,
                std::chrono::steady_clock::time_point deadline,
                const std::function<void()>& go_on) const;

  const std::string helper_;
  const std::string folder_;  // has a file for each program that does not have all of its pages yet
};

}  // namespace ferry::host
