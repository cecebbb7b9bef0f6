#ifndef FERRY_PD_H
#define FERRY_PD_H

/* PD Lib: sockets between the containers of one host, over ferry-piped instead of the TCP stack.
 *
 * The calls are those of table 3 of "PipeDevice: A Hardware-Software Co-Design Approach to Intra-Host
 * Container Communication" (CoNEXT '22), and some beyond it. They follow the non-blocking BSD sockets:
 * -1 (or NULL) and errno where they fail. Any thread may call; two threads that send by the same
 * socket, or receive by it, order their calls themselves.
 *
 * Nothing is copied between the program and a socket. What is sent is written into a buffer of
 * pd_malloc(), which is the program's again when pd_buf_refresh() says so. What has been received is
 * read where pd_recv() points to, until pd_recv_done() gives that memory back.
 *
 * A peer that no pipe of this host has is reached by TCP, with the same calls (PD_SO_CARRIER tells).
 *
 * Every call gives these errors, which are not repeated below:
 *   EBADF       there is no such socket; or it is the child of a fork(), which has none of its parent
 *   ENODEV      pd_init() was not called, or ferry-piped has ended and no other one has come for a minute
 *               (ferry-piped --away): all sockets are gone. Until then connections are kept, and calls that
 *               need ferry-piped wait.
 *   ENOBUFS     ferry-piped was started again, and has no memory for the buffers of this socket, which is not connected
 *
 * Link with -lferry-pipe. docs/pipe.md shows programs and says how they get to ferry-piped. */

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The address and port of a socket: a struct sockaddr_in or sockaddr_in6. */
typedef struct sockaddr pd_sock_addr;

/* Connects the program with ferry-piped, at FERRY_PIPE_SOCKET or /run/ferry/pipe.sock. From here on the program has a
 * thread of the library's, which sleeps and takes no signals.
 * chardev: the engine that is to copy, "software"; NULL: whichever ferry-piped has.
 * sqthresh: the driver is woken for every so many requests, or when the program waits; 0 or 1: for each.
 * cqthresh: the driver tells of so many completions at once, or when it has no more; 0: then only.
 *   ENODEV      ferry-piped does not run, or has another engine
 *   EACCES      ferry-piped may not know the program's network namespace
 *   EALREADY    it is connected already
 *   EINVAL      a threshold is above 1024
 *   EPROTONOSUPPORT  ferry-piped is of another version
 *   ENOBUFS     there is no memory for queues, or the container has too many programs */
int pd_init(const char* chardev, unsigned sqthresh, unsigned cqthresh);

/* Closes all sockets, and the connection with ferry-piped. No other call may be under way. */
int pd_release(void);

/* domain: AF_INET or AF_INET6. type: SOCK_STREAM, with SOCK_NONBLOCK and SOCK_CLOEXEC or without: all
 * sockets are both. protocol: 0 or IPPROTO_TCP. Gives the id of the socket, a number from 0 on.
 *   EAFNOSUPPORT, EPROTONOSUPPORT, ESOCKTNOSUPPORT   it is another domain, protocol, type
 *   EMFILE      the program has 65,536 sockets */
int pd_socket(int domain, int type, int protocol);

/* Port 0: any. The address must be one of the program's network namespace, or any.
 *   EADDRINUSE, EADDRNOTAVAIL, EACCES   as bind(2), which is asked
 *   EINVAL      the socket has an address */
int pd_bind(int sid, const pd_sock_addr* addr, socklen_t addrlen);

/* backlog: how many connections may wait for pd_accept(), at most 4096. Listens on TCP, too.
 *   EDESTADDRREQ  the socket has no address
 *   EADDRINUSE  another socket listens there, maybe of another container of the same network
 *   EINVAL      it is connected */
int pd_listen(int sid, int backlog);

/* addr and addrlen may be NULL.
 *   EAGAIN      nobody has come
 *   EINVAL      the socket does not listen
 *   ENOBUFS     there is no memory for buffers, or a limit of the container or user is reached: the connection waits
 *               on, as long as ferry-piped runs
 *   EMFILE      as pd_socket(); or the program has too many descriptors, of which a connection takes two */
int pd_accept(int sid, pd_sock_addr* addr, socklen_t* addrlen);

/* Over the pipe the socket is connected at once, and pd_send() may follow; what is sent waits until the
 * other side has accepted. Over TCP it is EINPROGRESS, and then PD_EPOLLOUT with SO_ERROR.
 *   ECONNREFUSED  nobody listens there, its backlog is full, or a rule of `ferry pipe` denies it
 *   EISCONN     it is connected; EALREADY: it is about to be; EOPNOTSUPP: it listens
 *   ENOBUFS     there is no memory for buffers, or a limit of the container or user is reached
 *   EAFNOSUPPORT  the address is of another domain; EINVAL: it is too short
 *   and what connect(2) gives for TCP */
int pd_connect(int sid, const pd_sock_addr* addr, socklen_t addrlen);

/* Sends from sendbuf, memory of pd_malloc() of this socket, at its beginning or within. Until
 * pd_buf_refresh() gives the buffer back nothing may be written there. Gives how much is sent, maybe
 * less than buflen. It waits for nobody but the driver, which is about to take an entry, where a queue is
 * full. A signal SIGPIPE is never raised.
 *   EAGAIN      512 sends are under way: PD_EPOLLOUT says when there are fewer
 *   EFAULT      the memory is not a buffer of this socket
 *   ENOTCONN    it is not connected
 *   EPIPE       the peer has closed, or pd_shutdown() has ended sending
 *   ECONNRESET  the peer was killed, or a rule of `ferry pipe` has ended the connection; or the peer has ended
 *               while ferry-piped was being started again, or has not come to the next one in time */
ssize_t pd_send(int sid, const void* sendbuf, size_t buflen);

/* Which of the buffers ptrs[0] to ptrs[ptrlen - 1] may be written again? They come first in ptrs
 * afterwards, and their number is given. The others follow: they are being sent.
 *   EFAULT      one is not a buffer of this socket
 *   EINVAL      ptrlen is negative */
int pd_buf_refresh(int sid, void** ptrs, int ptrlen);

/* Points *recvbuf to the next bytes that have been received, and gives their number, at most buflen.
 * They are there until pd_recv_done(). The next call points to what follows them. 0: the peer sends no
 * more (or buflen is 0), and *recvbuf is NULL.
 *   EAGAIN      nothing is there
 *   ENOTCONN    it is not connected
 *   ECONNRESET  the peer was killed, and what it has sent before was not all delivered; or as pd_send() */
ssize_t pd_recv(int sid, size_t buflen, void** recvbuf);

/* Gives back the first buflen bytes of what pd_recv() has pointed to and was not given back.
 *   EINVAL      that is more than there is
 *   ENOTCONN    it is not connected */
int pd_recv_done(int sid, size_t buflen);

/* What has been sent is delivered, unless ferry-piped is killed when the program has ended. Buffers of the socket
 * are gone. */
int pd_close(int sid);

/* A buffer of the send ring of the socket that this thread has made, connected or accepted last.
 *   EBADF       it has not, or the socket is closed
 *   ENOMEM      the ring has no gap as large as this
 *   ENOBUFS     there is no memory for a ring, or a limit of the container or user is reached
 *   EINVAL      size is 0, or the socket listens */
void* pd_malloc(size_t size);

/* A buffer that is being sent is given back when that is done.
 *   EFAULT      it is no buffer of pd_malloc() */
int pd_free(void* buf);

/* level SOL_SOCKET:
 *   SO_SNDBUF, SO_RCVBUF  size of the rings (4 MiB), rounded up to 2 MiB. To be set before the first
 *               pd_malloc() and pd_connect() (else EISCONN), or on a listening socket for those that it accepts
 *   SO_BUSY_POLL  how many microseconds a call that waits looks for its event before it sleeps (20)
 *   SO_ERROR, SO_TYPE, SO_DOMAIN, SO_PROTOCOL, SO_ACCEPTCONN  to be read only
 * level PD_SOL_PIPE: PD_SO_CARRIER, to be read only.
 *   ENOPROTOOPT there is no such option
 *   EINVAL      the value is not of this option */
int pd_getsockopt(int sid, int level, int optname, void* optval, socklen_t* optlen);
int pd_setsockopt(int sid, int level, int optname, const void* optval, socklen_t optlen);

#define PD_SOL_PIPE 0x7064
#define PD_SO_CARRIER 1 /* int: what carries the socket's bytes */
#define PD_CARRIER_NONE 0
#define PD_CARRIER_PIPE 1
#define PD_CARRIER_TCP 2

/* Events, as epoll(7) has them. */
#define PD_EPOLLIN 0x001u  /* pd_recv() or pd_accept() gives something, or the end */
#define PD_EPOLLOUT 0x004u /* pd_send() takes something, or pd_buf_refresh() may give something */
#define PD_EPOLLERR 0x008u /* always reported: SO_ERROR says what */
#define PD_EPOLLHUP 0x010u /* always reported: nothing can be sent or will come any more */
#define PD_EPOLLET (1u << 31)

#define PD_EPOLL_CTL_ADD 1
#define PD_EPOLL_CTL_DEL 2
#define PD_EPOLL_CTL_MOD 3

typedef union pd_epoll_data {
  void* ptr;
  int sid;
  uint32_t u32;
  uint64_t u64;
} pd_epoll_data_t;

struct pd_epoll_event {
  uint32_t events;
  pd_epoll_data_t data;
};

/* A descriptor of the kernel's, which can be watched (EPOLLIN) by epoll, poll and select: when it is
 * readable, pd_epoll_wait() is to be called, which may find that it was for nothing. It is closed by
 * pd_epoll_close(), not by close(). errno as epoll_create1(2). */
int pd_epoll_create(void);

/*   EEXIST      the socket is in already; ENOENT: it is not
 *   EINVAL      op is none of these; EFAULT: event is NULL */
int pd_epoll_ctl(int epfd, int op, int sid, struct pd_epoll_event* event);

/* timeout: milliseconds; 0: does not wait; -1: for ever. Gives how many events there are.
 *   EINVAL      maxevents is not positive
 *   EINTR       a signal has come */
int pd_epoll_wait(int epfd, struct pd_epoll_event* events, int maxevents, int timeout);
int pd_epoll_close(int epfd);

/* Beyond the paper. */

/* pd_malloc() for this socket. */
void* pd_malloc_for(int sid, size_t size);

/* As recv(2): copies up to buflen bytes into memory of the program's, and gives them back. What
 * pd_recv() has pointed to must have been given back before (EBUSY). Else errors as pd_recv(). */
ssize_t pd_recv_into(int sid, void* buf, size_t buflen);

/* how: SHUT_RD, SHUT_WR, SHUT_RDWR.   EINVAL: it is none of these; ENOTCONN: it is not connected */
int pd_shutdown(int sid, int how);

/*   ENOTCONN (of the peer): it is not connected */
int pd_getsockname(int sid, pd_sock_addr* addr, socklen_t* addrlen);
int pd_getpeername(int sid, pd_sock_addr* addr, socklen_t* addrlen);

/* These wait up to `timeout` milliseconds (-1: for ever) for what the calls above would not give at
 * once, and fail with EAGAIN then; EINTR: a signal has come. pd_send_timed() gives less than buflen
 * only when the time is over or the connection ends. pd_buf_refresh_timed() waits for all buffers, and
 * gives how many there are. pd_connect_timed(): ETIMEDOUT instead of EAGAIN. */
int pd_accept_timed(int sid, pd_sock_addr* addr, socklen_t* addrlen, int timeout);
int pd_connect_timed(int sid, const pd_sock_addr* addr, socklen_t addrlen, int timeout);
ssize_t pd_send_timed(int sid, const void* sendbuf, size_t buflen, int timeout);
int pd_buf_refresh_timed(int sid, void** ptrs, int ptrlen, int timeout);
ssize_t pd_recv_timed(int sid, size_t buflen, void** recvbuf, int timeout);
ssize_t pd_recv_into_timed(int sid, void* buf, size_t buflen, int timeout);

#ifdef __cplusplus
}
#endif

#endif
