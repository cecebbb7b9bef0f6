#include "host/units/vm/guest_talk.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "base/failure.h"
#include "base/net.h"
#include "guest.pb.h"
#include "host/units/vm/qemu_command.h"

namespace ferry::host {
namespace {

using std::chrono::milliseconds;
using Clock = Lines::Clock;

constexpr milliseconds kConnectLimit{5000};
constexpr milliseconds kFirstRepeat{50},
    kRepeat{1000};                   // of a request: the first pause doubles until it is the other
constexpr int kMostPrograms = 500;   // of an answer
constexpr milliseconds kGlance{50};  // between looks whether the answer is still wanted

// The port may still have answers for a former ferryd.
std::uint64_t new_id() {
  std::random_device random;
  return (std::uint64_t{random()} << 32 | random()) | 1;
}

// What a guest says of itself is believed, within bounds.
void bound(v1::GuestReply* reply) {
  auto* programs = reply->mutable_programs();
  if (programs->size() > kMostPrograms) {
    programs->DeleteSubrange(kMostPrograms, programs->size() - kMostPrograms);
  }
  for (auto& program : *programs) {
    program.set_name(guest_text(program.name()));
    const double stood_still = program.stood_still_ms();
    program.set_stood_still_ms(std::isfinite(stood_still) ? std::max(stood_still, 0.0) : 0);
  }
}

}  // namespace

std::string guest_text(const std::string& told) {
  constexpr std::size_t kLongest = 300;
  return printable(one_line(told.substr(0, kLongest)));
}

GuestTalk::GuestTalk(const std::string& folder, std::string name)
    : name_(std::move(name)), lines_(connect_unix(guest_port_of(folder), kConnectLimit)) {}

v1::GuestReply GuestTalk::ask(v1::GuestRequest request, milliseconds limit,
                              const Check& need_wanted) {
  request.set_id(new_id());
  const auto until = Clock::now() + limit;
  std::string waiting;
  try {
    lines_.write(request, until);
    milliseconds pause = kFirstRepeat;
    auto repeat_at = Clock::now() + pause;
    bool is_heard = false;
    while (Clock::now() < until) {
      if (need_wanted) need_wanted();
      // The port loses what comes while the guest's ferryd opens it again. Another ferryd there, which has not heard of
      // the request, can answer a Return as well, but not a Leave.
      if (Clock::now() > repeat_at && (!is_heard || request.has_return_())) {
        lines_.write(request, until);
        pause = std::min(2 * pause, kRepeat);
        repeat_at = Clock::now() + pause;
      }
      v1::GuestReply reply;
      if (!lines_.read(&reply, std::min(until, Clock::now() + kGlance))) continue;
      if (reply.id() != request.id()) continue;
      is_heard = true;
      waiting = guest_text(reply.waiting());
      if (!waiting.empty()) continue;
      if (!reply.failure().empty()) throw Failure(guest_text(reply.failure()));
      bound(&reply);
      return reply;
    }
  } catch (const Failure& failure) {
    throw Failure(fmt::format("in the machine '{}': {}", name_, failure.what()));
  }
  if (!waiting.empty()) throw Failure(fmt::format("in the machine '{}': {}", name_, waiting));
  throw Failure(fmt::format(
      "in the machine '{}' no ferryd answers at its serial port; start ferryd there", name_));
}

v1::GuestReply GuestTalk::look(const std::vector<std::string>& nics, milliseconds limit) {
  v1::GuestRequest request;
  request.mutable_look()->mutable_nics()->Assign(nics.begin(), nics.end());
  return ask(std::move(request), limit, {});
}

v1::GuestReply GuestTalk::leave(const std::vector<std::string>& nics, milliseconds away,
                                milliseconds limit, const Check& need_wanted) {
  v1::GuestRequest request;
  request.mutable_leave()->mutable_nics()->Assign(nics.begin(), nics.end());
  request.mutable_leave()->set_limit_ms(static_cast<std::uint32_t>(away.count()));
  return ask(std::move(request), limit, need_wanted);
}

v1::GuestReply GuestTalk::come_back(milliseconds limit, const Check& need_wanted) {
  v1::GuestRequest request;
  request.mutable_return_();
  return ask(std::move(request), limit, need_wanted);
}

}  // namespace ferry::host
