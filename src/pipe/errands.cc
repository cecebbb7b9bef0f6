#include "pipe/errands.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>

namespace ferry::pipe {

struct Errands::State {
  explicit State(unsigned most) : most_threads(most) {}

  const unsigned most_threads;
  std::mutex mutex;
  // Of each party that has some; the first is under way, or the party is ready.
  std::map<Party, std::deque<std::function<void()>>> lanes;
  std::deque<Party> ready;
  std::condition_variable changed;
  unsigned threads = 0, resting = 0;
  bool is_over = false;
  std::size_t waiting = 0;
};

Errands::Errands(unsigned most_threads) : state_(std::make_shared<State>(most_threads)) {
  // One is always there: where there is no room for others, errands are slow, and not for ever.
  state_->threads = 1;
  std::thread([state = state_] { work(state, true); }).detach();
}

Errands::~Errands() {
  const std::lock_guard lock(state_->mutex);
  state_->is_over = true;
  state_->changed.notify_all();
}

void Errands::run(Party party, std::function<void()> errand) {
  run_in(state_, party, std::move(errand));
}

void Errands::close(Party party, UniqueFd descriptor) {
  if (!descriptor) return;
  run(party, [owned = std::make_shared<UniqueFd>(std::move(descriptor))] { owned->reset(); });
}

Given Errands::keep(Party party, UniqueFd descriptor) {
  return {new UniqueFd(std::move(descriptor)), [state = state_, party](const UniqueFd* dropped) {
            const std::shared_ptr<UniqueFd> owned(const_cast<UniqueFd*>(dropped));
            run_in(state, party, [owned] { owned->reset(); });
          }};
}

std::size_t Errands::waiting(Party party) const {
  const std::lock_guard lock(state_->mutex);
  const auto lane = state_->lanes.find(party);
  return lane == state_->lanes.end() ? 0 : lane->second.size();
}

std::size_t Errands::waiting() const {
  const std::lock_guard lock(state_->mutex);
  return state_->waiting;
}

void Errands::run_in(const std::shared_ptr<State>& state, Party party,
                     std::function<void()> errand) {
  const std::lock_guard lock(state->mutex);
  auto& lane = state->lanes[party];
  lane.push_back(std::move(errand));
  ++state->waiting;
  if (lane.size() == 1) state->ready.push_back(party);
  state->changed.notify_one();
  if (state->ready.size() <= state->resting || state->threads == state->most_threads) return;
  try {
    std::thread([state] { work(state, false); }).detach();
    ++state->threads;
  } catch (const std::system_error&) {
    // There is no room for a thread now: another one does it.
  }
}

void Errands::work(const std::shared_ptr<State>& state, bool stays) {
  std::unique_lock lock(state->mutex);
  for (;;) {
    if (state->ready.empty() && stays && !state->is_over) {
      ++state->resting;
      state->changed.wait(lock, [&] { return !state->ready.empty() || state->is_over; });
      --state->resting;
    }
    if (state->ready.empty()) break;
    const Party party = state->ready.front();
    state->ready.pop_front();
    auto errand = std::move(state->lanes[party].front());
    lock.unlock();
    errand();
    errand = nullptr;
    lock.lock();
    const auto lane = state->lanes.find(party);
    lane->second.pop_front();
    --state->waiting;
    if (lane->second.empty()) {
      state->lanes.erase(lane);
    } else {
      state->ready.push_back(party);  // the others first
    }
  }
  --state->threads;
}

}  // namespace ferry::pipe
