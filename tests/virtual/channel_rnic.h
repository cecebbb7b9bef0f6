#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <optional>

#include "passing_context.h"
#include "rig.h"

// An RNIC of ours as a device that has descriptors for its events, as those of the kernel: reads of
// them block or not as their flags say, and objects wait for acknowledgements when they end (here:
// that must not be, and fails the test).
namespace ferry::virt::testing {

template <typename Event>
class Pipe {
 public:
  Pipe() { EXPECT_EQ(::pipe2(ends_, O_CLOEXEC), 0); }
  ~Pipe() {
    for (const int end : ends_) ::close(end);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  int descriptor() const { return ends_[0]; }
  void push(const Event& event) {
    {
      std::lock_guard lock(mutex_);
      events_.push_back(event);
    }
    EXPECT_EQ(::write(ends_[1], "", 1), 1);
  }
  int take(Event* out) {
    for (;;) {
      char byte = 0;
      if (::read(ends_[0], &byte, 1) != 1) return errno;
      std::lock_guard lock(mutex_);
      const std::optional<Event> event = events_.front();
      events_.pop_front();
      if (!event) continue;
      *out = *event;
      return 0;
    }
  }
  // Readers pass over these events.
  void drop(const Event& dropped) {
    std::lock_guard lock(mutex_);
    for (auto& event : events_) {
      if (event == dropped) event.reset();
    }
  }

 private:
  int ends_[2];
  std::mutex mutex_;
  std::deque<std::optional<Event>> events_;
};

class PipeChannel final : public device::Channel {
 public:
  int descriptor() const override { return events.descriptor(); }
  int take(device::Cq** out) override {
    ++inside;
    const int error = events.take(out);
    --inside;
    return error;
  }
  Pipe<device::Cq*> events;
  std::atomic<int> inside{0};
};

class ChannelContext final : public PassingContext, private device::EventSink {
 public:
  static std::unique_ptr<ChannelContext> open(int* error) {
    auto context = std::make_unique<ChannelContext>();
    rnic::Context::Options options = r::options(r::loopback(true, false));
    options.sink = context.get();
    context->inner_ = rnic::Context::open(options, error);
    return context->inner_ ? std::move(context) : nullptr;
  }
  ~ChannelContext() override { inner_.reset(); }

  int create_cq(const device::CqInit& init, device::Cq** out) override {
    device::CqInit wanted = init;
    wanted.channel = nullptr;
    const int error = inner_->create_cq(wanted, out);
    std::lock_guard lock(mutex_);
    if (error == 0) channels_[*out] = static_cast<PipeChannel*>(init.channel);
    return error;
  }
  int create_channel(device::Channel** out) override {
    std::lock_guard lock(mutex_);
    auto channel = std::make_unique<PipeChannel>();
    *out = channel.get();
    own_.emplace(*out, std::move(channel));
    return 0;
  }
  int destroy(device::Object* object) override {
    {
      std::lock_guard lock(mutex_);
      if (auto* channel = dynamic_cast<PipeChannel*>(object)) {
        EXPECT_EQ(channel->inside, 0) << "a thread is inside";
        own_.erase(object);
        return 0;
      }
      if (auto* cq = dynamic_cast<device::Cq*>(object)) {
        const auto found = channels_.find(cq);
        if (found != channels_.end() && found->second != nullptr) found->second->events.drop(cq);
        channels_.erase(cq);
      }
    }
    return inner_->destroy(object);  // which may raise events
  }
  int asynchronous_descriptor() const override { return events.descriptor(); }
  int take_asynchronous(device::AsynchronousEvent* out) override { return events.take(out); }
  Pipe<device::AsynchronousEvent> events;

 private:
  void completion(device::Cq& cq) override {
    std::lock_guard lock(mutex_);
    const auto found = channels_.find(&cq);
    if (found != channels_.end() && found->second != nullptr) found->second->events.push(&cq);
  }
  void asynchronous(ibv_event_type, device::Object*) override {}

  std::mutex mutex_;
  std::map<device::Cq*, PipeChannel*> channels_;
  std::map<device::Object*, std::unique_ptr<device::Object>> own_;
};

// Followed to kPlain, it is an RNIC of ours as such, without descriptors.
class ChannelRnic final : public device::Rnic {
 public:
  static constexpr char kPlain[] = "plain";
  const std::string& name() const override { return name_; }
  int index() const override { return 7; }
  void follow(const std::string& name) override { is_plain_ = name == kPlain; }
  const std::string& netdev() const override { return name_; }
  std::uint64_t guid() const override { return 1; }
  std::unique_ptr<device::Context> open(device::EventSink& sink, int* error) override {
    told = &sink;
    if (is_plain_) {
      last = nullptr;
      rnic::Context::Options options = r::options(r::loopback(true, false));
      options.sink = &sink;
      return rnic::Context::open(options, error);
    }
    auto context = ChannelContext::open(error);
    last = context.get();
    return context;
  }
  ChannelContext* last = nullptr;     // that was opened; null: it is plain
  device::EventSink* told = nullptr;  // of the context that was opened

 private:
  const std::string name_ = "lo";
  bool is_plain_ = false;
};

}  // namespace ferry::virt::testing
