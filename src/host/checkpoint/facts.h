#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "ferry.pb.h"
#include "host/journal/process_slots.h"
#include "host/move/source/group/cut.h"
#include "host/proc/written_files.h"

// What a restart has to know of a program: the facts in a checkpoint's manifest (store/manifest.h).
namespace ferry::host {

struct Facts {
  std::uint64_t move_id = 0;  // in the image: by it the processes ask for their sockets
  v1::CheckRequest check;     // what the program needs of its host
  std::vector<ProcessSlots> places;
  std::uint64_t boot = 0;                    // of its host (journal/journal.h, Stamp)
  std::map<pid_t, std::uint64_t> processes;  // and their start_time() there
  std::vector<WrittenFile> written;
  std::string ferryd;  // address:port of its host's
};

Facts facts_of(const Cut::Part& part, const std::string& ferryd);
nlohmann::json to_json(const Facts& facts);
// Throws Failure for what are no facts.
Facts parse_facts(const nlohmann::json& value, const std::string& program);

}  // namespace ferry::host
