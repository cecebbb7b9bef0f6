#include <utility>

#include "virtual/talks/talks.h"

// Peers that end in the midst of a move or of an introduction: their programs end, or reset or destroy their QPs.
// Nobody says so. But letters to such a peer come back, when ferryd has tried for a while. So do those to a peer that
// stands still for long; so an end gives its peer up only when letters come back that it has written again.
namespace ferry::virt {

void Talks::miss(Qp& qp, Talk& talk) {
  if (is_stopped(qp)) return;
  const auto kind = unanswered(qp, talk);
  const bool waits = kind == LetterKind::kSwitch || kind == LetterKind::kSwitched ||
                     kind == LetterKind::kSuspended;
  if (!waits) return;
  if (talk.missed == Talk::Missed::kNo) talk.missed = Talk::Missed::kOnce;
  if (talk.missed == Talk::Missed::kAgain) go_on_alone(qp, talk);
}

// A QP of the device that is connected goes on with its requests, which fail there as they do when a peer ends. One
// that is not connected yet cannot be: it has another PSN than its peer expects, if there is a peer after all.
void Talks::go_on_alone(Qp& qp, Talk& talk) {
  talk.missed = Talk::Missed::kNo;
  talk.is_alone = true;
  talk.is_met = false;
  talk.step = Talk::Step::kNone;
  talk.peer.reset();
  unprepared_.erase(&qp);
  stops_.clear(qp);
  if (std::exchange(talk.awaits_peer, false)) qp.fail_away();
  let_go(qp, talk);
}

}  // namespace ferry::virt
