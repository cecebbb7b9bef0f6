#pragma once

#include <atomic>
#include <string>

#include "base/limits.h"
#include "host/proc/process_ids.h"

namespace ferry::host {

class Credentials;

// What ferryd was told of its host and itself when it started. Only `stopping` changes.
struct ThisHost {
  std::string name;     // as users call it
  std::string address;  // address:port of this ferryd; empty: it serves this host only
  std::string version;
  const Credentials* credentials = nullptr;  // null: nothing is checked (--insecure)
  std::string state_directory;               // survives a restart
  std::string rootfs_helper;                 // ferry-rootfs
  std::string pages_helper;                  // ferry-pages
  Limits limits;
  IsTaken is_taken = is_taken_here;   // process ids
  std::atomic<bool> stopping{false};  // this ferryd ends
};

// Throws Failure when this ferryd ends.
void need_to_stay(const ThisHost& host);

// Throws Failure when its ferryd serves this host only.
void need_other_hosts(const ThisHost& host);

}  // namespace ferry::host
