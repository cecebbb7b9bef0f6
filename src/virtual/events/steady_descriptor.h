#pragma once

namespace ferry::virt {

// The descriptor of events that the application holds: an epoll set with that of the device in it.
// It stays when the device goes away: threads that poll it, and epoll sets that have it, see nothing
// of that. A *bell* in the set makes it readable while the shadow has events of its own.
class SteadyDescriptor {
 public:
  SteadyDescriptor() = default;
  ~SteadyDescriptor();
  SteadyDescriptor(const SteadyDescriptor&) = delete;
  SteadyDescriptor& operator=(const SteadyDescriptor&) = delete;

  // 0 or errno.
  int open();
  // -1: it is not open.
  int number() const { return set_; }

  // The device's descriptor; the caller owns it. 0 or errno.
  int watch(int descriptor);
  void unwatch();
  // From now on events of the device do not make it readable, or do again.
  void mute(bool muted);
  // Whether calls for events of the device block from now on.
  void let_device_block(bool blocks);

  void ring();
  void silence();

  // What the application has set.
  bool blocks() const;
  // Blocks until there may be an event, also when a signal comes. 0; EAGAIN: the application has set
  // that it does not block.
  int wait() const;

 private:
  int set_ = -1, bell_ = -1;
  int watched_ = -1;
  bool device_blocks_ = true;
  bool is_muted_ = false;
};

}  // namespace ferry::virt
