#include "cli/history.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "base/failure.h"
#include "cli/ferryd/local_ferryd.h"
#include "cli/json.h"
#include "cli/text/size.h"
#include "cli/text/table.h"

namespace ferry::cli {
namespace {

// Milliseconds; empty for a part that the move did not have, or that is not known here.
std::string part(double ms) {
  return ms > 0 ? fmt::format("{:.1f}", ms) : std::string();
}

// "2026-11-25 22:20:53", UTC as in the log.
std::string time_of(const v1::PastMove& move) {
  std::string time = move.began().substr(0, 19);
  if (const auto t = time.find('T'); t != std::string::npos) time[t] = ' ';
  return time;
}

std::string why(const v1::PastMove& move) {
  if (move.step().empty() || move.reason().empty()) return move.reason();
  return fmt::format("{}: {}", move.step(), move.reason());
}

}  // namespace

std::string history_text(const v1::HistoryReply& reply) {
  Table table({"BEGAN", "PROGRAM", "FROM", "TO", "OUTCOME", "BLACKOUT-MS", "CHECK", "AHEAD", "STOP",
               "DUMP", "TRANSFER", "RESTORE", "COMMIT", "RESUME", "IMAGE", "WHY"});
  for (const auto& move : reply.moves()) {
    const v1::MoveReport& parts = move.parts();
    const std::string kind = move.kind() == "move" ? "" : fmt::format(" ({})", move.kind());
    table.add({time_of(move), move.program() + kind, move.from(), move.to(), move.outcome(),
               part(parts.blackout_ms()), part(parts.check_ms()), part(parts.ahead_ms()),
               part(parts.stop_ms()), part(parts.dump_ms()), part(parts.transfer_ms()),
               part(parts.restore_ms()), part(parts.commit_ms()), part(parts.resume_ms()),
               parts.image_bytes() == 0 ? "" : size_text(parts.image_bytes()), why(move)});
  }
  return table.text();
}

int history(const std::string& program, std::uint32_t limit, bool json) {
  if (printable(program) != program) throw Failure("there is no program of such a name");
  v1::HistoryRequest request;
  request.set_program(program);
  request.set_limit(limit);
  LocalFerryd ferryd;
  v1::HistoryReply reply;
  throw_unless_ok(ferryd->History(ferryd.context(), request, &reply));
  if (json) {
    auto output = to_json(reply);
    for (int i = 0; i < reply.moves_size(); ++i) {
      auto& move = output["moves"].at(static_cast<std::size_t>(i));
      move["move_id"] = id_text(reply.moves(i).move_id());
      move["group"] = id_text(reply.moves(i).group());
      for (const char* name : {"program", "from", "to"}) move["parts"].erase(name);
    }
    fmt::print("{}\n", output.dump(2));
  } else if (reply.moves().empty()) {
    fmt::print("no moves{} on {} yet\n", program.empty() ? "" : " of such a program", reply.host());
  } else {
    fmt::print("{}", history_text(reply));
  }
  return 0;
}

}  // namespace ferry::cli
