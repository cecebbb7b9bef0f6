#include "host/history/expected_stop.h"

#include <algorithm>
#include <optional>

#include "ferry.pb.h"
#include "host/history/history.h"

namespace ferry::host {
namespace {

using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr std::size_t kLatest = 8, kFewest = 3;  // moves that count
constexpr Milliseconds kGuess{200};  // bench/: programs of 16 MiB to 1 GiB, on 2 busy processors
// Bytes; the stop of a larger one says more of its memory than of anything else.
constexpr double kSmallImage = 16 << 20;

// Nothing: it tells nothing of a move whose memory was sent before.
std::optional<Milliseconds> own_time(const v1::PastMove& move) {
  const auto& parts = move.parts();
  if (move.direction() != direction_of(Side::kSource) ||
      (move.kind() != "move" && !move.kind().empty()) || move.outcome() != History::kMoved ||
      move.group() != 0 || !(parts.blackout_ms() > 0)) {
    return std::nullopt;
  }
  const auto sent_then = static_cast<double>(parts.last_bytes());
  if (parts.ahead_rounds() == 0) {
    if (static_cast<double>(parts.image_bytes()) > kSmallImage) return std::nullopt;
    return Milliseconds(parts.blackout_ms());
  }
  if (parts.ahead_bytes() == 0 || !(parts.ahead_ms() > 0)) return std::nullopt;
  const double bytes_per_ms = static_cast<double>(parts.ahead_bytes()) / parts.ahead_ms();
  // CRIU dumps while the memory is sent: what that took beyond the dump is a part of the transfer.
  const double beyond = std::min(sent_then / bytes_per_ms, parts.transfer_ms());
  return Milliseconds(std::max(parts.blackout_ms() - beyond, 0.0));
}

}  // namespace

ExpectedStop expected_stop(const std::vector<v1::PastMove>& moves, const std::string& program,
                           const std::string& to) {
  const auto is_of = [&](const v1::PastMove& move) {
    return move.program() == program.substr(0, History::kMostName);
  };
  std::vector<Milliseconds> alike;
  const auto take = [&](auto is_alike) {
    alike.clear();
    for (auto move = moves.rbegin(); move != moves.rend() && alike.size() < kLatest; ++move) {
      if (!is_alike(*move)) continue;
      if (const auto time = own_time(*move)) alike.push_back(*time);
    }
    return alike.size() >= kFewest;
  };
  if (!take([&](const auto& move) { return is_of(move) && move.to() == to; }) && !take(is_of) &&
      !take([&](const auto& move) { return is_of(move) || move.to() == to; }) &&
      !take([](const auto&) { return true; })) {
    return {kGuess, 0};
  }
  const auto third = alike.begin() + static_cast<std::ptrdiff_t>((3 * alike.size() + 3) / 4 - 1);
  std::nth_element(alike.begin(), third, alike.end());
  return {*third, alike.size()};
}

}  // namespace ferry::host
