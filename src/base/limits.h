#pragma once

#include <chrono>
#include <span>
#include <string>

// How long a ferryd waits for things that depend on a program or another host. docs/settings.md
// tells what happens after that. A promise has no limit: only the other side's answer or an
// operator ends it.
namespace ferry {

struct Limits {
  using Time = std::chrono::milliseconds;
  // For the processes of a program to stop RDMA. Normally it takes milliseconds, but a busy
  // machine, or one whose own processors are taken from it, keeps a thread waiting for seconds;
  // nothing is lost meanwhile.
  Time stop = std::chrono::seconds(10);
  Time transfer = std::chrono::seconds(45);  // for an image to arrive
  Time restore = std::chrono::seconds(45);   // for CRIU to restore it
  // From the start of CRIU's dump to the record of the commit, for all of it: then the move is
  // given up. Shorter than peers stay Paused (transport::MigrationSettings::paused_limit), because
  // they would end their connections otherwise.
  Time standstill = std::chrono::seconds(45);
  // For an answer of an arrival's source, until all of its group is held.
  Time source = std::chrono::seconds(60);
  Time resume = std::chrono::seconds(30);  // from the commit to the program's word that it goes on
  Time peers = std::chrono::seconds(3);    // for its peers to know, before the report is given
  // How long stand-ins stay after the commit, for peers of which nobody says that they know the new
  // place, and for datagrams.
  Time stand_in = std::chrono::minutes(10);
  Time checkpoint = std::chrono::hours(24);  // for somebody to restore a checkpoint
  Time origin = std::chrono::minutes(10);    // for somebody to tell of an RNIC whose slot is kept
  Time lease = std::chrono::seconds(15);     // of what this ferryd tells etcd
};

struct Limit {
  const char* name;
  Limits::Time Limits::*value;
  Limits::Time least, most;
};

// All of them, in the order of docs/settings.md.
std::span<const Limit> all_limits();

// `text` is NAME=TIME, TIME a whole number with a unit, ms, s or min: stop=500ms. Throws Failure.
void set_limit(const std::string& text, Limits* limits);

// As set_limit() reads it, in the largest unit that needs no fraction.
std::string to_string(Limits::Time time);

// Why a move is given up when Limits::standstill is over.
std::string stood_still(Limits::Time standstill);

}  // namespace ferry
