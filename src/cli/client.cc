#include "cli/client.h"

#include <fmt/core.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/failure.h"
#include "cli/ferryd/local_ferryd.h"
#include "cli/json.h"
#include "cli/ps.h"
#include "ferry.grpc.pb.h"

namespace ferry::cli {

int ps(bool json, bool queue_pairs, const std::optional<std::string>& job) {
  LocalFerryd ferryd;
  v1::PsReply reply;
  throw_unless_ok(ferryd->Ps(ferryd.context(), {}, &reply));
  const bool is_one_job = job && !job->empty();
  if (is_one_job) keep_job(*job, &reply);
  if (json) {
    auto output = to_json(reply);
    for (auto& program : output["programs"]) {
      for (const char* id : {"move_id", "group"}) {
        program[id] = id_text(program[id].get<std::uint64_t>());
      }
    }
    fmt::print("{}\n", output.dump(2));
    return 0;
  }
  if (!reply.programs().empty()) {
    fmt::print("{}", queue_pairs ? queue_pairs_text(reply) : programs_text(reply, job.has_value()));
  } else if (is_one_job) {
    fmt::print("no program of job '{}' on {}; see: ferry ps --job\n", printable(*job),
               reply.host());
  } else {
    fmt::print(
        "nothing on {} uses an RDMA device of Ferry's; start programs with: ferry run -- PROGRAM\n",
        reply.host());
  }
  return 0;
}

int resolve(const std::string& move_id, bool commit) {
  v1::ResolveRequest request;
  char* end = nullptr;
  request.set_move_id(std::strtoull(move_id.c_str(), &end, 16));
  if (move_id.empty() || move_id.size() > 16 || *end != '\0' || request.move_id() == 0) {
    throw Failure(fmt::format("'{}' is no move id; see: ferry ps", move_id));
  }
  request.set_commit(commit);
  LocalFerryd ferryd;
  v1::ResolveReply reply;
  throw_unless_ok(ferryd->Resolve(ferryd.context(), request, &reply));
  return 0;
}

}  // namespace ferry::cli
