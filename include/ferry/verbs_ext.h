/* The two calls by which Ferry extends libibverbs (TardiS, USENIX ATC 2021, section 3.2, listing
 * 1): an account of all objects of a context, and their restoration, object by object, in another
 * context. They hand a program's live connections to another process: on another host, or on the
 * same host when a server is upgraded in place. libferry.so defines them; a program that wants to
 * run without it looks them up by dlsym(RTLD_DEFAULT, ...).
 *
 * The old process
 *   1. ibv_dump_context(): its QPs become Stopped and stay so; peers wait (they become Paused)
 *      instead of failing.
 *   2. passes the dump, and the memory behind its MRs (a memfd, say), to the new process by any
 *      channel of its own. Memory must be passed after the dump: before it, peers still write.
 *   3. ends, or closes the context, once the new process has resumed; earlier is possible, but then
 *      nobody answers the peers meanwhile.
 * The new process, with libferry.so
 *   1. ibv_open_device(), preferably of the same network interface; creates nothing else in that
 *      context before the restore is done.
 *   2. walks the records of the dump in their order and calls ibv_restore_object() with
 *      IBV_RESTORE_CREATE for each, and with IBV_RESTORE_MR_KEYS for each MR. Records name other
 *      objects by their handles, and a dump lists an object after those that it names. Instead of
 *      CREATE for an MR it may call ibv_reg_mr_iova() at any address, with the recorded iova (peers
 *      and the SGEs of queued requests count from it), before IBV_RESTORE_MR_KEYS. An MR that a
 *      memory window is bound to needs CREATE: the window's record names the MR by its handle.
 *   3. walks them again with IBV_RESTORE_REFILL for each CQ, SRQ and QP, which brings back
 *      completions not polled yet, requests posted and not completed, and PSNs.
 *   4. IBV_RESTORE_REFILL with the context's record ends the restore: every QP sends its resume
 *      message and goes on. (TardiS sends that message with each QP's REFILL; here all objects are
 *      in place before the first peer is told, so an earlier failure leaves nothing half done.)
 * QP numbers, keys, wr_ids, sequence numbers and the order of messages are what they were; nothing
 * is lost or doubled. */
#ifndef FERRY_VERBS_EXT_H
#define FERRY_VERBS_EXT_H

#include <infiniband/verbs.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The values are those of the image format (docs/image.md). */
enum ibv_dump_object_type {
  IBV_OBJECT_CONTEXT = 0,
  IBV_OBJECT_PD = 1,
  IBV_OBJECT_MR = 2,
  IBV_OBJECT_CQ = 3,
  IBV_OBJECT_QP = 5,
  IBV_OBJECT_SRQ = 7,
  IBV_OBJECT_XRCD = 8,
  IBV_OBJECT_MW = 9,
  IBV_OBJECT_AH = 10
};

enum ibv_restore_command {
  IBV_RESTORE_CREATE = 1,
  IBV_RESTORE_REFILL = 2,
  IBV_RESTORE_MR_KEYS = 3
};

/* A dump is a sequence of records without gaps or alignment, little-endian: this header, then
 * `length` bytes (docs/image.md). */
struct ibv_dump_record {
  uint16_t type;    /* enum ibv_dump_object_type */
  uint16_t version; /* of the body */
  uint32_t handle;  /* of the object within this dump; 0: the context */
  uint32_t length;  /* bytes of the body that follows */
};

/* Stops every QP of `ctx` for good and describes all objects in `dump`, a buffer of `length` bytes.
 * *count gets the number of records. Returns the size of the description in bytes; when that is
 * more than `length`, nothing was written to `dump`, and the caller calls again with more room
 * (dump may be NULL with length 0). While the context is Stopped, posting only queues requests, and
 * polling takes the completions that wait; both change the description. Errors: -EINVAL (ctx or
 * count is NULL, or dump is NULL and length > 0), -EOPNOTSUPP (a context of another device),
 * -ENODEV (in a child after fork()), -ENOMEM, -EFBIG (a description of more than INT_MAX bytes), or
 * another negative errno value from the device. From the first successful stop on, the context does
 * not move with its process any more. */
int ibv_dump_context(struct ibv_context* ctx, int* count, void* dump, size_t length);

/* Restores one object of type `object_type` in `ctx` from the whole record (header and body) at
 * `args`, `length` bytes long.
 *   CREATE   CONTEXT, PD, XRCD, MR, CQ, SRQ, QP, MW, AH. *object gets the struct ibv_pd, ibv_xrcd,
 *            ibv_mr, ibv_cq, ibv_srq, ibv_qp, ibv_mw or ibv_ah (of CONTEXT: ctx). An MR is
 *            registered at its recorded address, which must be mapped, and has keys of its own.
 *            Going in, *object is the struct ibv_comp_channel of a CQ, or NULL; of other types it
 *            is ignored. cq_context, srq_context and qp_context are NULL: set them. An XRC domain
 *            is tied to no file. QPs are Stopped.
 *   MR_KEYS  MR: *object, registered by the caller, gets the recorded lkey and rkey.
 *   REFILL   CQ, SRQ, QP: brings back the content of *object. CONTEXT: the end of the restore, see
 *            above; *object is ctx.
 * Returns 0 or an errno value: EINVAL (a NULL argument, a malformed record, another type than the
 * record's, a command that the type does not have, a context that was dumped), ENOENT (the record
 * names an object that was not restored), EEXIST (its handle, key or QP number is in use in this
 * context), EBUSY (CONTEXT: `ctx` has objects or was restored), EOPNOTSUPP, ENODEV, ENOMEM, EFAULT
 * (MR: its memory is not mapped).
 * After a failed CREATE or MR_KEYS nothing has changed; after a failed REFILL the object can only
 * be destroyed. */
int ibv_restore_object(struct ibv_context* ctx, void** object, int object_type, int cmd, void* args,
                       size_t length);

#ifdef __cplusplus
}
#endif

#endif
