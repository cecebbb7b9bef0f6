// The entry points of pd_epoll.

#include "ferry/pd.h"
#include "pipe/library/call.h"
#include "pipe/library/epoll.h"

using namespace ferry::pd;

extern "C" {

int pd_epoll_create() {
  Program* program = Program::get();
  if (program == nullptr) return fail(Call::is_child() ? EBADF : ENODEV);
  const auto epoll = Epoll::create(*program);
  return epoll ? epoll->descriptor() : -1;
}

int pd_epoll_ctl(int epfd, int op, int sid, struct pd_epoll_event* event) {
  const Call call(sid);
  if (!call) return -1;
  const auto epoll = Epoll::find(epfd);
  if (!epoll) return fail(EBADF);
  if (op != PD_EPOLL_CTL_DEL && event == nullptr) return fail(EFAULT);
  const auto lock = call.lock();
  if (!lock) return -1;
  int error = EINVAL;
  if (op == PD_EPOLL_CTL_ADD) error = epoll->add(sid, *call.socket, *event);
  if (op == PD_EPOLL_CTL_MOD) error = epoll->change(sid, *call.socket, *event);
  if (op == PD_EPOLL_CTL_DEL) error = epoll->remove(sid);
  return error == 0 ? 0 : fail(error);
}

int pd_epoll_wait(int epfd, struct pd_epoll_event* events, int maxevents, int timeout) {
  if (Program::get() == nullptr) return fail(Call::is_child() ? EBADF : ENODEV);
  const auto epoll = Epoll::find(epfd);
  if (!epoll) return fail(EBADF);
  if (maxevents <= 0) return fail(EINVAL);
  return epoll->wait(events, maxevents, timeout);
}

int pd_epoll_close(int epfd) {
  return Epoll::close(epfd) ? 0 : fail(EBADF);
}

}  // extern "C"
