#include "virtual/receives/receive_queue.h"

#include <thread>

#include <cerrno>

namespace ferry::virt {

template <typename Target>
void ReceiveQueue<Target>::note_list(const ibv_recv_wr* list, const ibv_recv_wr* end) {
  noted_.note(list, end);
}

template <typename Target>
int ReceiveQueue<Target>::keep_list(ibv_recv_wr* list, ibv_recv_wr** bad) {
  for (; list != nullptr; list = list->next) {
    *bad = list;
    if (!takes_ || list->num_sge < 0 || static_cast<std::uint32_t>(list->num_sge) > max_sge_)
      return EINVAL;
    if (kept_ >= max_wr_) return ENOMEM;
    ++kept_;
    noted_.note(*list);
  }
  return 0;
}

template <typename Target>
int ReceiveQueue<Target>::post_slowly(ibv_recv_wr* list, ibv_recv_wr** bad) {
  auto lock = gate_.lock();
  mode_changed_.wait(lock, [&] { return mode_ != Mode::kWait; });
  if (mode_ == Mode::kKeep) return keep_list(list, bad);
  const int error = target_->post_recv(list, bad);
  noted_.note(list, error != 0 ? *bad : nullptr);
  return error;
}

template <typename Target>
void ReceiveQueue<Target>::resize(std::uint32_t max_wr, std::uint32_t noted) {
  const auto lock = gate_.lock();
  noted_.resize(noted);
  max_wr_ = max_wr;
  // The thread that posts shall own the gate, not the caller.
  if (!gate_.is_shut()) gate_.open();
}

template <typename Target>
void ReceiveQueue<Target>::wait(bool takes) {
  const auto lock = gate_.lock();
  mode_ = Mode::kWait;
  takes_ = takes;
}

template <typename Target>
void ReceiveQueue<Target>::keep_locked(std::uint32_t count) {
  if (mode_ != Mode::kKeep) kept_ = count;
  refilled_ = 0;
  mode_ = Mode::kKeep;
  mode_changed_.notify_all();
}

template <typename Target>
void ReceiveQueue<Target>::keep(std::uint32_t count) {
  const auto lock = gate_.lock();
  keep_locked(count);
}

template <typename Target>
void ReceiveQueue<Target>::leave(std::uint32_t count) {
  const auto lock = gate_.lock();
  keep_locked(count);
  target_ = nullptr;
}

template <typename Target>
int ReceiveQueue<Target>::refill_locked() {
  for (; refilled_ < kept_; ++refilled_) {
    const PostedReceives::Receive receive = noted_.latest(kept_, refilled_);
    ibv_recv_wr request{};
    request.wr_id = receive.wr_id;
    request.sg_list = receive.elements.data();
    request.num_sge = static_cast<int>(receive.elements.size());
    ibv_recv_wr* bad = nullptr;
    if (const int error = target_->post_recv(&request, &bad)) return error;
  }
  return 0;
}

template <typename Target>
int ReceiveQueue<Target>::refill() {
  const auto lock = gate_.lock();
  return refill_locked();
}

template <typename Target>
int ReceiveQueue<Target>::pass() {
  const auto lock = gate_.lock();
  const int error = refill_locked();
  pass_locked();
  return error;
}

template <typename Target>
void ReceiveQueue<Target>::drop() {
  const auto lock = gate_.lock();
  pass_locked();
}

// Waits a moment: the thread that has posted the receive may not have noted it yet.
template <typename Target>
std::optional<PostedReceives::Receive> ReceiveQueue<Target>::find(std::uint32_t index) {
  for (int tries = 0; tries < 1000 && noted_.posted() == index; ++tries) std::this_thread::yield();
  return noted_.find(index);
}

template <typename Target>
void ReceiveQueue<Target>::pass_locked() {
  kept_ = refilled_ = 0;
  mode_ = Mode::kPass;
  mode_changed_.notify_all();
  if (gate_.is_shut()) gate_.open();
}

template class ReceiveQueue<device::Qp>;
template class ReceiveQueue<device::Srq>;

}  // namespace ferry::virt
