#pragma once

namespace ferry::virt {

// The descriptor by which the application waits for events: an epoll set with the device's descriptor in
// it. The set stays when the device goes away: threads that poll the set, and epoll sets that have it, do
// not notice. A *bell* (an eventfd) in the set makes it readable while Ferry keeps events.
class SteadyDescriptor {
 public:
  SteadyDescriptor() = default;
  ~SteadyDescriptor();
  SteadyDescriptor(const SteadyDescriptor&) = delete;
  SteadyDescriptor& operator=(const SteadyDescriptor&) = delete;

  // 0 or errno.
  int open();
  // Gives the descriptor; -1: it is not open.
  int number() const { return set_; }
  // Whether the descriptor is still the set: the program may have closed it, or put another file there.
  bool is_open() const;
  // It is not: from now on its numbers are somebody else's, and are not closed.
  void abandon() { set_ = bell_ = watched_ = -1; }

  // Puts the device's descriptor into the set; the caller owns that descriptor. 0 or errno.
  int watch(int descriptor);
  void unwatch();
  // `muted`: from now on events of the device do not make the set readable; else they do so again.
  void mute(bool muted);
  // Sets whether calls for events of the device block from now on.
  void let_device_block(bool blocks);

  void ring();
  void silence();

  // Whether the application's calls for events block: it has not set O_NONBLOCK.
  bool blocks() const;
  // Blocks until there may be an event, or until a signal comes. 0; EAGAIN: the application's calls do
  // not block.
  int wait() const;

 private:
  int set_ = -1, bell_ = -1;
  int watched_ = -1;
  bool device_blocks_ = true;
  bool is_muted_ = false;
};

}  // namespace ferry::virt
